"""From K rewards to the rows that become gradients: each reward's own, or their weighted mean's.

Letters: K rewards, N samples of the batch, R rows: the K rewards, and after them the weighted mean where it is trained.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learner.advantages import SCORED, Advantages
from learner.config import WEIGHTED_SUM, LearnerConfig
from learner.signals import advantage_correlation
from learner.stages import stage_of
from learner.types import TrainBatch, WeightedMean

NOT_APPLICABLE, FAILED = 1, 2
"""States of the reward contract."""


def weighted_mean(
    scores_KN: NDArray[np.float32], states_KN: NDArray[np.uint8], weights_K: NDArray[np.float64]
) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """[N] R̄_i = Σ_{k scored} w_k R_ki / Σ_{k scored} w_k, and its states (DESIGN 7, the weighted-sum baseline).

    A failed cell masks the sample, for a mean without it would be of other rewards than its group's; a not-applicable
    one only leaves the mean. Where nothing is left of it the mean is not applicable. Rewards of weight 0 are not read.
    """
    used_K = weights_K > 0
    scores_KN, states_KN, weights_K1 = scores_KN[used_K], states_KN[used_K], weights_K[used_K, None]
    scored_KN = states_KN == SCORED
    shares_N = (weights_K1 * scored_KN).sum(0)
    total_N = (weights_K1 * np.where(scored_KN, scores_KN.astype(np.float64), 0.0)).sum(0)
    failed_N = (states_KN == FAILED).any(0)
    good_N = ~failed_N & (shares_N > 0)
    mean_N = np.where(good_N, total_N / np.where(good_N, shares_N, 1.0), np.nan)
    states_N = np.where(failed_N, FAILED, np.where(good_N, SCORED, NOT_APPLICABLE))
    return mean_N.astype(np.float32), states_N.astype(np.uint8)


@dataclass(frozen=True)
class TrainedRows:
    """The J rows of one iteration that become gradients."""

    advantages_JN: NDArray[np.float64]
    signal_JN: NDArray[np.bool_]
    """Where each of them is trained: has signal, and is of the stage."""
    correlation: tuple[NDArray[np.float64], NDArray[np.intp]]
    """:func:`learner.signals.advantage_correlation` of them."""


class Objective:
    """What is trained, iteration by iteration."""

    def __init__(self, config: LearnerConfig, reward_names: Sequence[str]) -> None:
        self.reward_names = tuple(reward_names)
        self.gradient_names = config.gradient_names(reward_names)
        self.summed = config.objective == WEIGHTED_SUM
        self._config = config

    @property
    def num_rows(self) -> int:
        """R."""
        return len(self.reward_names) + self.summed

    def rows(self, batch: TrainBatch) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
        """[R, N] scores and states of a batch."""
        if not self.summed:
            return batch.scores_KN, batch.states_KN
        scores_N, states_N = weighted_mean(batch.scores_KN, batch.states_KN, self._weights_K(batch.iteration))
        return np.vstack([batch.scores_KN, scores_N]), np.vstack([batch.states_KN, states_N])

    def weighted_mean(self, batch: TrainBatch, found: Advantages) -> WeightedMean | None:
        """The last row of a batch, for the ledger; None where rewards are not added up."""
        if not self.summed:
            return None
        scores_RN, states_RN = self.rows(batch)
        return WeightedMean(scores_RN[-1], states_RN[-1], found.advantages_KN[-1])

    @property
    def trained_rows(self) -> slice:
        """Which rows of R become gradients, as far as they are of the stage."""
        num_rewards = len(self.reward_names)
        return slice(num_rewards, None) if self.summed else slice(num_rewards)

    def trained(self, iteration: int, found: Advantages) -> TrainedRows:
        """The rows that become gradients."""
        signal_JN, advantages_JN = found.signal_KN[self.trained_rows], found.advantages_KN[self.trained_rows]
        if not self.summed:
            signal_JN = signal_JN & self._in_stage_K(iteration)[:, None]
        return TrainedRows(advantages_JN, signal_JN, advantage_correlation(advantages_JN, signal_JN))

    def forget_spread(self, running_sigma_R: NDArray[np.float64]) -> NDArray[np.float64]:
        """[R] running σ as a new stage begins: its weighted mean is of other rewards, each reward's own stays."""
        kept_R = running_sigma_R.copy()
        kept_R[len(self.reward_names) :] = np.nan
        return kept_R

    def kept_spread(
        self, old_R: NDArray[np.float64], new_R: NDArray[np.float64], iteration: int
    ) -> NDArray[np.float64]:
        """[R] running σ after an iteration: a reward outside its stage keeps the old one, measured beside it or not."""
        outside_K = ~self._in_stage_K(iteration)
        kept_R = new_R.copy()
        kept_R[: len(outside_K)][outside_K] = old_R[: len(outside_K)][outside_K]
        return kept_R

    def _in_stage_K(self, iteration: int) -> NDArray[np.bool_]:
        stage = stage_of(self._config.stages, iteration)
        return np.array([stage is None or name in stage.rewards for name in self.reward_names])

    def _weights_K(self, iteration: int) -> NDArray[np.float64]:
        given = self._config.weights
        weights_K = np.array([1.0 if given is None else given[name] for name in self.reward_names])
        return np.where(self._in_stage_K(iteration), weights_K, 0.0)
