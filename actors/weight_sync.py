"""Weight sync: the `old` adapter goes to every rollout actor, and its arrival is proved.

DESIGN 2.5: the hash of `default` changes if and only if a step was applied with lr > 0, the hash of `old` as its
schedule says; an iteration without an applied step publishes nothing. 0 LoRA tensors, or a hash off these rules, is an
error.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from actors.crew import Standing
from actors.learner_worker import LearnerReady
from actors.remote import Ref
from actors.rollout import Loaded, RolloutMeta, Slot
from actors.team import Team
from learner.errors import UserError
from learner.types import IterationReport


class SyncError(UserError):
    """The policy that draws is not, or may not be, the policy that is trained."""


@dataclass(frozen=True)
class Published:
    """The `old` adapter that draws now, and the trained one beside it."""

    version: int
    old_hash: str
    default_hash: str


def next_published(before: Published, report: IterationReport, lr: float) -> Published:
    """What stands published after an iteration; the version tells whether it must be pushed.

    Raises:
        SyncError: hashes or version do not follow the rules.
    """
    after = Published(report.policy_version, report.old_hash, report.default_hash)
    moved = after.default_hash != before.default_hash
    trained = report.applied and lr > 0
    if moved != trained:
        raise SyncError(
            f"iteration {report.iteration}: a step {'was' if report.applied else 'was not'} applied at lr {lr:g}, "
            f"but the hash of `default` {'changed' if moved else 'did not change'} ({after.default_hash[:12]})"
        )
    if not report.applied:
        if after != before:
            raise SyncError(f"iteration {report.iteration}: no step was applied, but `old` or its version changed")
        return before
    if after.version != before.version + (after.old_hash != before.old_hash):
        raise SyncError(
            f"iteration {report.iteration}: `old` went from {before.old_hash[:12]} to {after.old_hash[:12]}, "
            f"its version from {before.version} to {after.version}"
        )
    _check_old(before, after, report)
    return after


def _check_old(before: Published, after: Published, report: IterationReport) -> None:
    """old <- eta old + (1 - eta) default: a copy of default at eta 0, untouched at 1, something new in between."""
    what = f"iteration {report.iteration}: old <- {report.eta:g} old + {1 - report.eta:g} default"
    if report.eta == 0 and after.old_hash != after.default_hash:
        raise SyncError(f"{what}, but its hash {after.old_hash[:12]} is not that of default {after.default_hash[:12]}")
    if report.eta == 1 and after.old_hash != before.old_hash:
        raise SyncError(f"{what}, but its hash changed to {after.old_hash[:12]}")
    # Rounding may leave old as it is where default was equal to it already.
    differed = after.default_hash != before.old_hash
    if 0 < report.eta < 1 and differed and after.old_hash == before.old_hash:
        raise SyncError(f"{what}, but its hash {after.old_hash[:12]} did not change")


class WeightSync:
    """Pushes adapters to the rollout actors by reference and knows which policy may have drawn a batch."""

    def __init__(self, team: Team, ready: LearnerReady) -> None:
        """Starts from what the learner holds; nothing is pushed yet."""
        self._team, self._num_tensors = team, ready.num_tensors
        self.published = Published(ready.policy_version, ready.old_hash, ready.default_hash)

    def push_old(self, check: Callable[[], None]) -> None:
        """Puts the published `old` into every rollout actor and waits for the proof."""
        self._push("old", self._team.learner.adapter("old"), verifier(self._num_tensors, self.published), check)

    def push_eval(self, check: Callable[[], None]) -> None:
        """Puts the EMA of the trained adapter beside it, for evaluation."""
        # Its hash is checked in the actor against what was pushed; no rule says which one it must be.
        self._push("eval", self._team.learner.adapter("ema"), verifier(self._num_tensors, None), check)

    def after(self, report: IterationReport, lr: float, check: Callable[[], None]) -> bool:
        """Publishes what an iteration left behind, if anything; returns whether it did.

        Raises:
            SyncError: hashes, versions or counts are not what they must be.
        """
        former, self.published = self.published, next_published(self.published, report, lr)
        if self.published.version == former.version:
            return False
        self.push_old(check)
        return True

    def check_drawn(self, meta: RolloutMeta, what: str) -> None:
        """Refuses a batch of any policy but the published one.

        Raises:
            SyncError: another version or hash.
        """
        drawn, wanted = (meta.policy_version, meta.policy_hash), (self.published.version, self.published.old_hash)
        if drawn != wanted:
            raise SyncError(
                f"{what} was drawn by policy {drawn[0]} ({drawn[1][:12]}), published is {wanted[0]} ({wanted[1][:12]})"
            )

    def _push(self, slot: Slot, adapter: Ref, verify: Callable[[Any], None], check: Callable[[], None]) -> None:
        self._team.rollouts.broadcast(slot, Standing("load_adapter", (slot, adapter, self._num_tensors), verify))
        self._team.settle(check)


def verifier(num_tensors: int, published: Published | None) -> Callable[[Any], None]:
    """Judges one actor's proof of a push."""

    def verify(loaded: Loaded) -> None:
        if loaded.num_tensors != num_tensors or num_tensors == 0:
            raise SyncError(f"a push bound {loaded.num_tensors} LoRA tensors of {num_tensors}")
        wanted = published and (published.version, published.old_hash)
        if wanted and (loaded.policy_version, loaded.policy_hash) != wanted:
            raise SyncError(
                f"a rollout actor holds policy {loaded.policy_version} ({loaded.policy_hash[:12]}), "
                f"published is {wanted[0]} ({wanted[1][:12]})"
            )

    return verify
