"""The rollout policy `old`: how it follows `default`, which versions were published, and which may still train.

A batch is trained against the very policy that drew it, so the last max_staleness + 1 versions are kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from learner.adapters import hash_tensors
from learner.config import OldPolicyConfig
from learner.errors import UserError


def eta(steps_done: int, config: OldPolicyConfig) -> float:
    """η_s = min(slope · max(0, s − flat_steps), max) with s optimizer steps done (DiffusionNFT's recipes, PAPER 1)."""
    return min(config.slope * max(0, steps_done - config.flat_steps), config.max)


def blended(old: Mapping[str, Tensor], default: Mapping[str, Tensor], eta_s: float) -> dict[str, Tensor]:
    """θ_old ← η_s θ_old + (1 − η_s) θ (DiffusionNFT, arXiv 2509.16117); exact at η = 0, at η = 1 and when θ = θ_old."""
    return {key: torch.lerp(old[key], default[key], 1 - eta_s) for key in old}


@dataclass(frozen=True)
class Published:
    """One version of `old`."""

    version: int
    hash: str
    tensors: Mapping[str, Tensor]
    """CPU, by canonical key."""


class OldPolicies:
    """The published versions that may still draw or train; the last one is the current."""

    def __init__(self, tensors: Mapping[str, Tensor], max_staleness: int) -> None:
        """Publish `tensors` as version 0."""
        self._keep = max_staleness + 1
        self._ring = [Published(0, hash_tensors(tensors), tensors)]

    @property
    def current(self) -> Published:
        """What rollouts of the next iteration draw with."""
        return self._ring[-1]

    def publish(self, tensors: Mapping[str, Tensor]) -> bool:
        """Make `tensors` the next version unless they are the current one; returns whether they were not."""
        new_hash = hash_tensors(tensors)
        if new_hash == self.current.hash:
            return False
        self._ring = [*self._ring, Published(self.current.version + 1, new_hash, tensors)][-self._keep :]
        return True

    def find(self, version: int, policy_hash: str) -> Published:
        """The version that drew a batch.

        Raises:
            UserError: it was never published, or is too old; the message says what was got.
        """
        for published in self._ring:
            if (published.version, published.hash) == (version, policy_hash):
                return published
        kept = ", ".join(f"{p.version} ({p.hash[:12]})" for p in self._ring)
        got = f"latents of policy version {version} ({policy_hash[:12]})"
        if 0 <= version < self._ring[0].version:
            raise UserError(f"{got} are too old: the learner keeps {kept}")
        raise UserError(f"{got} come from a policy that was never published: the learner keeps {kept}")

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Tensor groups for a checkpoint, oldest first."""
        return {f"old.{index}": dict(published.tensors) for index, published in enumerate(self._ring)}

    def state(self) -> list[dict[str, Any]]:
        """Versions and hashes in the order of :meth:`tensors`."""
        return [{"version": published.version, "hash": published.hash} for published in self._ring]

    def load(self, groups: Mapping[str, Mapping[str, Tensor]], state: list[dict[str, Any]]) -> None:
        """
        Raises:
            UserError: tensors that do not have the recorded hash.
        """
        ring = []
        for index, entry in enumerate(state):
            tensors = {key: value.clone() for key, value in sorted(groups[f"old.{index}"].items())}
            found = hash_tensors(tensors)
            if found != entry["hash"]:
                raise UserError(
                    f"old policy {entry['version']} has hash {found[:12]}, the state says {entry['hash'][:12]}"
                )
            ring.append(Published(int(entry["version"]), found, tensors))
        self._ring = ring[-self._keep :]
