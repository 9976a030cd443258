"""The learner: one batch of scored rollouts in, optimizer steps, the next rollout policy out.

    TrainBatch -> advantages -> update(s): plan, gradients, step -> old policy -> IterationReport

Plain torch; under DDP every rank is one Learner and all make the same calls.
Letters: K rewards, N samples of the batch, T trained timesteps.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from torch import Tensor

from learner import adapters
from learner.adapters import TRAINED, hash_tensors
from learner.advantages import Advantages, advantages
from learner.algorithm import algorithm
from learner.cells import LocalBatch
from learner.config import LearnerConfig, PolicyConfig, SamplingConfig
from learner.ema import Ema
from learner.errors import CheckpointError, UserError
from learner.forward import OLD, trainable
from learner.inputs import check_shapes, drawn_by
from learner.local_signal import LocalSignals
from learner.objective import Objective
from learner.old_policy import OldPolicies, Published, blended, eta
from learner.optimizer import LoraOptimizer
from learner.policy import Policy
from learner.ranks import Ranks, rank_slice
from learner.setup import across_ranks, make_schedule
from learner.stages import begins
from learner.train_step import TrainStep, Update
from learner.types import AdapterState, HarmonizerClient, IterationReport, StepRecord, TrainBatch

__all__ = ["Learner", "rank_slice"]

STATE_FORMAT = 1
Slot = Literal["default", "old", "ema"]


class Learner:
    """Holds adapters, optimizer, EMA and published policies of one run."""

    def __init__(
        self,
        policy_config: PolicyConfig,
        sampling_config: SamplingConfig,
        learner_config: LearnerConfig,
        reward_names: Sequence[str],
        num_samples: int,
        seed: int,
        harmonizer: HarmonizerClient,
        rank: int = 0,
        world_size: int = 1,
        device: str = "cpu",
        max_staleness: int = 0,
    ) -> None:
        """Load the policy and start at step 0, with `old` equal to `default` and published as version 0.

        Raises:
            UserError: the policy cannot be loaded, or the numbers do not fit together.
        """
        self.ranks = Ranks(rank, world_size)
        self.reward_names = tuple(reward_names)
        self.num_samples = num_samples
        self.config = learner_config
        self.iteration = -1
        self.steps_done = 0
        self._samples = rank_slice(num_samples, rank, world_size)
        self._objective = Objective(learner_config, reward_names)
        self._running_sigma_R = np.full(self._objective.num_rows, np.nan)
        self._stage_began = 0
        """Optimizer steps done when this stage began."""
        self._harmonizer = harmonizer
        self.policy = Policy.load(policy_config, (TRAINED, OLD), device, seed, with_vae=False)
        if learner_config.gradient_checkpointing:
            self.policy.pipeline().transformer.enable_gradient_checkpointing()
        self._algorithm = algorithm(sampling_config, learner_config, seed, self.policy.scheduler_config)
        self._schedule = make_schedule(learner_config, sampling_config, self.policy, num_samples, world_size, seed)
        self._signals = LocalSignals(learner_config, self._objective, self._samples, self.policy.device)
        self._old = OldPolicies(adapters.read(self.policy.transformer, OLD), max_staleness)
        self._loaded_old = self._old.current.hash
        self._optimizer = LoraOptimizer(trainable(self.policy), learner_config)
        self._ema = Ema(self._optimizer.parameters, learner_config.ema_decay)
        forward = self._algorithm.forward(self.policy)
        self._step = TrainStep(
            learner_config,
            self._objective.gradient_names,
            forward,
            self._optimizer,
            self._ema,
            harmonizer,
            self.ranks,
            across_ranks(self.policy, world_size),
        )

    @property
    def policy_version(self) -> int:
        """Version of `old` that the next rollouts draw with."""
        return self._old.current.version

    def rank_slice(self) -> slice:
        """The samples this rank trains on."""
        return self._samples

    def train(self, batch: TrainBatch) -> IterationReport:
        """Train one iteration on a batch; afterwards `old` has moved, if any step was applied.

        Raises:
            UserError: a batch of another shape, another policy or of an iteration already trained; nothing has changed.
            RuntimeError: a hash that does not follow its rule, or ranks that disagree.
        """
        started = time.perf_counter()
        found = self.ranks.together(lambda: self._check(batch))
        local, published = self.ranks.together(lambda: self._local(batch))
        self.ranks.check_equal("the policy that drew the batch", published.hash)
        self._load_old(published)
        before = hash_tensors(adapters.read(self.policy.transformer, TRAINED))
        self._begin_stage(batch.iteration)
        prepared = time.perf_counter()
        old_R, new_R = self._running_sigma_R, found.running_sigma_K
        self._running_sigma_R = self._objective.kept_spread(old_R, new_R, batch.iteration)
        self._step.conflicts, self._step.probe_s = [], 0.0
        records = self._updates(batch.iteration, local, found, before == published.hash)
        stepped = time.perf_counter()
        self.iteration = batch.iteration
        report = self._publish(batch.iteration, records, found, before)
        self.ranks.check_equal("the trained adapter", report.default_hash)
        timings_s = {
            "prepare": prepared - started,
            "steps": stepped - prepared - self._step.probe_s,
            "publish": time.perf_counter() - stepped,
        }
        if self._step.probe_s:
            timings_s["probe"] = self._step.probe_s
        mean = self._objective.weighted_mean(batch, found)
        return replace(report, timings_s=timings_s, conflicts=tuple(self._step.conflicts), weighted_mean=mean)

    def adapter(self, slot: Slot) -> AdapterState:
        """A copy of an adapter, with its hash and the version of `old` it belongs to."""
        if slot == "old":
            tensors: Mapping[str, Tensor] = self._old.current.tensors
        elif slot == "ema":
            tensors = self._ema.tensors()
        else:
            tensors = adapters.read(self.policy.transformer, TRAINED)
        arrays = {key: value.numpy().copy() for key, value in tensors.items()}
        return AdapterState(arrays, self.policy_version, hash_tensors(arrays))

    def state(self) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
        """Everything a resumed run needs, bit for bit: tensor groups, and numbers that fit into JSON."""
        tensors = {
            "default": adapters.read(self.policy.transformer, TRAINED),
            "ema": self._ema.tensors(),
            "optimizer": self._optimizer.tensors(),
            "drift": self._step.drift.tensors(),
            **self._old.tensors(),
        }
        probe = self._step.probe.state()
        if probe is not None:
            tensors["probe"] = self._step.probe.tensors()
        state = {
            "format": STATE_FORMAT,
            "iteration": self.iteration,
            "steps_done": self.steps_done,
            "reward_names": list(self.reward_names),
            "running_sigma_K": [None if np.isnan(sigma) else float(sigma) for sigma in self._running_sigma_R],
            "stage_began": self._stage_began,
            "probe": probe,
            "old": self._old.state(),
            "drift": self._step.drift.state(),
            "amortized_norm": None if np.isnan(self._step.amortized_norm) else self._step.amortized_norm,
        }
        return tensors, state

    def load_state(self, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> None:
        """Continue from what :meth:`state` gave.

        Raises:
            CheckpointError: a part is missing or of another run.
        """
        try:
            self._load_state(tensors, state)
        except CheckpointError:
            raise
        except (LookupError, TypeError, AttributeError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"the learner's state is of another run or broken: {error}") from error

    def _load_state(self, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> None:
        olds = [f"old.{index}" for index in range(len(state.get("old", ())))]
        # States of before there was a drift have none: it starts anew, as in a run's first step.
        drift = ["drift"] if "drift" in state else []
        probe = state.get("probe")
        parts = ("default", "ema", "optimizer", *drift, *olds, *(["probe"] if probe else []))
        missing = [group for group in parts if group not in tensors]
        if missing or not olds:
            raise CheckpointError(f"the learner's state lacks {', '.join(missing) or 'the old policy'}")
        if state.get("format") != STATE_FORMAT or tuple(state["reward_names"]) != self.reward_names:
            raise CheckpointError(
                f"the learner's state has format {state.get('format')} and rewards {', '.join(state['reward_names'])}; "
                f"this run has format {STATE_FORMAT} and rewards {', '.join(self.reward_names)}"
            )
        adapters.write(self.policy.transformer, TRAINED, tensors["default"])
        self._ema.load(tensors["ema"])
        self._optimizer.load(tensors["optimizer"])
        self._old.load(tensors, state["old"])
        if drift:
            self._step.drift.load(tensors["drift"], state["drift"], self.policy.device)
        self._step.probe.load(tensors.get("probe", {}), probe, self.policy.device)
        self.iteration, self.steps_done = int(state["iteration"]), int(state["steps_done"])
        self._stage_began = int(state.get("stage_began", 0))
        norm = state.get("amortized_norm")
        self._step.amortized_norm = float("nan") if norm is None else float(norm)
        sigmas = [np.nan if sigma is None else float(sigma) for sigma in state["running_sigma_K"]]
        if len(sigmas) != self._objective.num_rows:
            raise ValueError(f"running_sigma_K has {len(sigmas)} entries, expected {self._objective.num_rows}")
        self._running_sigma_R = np.array(sigmas, dtype=np.float64)

    def _check(self, batch: TrainBatch) -> Advantages:
        check_shapes(batch, self.reward_names, self.num_samples)
        if batch.iteration <= self.iteration:
            raise UserError(f"iteration {batch.iteration} was trained already; the last one is {self.iteration}")
        running_R = self._running_sigma_R
        if begins(self.config.stages, batch.iteration):
            running_R = self._objective.forget_spread(running_R)
        return advantages(*self._objective.rows(batch), batch.group_ids, running_R, self.config.advantage)

    def _begin_stage(self, iteration: int) -> None:
        """What of the last stage's gradients is forgotten: see learner.config.StageConfig."""
        if begins(self.config.stages, iteration):
            self._optimizer.reset()
            self._step.forget()
            self.ranks.from_first(self._harmonizer.reset)
            self._stage_began = self.steps_done

    def _local(self, batch: TrainBatch) -> tuple[LocalBatch, Published]:
        published = self._old.find(*drawn_by(batch.latents, batch.iteration))
        return self._algorithm.local(batch, self._samples, self.policy), published

    def _load_old(self, published: Published) -> None:
        if self._loaded_old != published.hash:
            adapters.write(self.policy.transformer, OLD, published.tensors)
            self._loaded_old = published.hash

    def _updates(self, iteration: int, local: LocalBatch, found: Advantages, on_policy: bool) -> list[StepRecord]:
        signal, records = self._signals.trained(found, iteration), []
        for index in range(self.config.updates_per_iteration):
            cells = self._algorithm.cells(local, self._schedule, index)
            num_cells = self.num_samples * self.config.timesteps
            probe = self._signals.measured(found, iteration, index)
            record = self._step.run(Update(self.steps_done, iteration, cells, num_cells, signal, on_policy, probe))
            self.steps_done += record.applied
            on_policy = on_policy and not record.applied
            records.append(record)
        return records

    def _publish(
        self, iteration: int, records: Sequence[StepRecord], found: Advantages, before: str
    ) -> IterationReport:
        """Move `old` along its schedule when a step was applied, and hold both hashes against their rules."""
        applied = any(record.applied for record in records)
        default = adapters.read(self.policy.transformer, TRAINED)
        default_hash, rate = hash_tensors(default), eta(self.steps_done - self._stage_began, self.config.old_policy)
        if (default_hash != before) != (applied and self.config.lr > 0):
            changed = "changed" if default_hash != before else "did not change"
            raise RuntimeError(
                f"iteration {iteration}: the trained adapter {changed}, "
                f"but a step was {'applied' if applied else 'not applied'} with lr {self.config.lr}"
            )
        if applied:
            self._old.publish(blended(self._old.current.tensors, default, rate))
        num_rewards = len(self.reward_names)
        return IterationReport(
            iteration=iteration,
            steps=tuple(records),
            advantages_KN=found.advantages_KN[:num_rewards],
            signal_KN=found.signal_KN[:num_rewards],
            applied=applied,
            default_hash=default_hash,
            old_hash=self._old.current.hash,
            policy_version=self.policy_version,
            eta=rate,
        )
