"""The learner group: DDP ranks and the harmonizer they ask, an ensemble that lives and dies together."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.config import LearnerGroupConfig
from actors.ensemble import Ensemble
from actors.learner_worker import LearnerReady, RankDone
from actors.remote import Actor, Ref, Remote
from actors.results import ActorVitals
from learner.types import IterationReport, RolloutTask, TrainBatch

HARMONIZER = "harmonizer"


@dataclass(frozen=True)
class DrawnTask:
    """A rollout task and where its latents lie."""

    task: RolloutTask
    latents: Ref


class LearnerGroup:
    """Collective calls are begun here and waited for by the pump; results are read when :attr:`ensemble` is idle."""

    def __init__(self, config: LearnerGroupConfig, remote: Remote, start_timeout_s: float) -> None:
        self.ensemble = Ensemble("learner", remote)
        self.ready: tuple[LearnerReady, ...] = ()
        self._config, self._remote, self._start_timeout_s = config, remote, start_timeout_s
        self._ranks = tuple(f"learner rank {rank}" for rank in range(config.replicas))

    def begin_start(self, harmonizer: Actor, spawn_rank: Callable[[int], Actor]) -> None:
        """Puts the actors in place and has them load; `spawn_rank(rank)` creates one."""
        self.ensemble.add(HARMONIZER, harmonizer)
        for rank, name in enumerate(self._ranks):
            self.ensemble.add(name, spawn_rank(rank))
        # Only rank 0's node knows its free ports; the others take its answer by reference.
        address = self.ensemble.send(self._ranks[0], "free_address")
        calls: dict[str, tuple[Any, ...]] = dict.fromkeys(self._ranks, ("start", address))
        self.ensemble.begin("start", {HARMONIZER: ("start",), **calls}, self._start_timeout_s)

    def begin_load(self, checkpoint: Path | None, harmonizer_state: Mapping[str, Any] | None) -> None:
        """Has every member take up a checkpoint, or say where a fresh start stands."""
        calls: dict[str, tuple[Any, ...]] = {
            name: ("load", None if checkpoint is None else str(checkpoint)) for name in self._ranks
        }
        if harmonizer_state is not None:
            calls[HARMONIZER] = ("load_state_dict", harmonizer_state)
        self.ensemble.begin("load", calls, self._start_timeout_s)

    def finish_load(self) -> tuple[LearnerReady, ...]:
        """What the ranks said, in their order."""
        self.ready = tuple(self.ensemble.results[name] for name in self._ranks)
        self._check_equal([(r.default_hash, r.old_hash) for r in self.ready], "loading")
        return self.ready

    def begin_train(self, batch: TrainBatch, drawn: Sequence[DrawnTask]) -> None:
        """Starts an iteration. Each rank gets the latents of the tasks that hold samples of its own."""
        shared = self._remote.put(batch)
        calls: dict[str, tuple[Any, ...]] = {}
        for name, ready in zip(self._ranks, self.ready, strict=True):
            mine = [d.latents for d in drawn if _overlaps(d.task, ready.samples)]
            calls[name] = ("train", shared, *mine)
        self.ensemble.begin(f"training iteration {batch.iteration}", calls, self._config.timeout_s)

    def finish_train(self) -> IterationReport:
        """Rank 0's report, after seeing that all ranks hold the same adapters.

        Raises:
            RuntimeError: they do not.
        """
        report: IterationReport = self.ensemble.results[self._ranks[0]]
        others: list[RankDone] = [self.ensemble.results[name] for name in self._ranks[1:]]
        hashes = [(report.default_hash, report.old_hash), *((o.default_hash, o.old_hash) for o in others)]
        self._check_equal(hashes, f"iteration {report.iteration}")
        return report

    def adapter(self, slot: str) -> Ref:
        """Rank 0's adapter, by reference."""
        return self.ensemble.send(self._ranks[0], "adapter", slot)

    def begin_harmonizer_state(self) -> None:
        """Asks the harmonizer for what a checkpoint holds of it."""
        self.ensemble.begin("reading the harmonizer's state", {HARMONIZER: ("state_dict",)}, self._config.timeout_s)

    def finish_harmonizer_state(self) -> Mapping[str, Any]:
        """JSON-able."""
        state: Mapping[str, Any] = self.ensemble.results[HARMONIZER]
        return state

    def begin_save(self, root: Path, iterations_done: int, extra: Mapping[str, Any]) -> None:
        """Has rank 0 write a checkpoint."""
        call = ("save", str(root), iterations_done, extra)
        self.ensemble.begin("writing a checkpoint", {self._ranks[0]: call}, self._config.timeout_s)

    def save_now(self, root: Path, iterations_done: int, extra: Mapping[str, Any], timeout_s: float) -> Path:
        """The same at once, whatever else the group is doing.

        Raises:
            ActorLostError, CallFailedError, TimeoutError.
        """
        ref = self.ensemble.send(self._ranks[0], "save", str(root), iterations_done, extra)
        return Path(self._remote.get(ref, timeout_s))

    def finish_save(self) -> Path:
        """Its folder."""
        return Path(self.ensemble.results[self._ranks[0]])

    def begin_prune(self, root: Path, keep_last: int, best: Sequence[Path]) -> None:
        """Has rank 0 delete all checkpoints but the last and the best."""
        call = ("prune", str(root), keep_last, [str(path) for path in best])
        self.ensemble.begin("deleting old checkpoints", {self._ranks[0]: call}, self._config.timeout_s)

    def begin_vitals(self) -> None:
        """Asks every member for its vitals."""
        calls = dict.fromkeys((HARMONIZER, *self._ranks), ("vitals",))
        self.ensemble.begin("reading vitals", calls, self._start_timeout_s)

    def finish_vitals(self) -> tuple[ActorVitals, ...]:
        """The harmonizer's, then the ranks'."""
        return tuple(self.ensemble.results[name] for name in (HARMONIZER, *self._ranks))

    @staticmethod
    def _check_equal(hashes: Sequence[tuple[str, str]], when: str) -> None:
        if len(set(hashes)) > 1:
            shown = "; ".join(f"rank {r}: default {d[:12]}, old {o[:12]}" for r, (d, o) in enumerate(hashes))
            raise RuntimeError(f"the learner's ranks hold different adapters after {when}: {shown}")


def _overlaps(task: RolloutTask, samples: slice) -> bool:
    """Whether a task holds samples of a rank; a task on the border of two goes to both."""
    return bool(((task.sample_ids >= samples.start) & (task.sample_ids < samples.stop)).any())
