"""Learners and batches of Flow-GRPO for tests, on the tiny SD3 pipeline: rollouts drawn by the learner's own `old`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harmonizer.config import HarmonizerConfig
from harmonizer.harmonizer import Harmonizer
from learner import adapters
from learner.config import LearnerConfig, SamplingConfig, SdeConfig
from learner.learner import Learner
from learner.noise import initial_noise
from learner.sampler import guided, sigmas
from learner.sde import sde, step_noise, transitions, window
from learner.types import HarmonizerClient, Latents, RolloutTask, TrainBatch, Trajectory
from tests.unit.learner.batches import GROUP_SIZE, NUM_SAMPLES, PROMPTS, REWARDS, SEED, policy_config, scores

STEPS = 6
NOISE_LEVEL = 0.7


def sampling(**changes: Any) -> SamplingConfig:
    return SamplingConfig(**{"steps": STEPS, "sde": SdeConfig(noise_level=NOISE_LEVEL), **changes})


def config(**changes: Any) -> LearnerConfig:
    """Two updates: the first is on-policy, the second is not."""
    return LearnerConfig(
        **{
            "algorithm": "flow_grpo",
            "lr": 1e-3,
            "timesteps": 2,
            "updates_per_iteration": 2,
            "micro_batch_size": 24,
            "kl_beta": 1e-2,
            "clip_range": 0.05,
            "old_policy": {"slope": 0.0},
            **changes,
        }
    )


def make_learner(
    folder: Path,
    rewards: Sequence[str] = REWARDS,
    rank: int = 0,
    world_size: int = 1,
    balance: HarmonizerClient | None = None,
    how: SamplingConfig | None = None,
    **changes: Any,
) -> Learner:
    """A learner whose numbers are `config` with changes."""
    client = balance or Harmonizer(rewards, HarmonizerConfig(refresh={"policy": "every_n", "n": 3}))
    return Learner(
        policy_config(folder),
        how or sampling(),
        config(**changes),
        rewards,
        NUM_SAMPLES,
        SEED,
        client,
        rank,
        world_size,
    )


@torch.no_grad()
def drawn(learner: Learner, iteration: int, ids: Sequence[int], how: SamplingConfig) -> Latents:
    """One rollout task of these samples by the learner's current `old`, without its images."""
    policy, old = learner.policy, learner.adapter("old")
    learner._load_old(learner._old.current)  # as a push would; the learner itself does so when the batch is there
    task = RolloutTask("train", iteration, SEED, np.array(ids), tuple(PROMPTS[i // GROUP_SIZE] for i in ids))
    noisy, levels = window(SEED, iteration, how), sigmas(policy.scheduler_config, how.steps)
    assert how.sde is not None
    steps = transitions(levels, how.sde.noise_level, noisy)
    with adapters.using(policy.transformer, "old"):
        x0, latents, densities = sde(
            guided(policy, policy.encode(task.prompts), how.guidance_scale),
            initial_noise(task, policy.latent_shape),
            levels,
            steps,
            noisy,
            lambda step: step_noise(task, step, policy.latent_shape),
        )
    trajectory = Trajectory(latents.numpy(), densities.numpy())
    return Latents(x0.numpy(), task.sample_ids, old.policy_version, old.hash, trajectory)


def make_batch(learner: Learner, iteration: int, how: SamplingConfig | None = None, **changes: Any) -> TrainBatch:
    """Rollouts in tasks of one group, with the scores of the NFT tests."""
    starts = range(0, NUM_SAMPLES, GROUP_SIZE)
    latents = tuple(drawn(learner, iteration, range(s, s + GROUP_SIZE), how or sampling()) for s in starts)
    scores_KN, states_KN = scores(iteration)
    count = len(learner.reward_names)
    return TrainBatch(
        **{
            "iteration": iteration,
            "prompts": tuple(PROMPTS[i // GROUP_SIZE] for i in range(NUM_SAMPLES)),
            "group_ids": np.arange(NUM_SAMPLES) // GROUP_SIZE,
            "scores_KN": scores_KN[:count],
            "states_KN": states_KN[:count],
            "latents": latents,
            **changes,
        }
    )
