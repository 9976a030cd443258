"""Rollout tasks: chunks of fixed shape, so that images do not depend on how many actors draw them.

Letters: N samples, G images per prompt.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from actors.prompts import Prompt
from learner.types import Purpose, RolloutTask


def training_samples(groups: Sequence[Prompt], group_size: int) -> tuple[Prompt, ...]:
    """[N] the prompt of each sample: sample g·G + j is image j of group g."""
    return tuple(prompt for prompt in groups for _ in range(group_size))


def group_ids(num_groups: int, group_size: int) -> NDArray[np.int64]:
    """[N] the group of each sample, by position: two groups may share a text, never an id."""
    return np.repeat(np.arange(num_groups, dtype=np.int64), group_size)


def make_tasks(
    purpose: Purpose, iteration: int, seed: int, prompts: Sequence[Prompt], chunk_size: int
) -> tuple[RolloutTask, ...]:
    """Samples 0 … N−1 in tasks of `chunk_size`; only the last may be smaller."""
    return tuple(
        RolloutTask(
            purpose=purpose,
            iteration=iteration,
            seed=seed,
            sample_ids=np.arange(start, min(start + chunk_size, len(prompts)), dtype=np.int64),
            prompts=tuple(prompt.text for prompt in prompts[start : start + chunk_size]),
        )
        for start in range(0, len(prompts), chunk_size)
    )
