"""Learners and batches for tests, on the tiny SD3 pipeline."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from harmonizer.config import HarmonizerConfig
from harmonizer.harmonizer import Harmonizer
from learner import adapters
from learner.config import LearnerConfig, LoraConfig, PolicyConfig, SamplingConfig
from learner.learner import Learner
from learner.noise import generator
from learner.types import Latents, TrainBatch
from tests.unit.learner.tiny_sd3 import LATENT_SHAPE, RESOLUTION

REWARDS = ("clip", "ocr", "geneval")
NUM_SAMPLES, GROUP_SIZE, SEED = 12, 4, 5
PROMPTS = ("a red sign", "two cats", 'sign "ab"')


def policy_config(folder: Path, **changes: Any) -> PolicyConfig:
    """Rank 4, alpha 6 (so that alpha / rank is not 1)."""
    return PolicyConfig(
        **{
            "base": str(folder),
            "resolution": RESOLUTION,
            "max_sequence_length": 0,
            "lora": LoraConfig(rank=4, alpha=6.0),
            **changes,
        }
    )


def learner_config(**changes: Any) -> LearnerConfig:
    return LearnerConfig(
        **{
            "lr": 1e-3,
            "timesteps": 2,
            "updates_per_iteration": 2,
            "micro_batch_size": 24,
            "kl_beta": 1e-2,
            "nft_beta": 0.5,
            **changes,
        }
    )


def harmonizer(**changes: Any) -> Harmonizer:
    return Harmonizer(REWARDS, HarmonizerConfig(**{"refresh": {"policy": "every_n", "n": 3}, **changes}))


def make_learner(
    folder: Path,
    rank: int = 0,
    world_size: int = 1,
    max_staleness: int = 0,
    policy: dict[str, Any] | None = None,
    balance: Harmonizer | None = None,
    **changes: Any,
) -> Learner:
    """A learner whose numbers are `learner_config` with changes."""
    return Learner(
        policy_config(folder, **(policy or {})),
        SamplingConfig(steps=5),
        learner_config(**changes),
        REWARDS,
        NUM_SAMPLES,
        SEED,
        balance or harmonizer(),
        rank,
        world_size,
        "cpu",
        max_staleness,
    )


def randomize(learner: Learner, seed: int = 1, slots: tuple[str, ...] = ("default", "old")) -> None:
    """Random lora_B, different per slot; `old` is published as it then is."""
    for offset, slot in enumerate(slots):
        tensors = adapters.read(learner.policy.transformer, slot)
        draws = generator(seed + offset)
        for key, value in tensors.items():
            if ".lora_B." in key:
                value.normal_(std=0.1, generator=draws)
        adapters.write(learner.policy.transformer, slot, tensors)
    if "old" in slots:
        learner._old.publish(adapters.read(learner.policy.transformer, "old"))
        learner._loaded_old = learner._old.current.hash


def scores(iteration: int, share_missing: float = 0.2) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """[K, N] scores of unlike scales and states; missing cells hold NaN."""
    draws = np.random.default_rng((7, iteration))
    values_KN = draws.normal(size=(len(REWARDS), NUM_SAMPLES)) * np.array([[0.01], [1.0], [30.0]])
    states_KN = np.where(draws.random(values_KN.shape) < share_missing, draws.integers(1, 3, values_KN.shape), 0)
    return np.where(states_KN == 0, values_KN, np.nan).astype(np.float32), states_KN.astype(np.uint8)


def make_batch(learner: Learner, iteration: int, **changes: Any) -> TrainBatch:
    """Synthetic latents in tasks of one group, signed by the learner's current `old`."""
    old = learner.adapter("old")
    draws = torch.Generator().manual_seed(100 + iteration)
    x0 = torch.randn(NUM_SAMPLES, *LATENT_SHAPE, generator=draws).numpy()
    starts = range(0, NUM_SAMPLES, GROUP_SIZE)
    latents = tuple(
        Latents(x0[s : s + GROUP_SIZE], np.arange(s, s + GROUP_SIZE), old.policy_version, old.hash) for s in starts
    )
    scores_KN, states_KN = scores(iteration)
    return TrainBatch(
        **{
            "iteration": iteration,
            "prompts": tuple(PROMPTS[i // GROUP_SIZE] for i in range(NUM_SAMPLES)),
            "group_ids": np.arange(NUM_SAMPLES) // GROUP_SIZE,
            "scores_KN": scores_KN,
            "states_KN": states_KN,
            "latents": latents,
            **changes,
        }
    )
