"""What a learner is made of before it has trained anything. Letters as in learner.learner."""

from torch.nn.parallel import DistributedDataParallel

from learner.cells import Schedule
from learner.config import LearnerConfig, SamplingConfig
from learner.errors import UserError
from learner.policy import Policy
from learner.sampler import sigmas


def make_schedule(
    config: LearnerConfig, sampling: SamplingConfig, policy: Policy, num_samples: int, world_size: int, seed: int
) -> Schedule:
    """Which timesteps each update trains.

    Raises:
        UserError: more of them than the sampler leaves to train, or fewer samples than ranks.
    """
    levels = sigmas(policy.scheduler_config, sampling.steps)[: config.num_trainable(sampling)]
    wanted = config.timesteps * config.updates_per_iteration
    if wanted > len(levels):
        raise UserError(
            f"learner.timesteps x updates_per_iteration = {wanted}, but {sampling.steps} sampling steps with "
            f"timestep_fraction {config.timestep_fraction} give {len(levels)} trainable timesteps"
        )
    if num_samples < world_size:
        raise UserError(f"{num_samples} samples cannot be split over {world_size} learner ranks")
    return Schedule(seed, levels, config.timesteps, config.micro_batch_size, num_samples, config.kl_fraction)


def across_ranks(policy: Policy, world_size: int) -> DistributedDataParallel | None:
    """The transformer as DDP trains it; None where there is one rank."""
    if world_size == 1:
        return None
    device = policy.device
    return DistributedDataParallel(
        policy.transformer,
        device_ids=[device] if device.type == "cuda" else None,
        find_unused_parameters=False,
        broadcast_buffers=False,
    )
