"""Advantages per reward, within the prompt's group, over the scored samples only. Plain numpy in float64.

Letters: K rewards, N samples of the batch, J prompt groups.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learner.config import AdvantageConfig

Floats = NDArray[np.float64]
SCORED = 0
"""State of a cell that holds a score (the reward contract)."""
MIN_RELATIVE_SIGMA = 1e-6
"""Below this share of |μ| + σ_batch scores count as equal: from other batch shapes they differ in the last bit."""
RUNNING_SHARE = 0.9
"""Share of the past in a reward's running σ: about the last ten batches."""
MAX_RATIO = 10.0
"""How far a batch may lie off the running σ and still be believed; ε s is then off by as much, which is little."""


@dataclass(frozen=True)
class Advantages:
    """What one batch's scores say."""

    advantages_KN: Floats
    """NaN where the cell carries no signal."""
    signal_KN: NDArray[np.bool_]
    """m_ki: scored, and its group has signal."""
    running_sigma_K: Floats
    """Each reward's running batch σ, this batch included; NaN before the first batch with two scores."""

    @property
    def counts_K(self) -> NDArray[np.int64]:
        """[K] n_k over the whole batch."""
        counts_K: NDArray[np.int64] = self.signal_KN.sum(1)
        return counts_K


def advantages(
    scores_KN: NDArray[np.float32],
    states_KN: NDArray[np.uint8],
    group_ids: NDArray[np.int64],
    running_sigma_K: Floats,
    config: AdvantageConfig,
) -> Advantages:
    """A = (R − μ)/(σ + ε s) of every scored cell whose group has signal (MARBLE, arXiv 2605.06507; DESIGN 4).

    μ over the group's scored cells, σ of the group or of the batch, s the running batch σ (or 1 for `eps_scale:
    absolute`). Every reward is computed by itself: no cell of another one can change a bit of it.

    Args:
        scores_KN: raw scores; read only where scored.
        states_KN: 0 where scored.
        group_ids: [N] prompt group of each sample.
        running_sigma_K: before this batch; NaN where unknown.
        config: how to divide.

    Raises:
        ValueError: shapes that do not fit, or a scored cell that is not finite.
    """
    _check(scores_KN, states_KN, group_ids)
    scored_KN = states_KN == SCORED
    _, groups_N = np.unique(group_ids, return_inverse=True)
    rows = [
        _one_reward(scores.astype(np.float64), scored, groups_N, float(running), config)
        for scores, scored, running in zip(scores_KN, scored_KN, running_sigma_K, strict=True)
    ]
    advantages_KN = np.stack([row[0] for row in rows])
    return Advantages(advantages_KN, np.isfinite(advantages_KN), np.array([row[1] for row in rows]))


def has_signal(sigma: Floats, mean: Floats, batch_sigma: float, count: NDArray[np.int64]) -> NDArray[np.bool_]:
    """[J] whether groups carry signal: two scored at least and σ > 1e-6 · max(1e-12, |μ| + σ_batch) (DESIGN 4)."""
    return (count >= 2) & (sigma > MIN_RELATIVE_SIGMA * np.maximum(1e-12, np.abs(mean) + batch_sigma))


def running_sigma(previous: float, batch_sigma: float) -> float:
    """A reward's running σ after a batch: the first batch's own, later an exponential mean. NaN means unknown.

    A batch moves it by a factor of `MAX_RATIO` off its own σ at most, so that one absurd score, which ε s would set
    against every later advantage, is forgotten soon. Batches without spread say nothing.
    """
    if not batch_sigma > 0:
        return previous
    if not previous > 0:
        return batch_sigma
    mean = RUNNING_SHARE * previous + (1 - RUNNING_SHARE) * min(batch_sigma, MAX_RATIO * previous)
    return min(mean, MAX_RATIO * batch_sigma)


def _one_reward(
    scores_N: Floats, scored_N: NDArray[np.bool_], groups_N: NDArray[np.int64], previous: float, config: AdvantageConfig
) -> tuple[Floats, float]:
    """[N] advantages of one reward, NaN without signal, and its running σ."""
    values_N = np.where(scored_N, scores_N, 0.0)
    count_J = np.bincount(groups_N, weights=scored_N).astype(np.int64)
    mean_J = np.bincount(groups_N, weights=values_N) / np.maximum(count_J, 1)
    centred_N = np.where(scored_N, values_N - mean_J[groups_N], 0.0)
    sigma_J = np.sqrt(np.bincount(groups_N, weights=centred_N**2) / np.maximum(count_J, 1))
    batch_sigma = float(scores_N[scored_N].std()) if scored_N.sum() >= 2 else float("nan")
    scale = running_sigma(previous, batch_sigma)
    signal_N = scored_N & has_signal(sigma_J, mean_J, batch_sigma, count_J)[groups_N]
    sigma_N = sigma_J[groups_N] if config.std == "group" else np.full_like(scores_N, batch_sigma)
    divisor_N = sigma_N + config.eps * (scale if config.eps_scale == "relative" else 1.0)
    return np.where(signal_N, centred_N / np.where(signal_N, divisor_N, 1.0), np.nan), scale


def _check(scores_KN: NDArray[np.float32], states_KN: NDArray[np.uint8], group_ids: NDArray[np.int64]) -> None:
    if scores_KN.ndim != 2 or scores_KN.shape != states_KN.shape or group_ids.shape != scores_KN.shape[1:]:
        raise ValueError(
            f"scores and states must be [K, N] and group_ids [N], got {list(scores_KN.shape)}, "
            f"{list(states_KN.shape)} and {list(group_ids.shape)}"
        )
    broken = np.argwhere((states_KN == SCORED) & ~np.isfinite(scores_KN))
    if len(broken):
        k, i = broken[0]
        raise ValueError(
            f"{len(broken)} cells are scored but not finite, first reward {k}, sample {i}: {scores_KN[k, i]}"
        )
