"""One DDP rank of the learner in a process of its own."""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from actors.config import LearnerGroupConfig
from actors.process import Started, device_of
from actors.results import ActorVitals
from learner.config import LearnerConfig, PolicyConfig, SamplingConfig
from learner.types import AdapterState, HarmonizerClient, IterationReport, Latents, TrainBatch


@dataclass(frozen=True)
class LearnerSpec:
    """What one learner rank is made from."""

    name: str
    role: LearnerGroupConfig
    policy: PolicyConfig
    sampling: SamplingConfig
    learner: LearnerConfig
    reward_names: tuple[str, ...]
    num_samples: int
    seed: int
    max_staleness: int
    rank: int


@dataclass(frozen=True)
class LearnerReady:
    """What a rank says once it is up."""

    rank: int
    samples: slice
    """Which samples of every batch are this rank's."""
    num_tensors: int
    """LoRA tensors of one adapter: 2 per target module."""
    default_hash: str
    old_hash: str
    policy_version: int
    vitals: ActorVitals


@dataclass(frozen=True)
class RankDone:
    """What ranks beside 0 say of an iteration: enough to see that they did not drift apart."""

    default_hash: str
    old_hash: str


KEPT_SNAPSHOTS = 2
"""A run that is asked to stop while an iteration ends may want the state before it or after it."""


class LearnerWorker:
    """A :class:`learner.learner.Learner` and its place in the process group.

    Rank 0 keeps a copy of its state as it stood between iterations, so that a checkpoint can be written at any moment,
    also while a step is under way.
    """

    MAX_CONCURRENCY = 2
    """One call that trains, and one that saves."""

    def __init__(self, spec: LearnerSpec, harmonizer: HarmonizerClient) -> None:
        self._spec, self._harmonizer = spec, harmonizer
        self._started = Started(f"learner rank {spec.rank}", spec.name, spec.role.threads)
        self._learner: Any = None
        self._snapshots: dict[int, Any] = {}
        """Iterations done -> what Learner.state() gave."""

    def free_address(self) -> str:
        """An address on this node at which rank 0 can be met; a fresh port each time, so that no old group lingers."""
        import ray.util

        util: Any = ray.util  # has no types
        with socket.socket() as probe:
            probe.bind(("", 0))
            return f"tcp://{util.get_node_ip_address()}:{probe.getsockname()[1]}"

    def start(self, address: str) -> ActorVitals:
        """Joins the process group and loads the learner.

        Raises:
            PolicyError: the base cannot be loaded.
        """
        with self._started:
            from learner.learner import Learner

            self._join(address)
            spec = self._spec
            self._learner = Learner(
                spec.policy,
                spec.sampling,
                spec.learner,
                spec.reward_names,
                spec.num_samples,
                spec.seed,
                self._harmonizer,
                rank=spec.rank,
                world_size=spec.role.replicas,
                device=device_of(spec.role),
                max_staleness=spec.max_staleness,
            )
        return self._started.vitals

    def _join(self, address: str) -> None:
        role = self._spec.role
        if role.replicas == 1:
            return
        import torch.distributed

        backend = ("nccl" if role.num_gpus else "gloo") if role.backend == "auto" else role.backend
        torch.distributed.init_process_group(
            backend,
            init_method=address,
            rank=self._spec.rank,
            world_size=role.replicas,
            timeout=timedelta(seconds=role.timeout_s),
        )

    def load(self, checkpoint: str | None) -> LearnerReady:
        """Takes up a checkpoint (None: a fresh start) and says where this rank stands.

        Raises:
            CheckpointError: it is not whole, or of another run.
        """
        if checkpoint is not None:
            from learner import checkpoint as checkpoints

            tensors, state = checkpoints.load(Path(checkpoint))
            self._learner.load_state(tensors, state["learner"])
        self._keep_snapshot()
        from learner.learner import rank_slice

        default, old = self._learner.adapter("default"), self._learner.adapter("old")
        spec = self._spec
        return LearnerReady(
            rank=spec.rank,
            samples=rank_slice(spec.num_samples, spec.rank, spec.role.replicas),
            num_tensors=len(old.tensors),
            default_hash=default.hash,
            old_hash=old.hash,
            policy_version=old.policy_version,
            vitals=self._started.vitals,
        )

    def train(self, batch: TrainBatch, *latents: Latents) -> IterationReport | RankDone:
        """One iteration; rank 0 reports, the others confirm."""
        report: IterationReport = self._learner.train(replace(batch, latents=latents))
        self._keep_snapshot()
        return report if self._spec.rank == 0 else RankDone(report.default_hash, report.old_hash)

    def _keep_snapshot(self) -> None:
        if self._spec.rank == 0:
            self._snapshots[self._learner.iteration + 1] = self._learner.state()
            self._snapshots.pop(self._learner.iteration + 1 - KEPT_SNAPSHOTS, None)

    def adapter(self, slot: str) -> AdapterState:
        """One of default, old, ema, ready to be sent."""
        state: AdapterState = self._learner.adapter(slot)
        return state

    def save(self, root: str, iterations_done: int, extra: Mapping[str, Any]) -> str:
        """Writes a checkpoint with the LoRA of the EMA beside it; returns its folder.

        Args:
            iterations_done: one of the last KEPT_SNAPSHOTS states between iterations.
            extra: what the controller wants to find again: goes into the state next to the learner's.
        """
        from learner import checkpoint as checkpoints
        from learner.export import LoraExport

        tensors, state = self._snapshots[iterations_done]
        policy = self._spec.policy
        # A machine's path says nothing elsewhere, and would make equal runs differ.
        base = Path(policy.base).name if Path(policy.base).exists() else policy.base
        record = {"base": base, "max_sequence_length": str(policy.max_sequence_length)}
        lora = LoraExport(tensors["ema"], policy.lora, record)
        return str(checkpoints.save(Path(root), iterations_done, tensors, {"learner": state, **extra}, lora))

    def prune(self, root: str, keep_last: int, best: Sequence[str]) -> None:
        """Deletes all checkpoints but the last and the best."""
        from learner import checkpoint as checkpoints

        checkpoints.prune(Path(root), keep_last, [Path(kept) for kept in best])

    def vitals(self) -> ActorVitals:
        """As of now."""
        return self._started.vitals
