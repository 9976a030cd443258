"""What DiffusionNFT and Flow-GRPO do each in their own way; the learner does the rest alike for both.

Letters: N samples of this rank, W steps with noise, C, h, w latent channels and size.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

from torch import Tensor

from learner.cells import Cells, LocalBatch, Schedule, micro_batches
from learner.config import LearnerConfig, SamplingConfig, SdeConfig
from learner.errors import UserError
from learner.flow_grpo import StepForward, step_cells
from learner.forward import Forward
from learner.inputs import gather, local_batch
from learner.policy import Policy
from learner.sampler import sigmas
from learner.sde import transitions, window
from learner.types import TrainBatch


class Algorithm(Protocol):
    """From a batch to the cells of an update, and how those are forwarded."""

    def forward(self, policy: Policy) -> Forward: ...

    def local(self, batch: TrainBatch, samples: slice, policy: Policy) -> LocalBatch:
        """This rank's part of a batch.

        Raises:
            UserError: it lacks something, or has another shape.
        """

    def cells(self, batch: LocalBatch, schedule: Schedule, update: int) -> Sequence[Cells]:
        """Micro-batches of one update."""


@dataclass(frozen=True)
class Nft:
    """Noises the clean latents anew."""

    config: LearnerConfig

    def forward(self, policy: Policy) -> Forward:
        """Also of v_old."""
        return Forward(policy, self.config.nft_beta, self.config.kl_beta > 0, self.config.autocast)

    def local(self, batch: TrainBatch, samples: slice, policy: Policy) -> LocalBatch:
        """As :func:`learner.inputs.local_batch`."""
        return local_batch(batch, samples, policy)

    def cells(self, batch: LocalBatch, schedule: Schedule, update: int) -> Sequence[Cells]:
        """As :func:`learner.cells.micro_batches`."""
        return micro_batches(batch, schedule, update)


@dataclass(frozen=True)
class TrajectoryBatch(LocalBatch):
    """This rank's samples with the steps that drew them."""

    x_NWChw: Tensor
    """[N, W + 1, C, h, w]"""
    log_densities_NW: Tensor
    noisy: range
    """Which steps of the rollout these are."""


@dataclass(frozen=True)
class FlowGrpo:
    """Trains the very steps that the rollouts took."""

    config: LearnerConfig
    sampling: SamplingConfig
    sde: SdeConfig
    seed: int
    sigmas_S1: Tensor

    def forward(self, policy: Policy) -> Forward:
        """Guided as the rollouts were."""
        config = self.config
        return StepForward(policy, config.clip_range, self.sampling.guidance_scale, config.kl_beta > 0, config.autocast)

    def local(self, batch: TrainBatch, samples: slice, policy: Policy) -> TrajectoryBatch:
        """With the trajectories, which must be of this iteration's steps."""
        noisy = window(self.seed, batch.iteration, self.sampling)
        found = [part.trajectory for part in batch.latents]
        there = [trajectory for trajectory in found if trajectory is not None]
        if len(there) < len(found):
            raise UserError(
                f"iteration {batch.iteration}: {len(found) - len(there)} of {len(found)} rollouts came without their "
                "trajectory, which flow_grpo trains on; they were drawn without sampling.sde"
            )
        local = local_batch(batch, samples, policy)
        shape = (len(noisy) + 1, *policy.latent_shape)
        x_NWChw = gather(batch, samples, [t.x_NWChw for t in there], shape, "trajectories")
        densities = [t.log_densities_NW for t in there]
        log_densities_NW = gather(batch, samples, densities, (len(noisy),), "log densities")
        return TrajectoryBatch(
            **{field.name: getattr(local, field.name) for field in fields(LocalBatch)},
            x_NWChw=x_NWChw.to(policy.device),
            log_densities_NW=log_densities_NW.to(policy.device),
            noisy=noisy,
        )

    def cells(self, batch: LocalBatch, schedule: Schedule, update: int) -> Sequence[Cells]:
        """As :func:`learner.flow_grpo.step_cells`, of the first steps with noise that the schedule trains."""
        assert isinstance(batch, TrajectoryBatch)
        trained = slice(batch.noisy.start, batch.noisy.start + len(schedule.sigmas))
        steps = transitions(self.sigmas_S1, self.sde.noise_level, batch.noisy).at(trained).to(batch.x_NWChw.device)
        schedule = replace(schedule, sigmas=self.sigmas_S1[trained])
        return step_cells(batch, schedule, update, batch.x_NWChw, batch.log_densities_NW, steps)


def algorithm(
    sampling: SamplingConfig, config: LearnerConfig, seed: int, scheduler_config: Mapping[str, Any]
) -> Algorithm:
    """What the recipe asks for.

    Raises:
        UserError: flow_grpo without an SDE, or an SDE without flow_grpo.
    """
    problem = config.sde_problem(sampling)
    if problem:
        raise UserError(problem)
    if sampling.sde is None:
        return Nft(config)
    return FlowGrpo(config, sampling, sampling.sde, seed, sigmas(scheduler_config, sampling.steps))
