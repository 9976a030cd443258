"""The weighted mean, and which rows become gradients (FAULTS 8: a failure is masked, never a number)."""

import numpy as np
import pytest

from learner.advantages import advantages
from learner.config import AdvantageConfig, LearnerConfig, StageConfig
from learner.objective import Objective, weighted_mean
from learner.types import TrainBatch

NAN = np.nan
SCORES_KN = np.array([[1.0, 2.0, NAN, NAN, 4.0], [10.0, NAN, 30.0, NAN, NAN]], np.float32)
STATES_KN = np.array([[0, 0, 1, 1, 0], [0, 1, 0, 1, 2]], np.uint8)
"""Both; the first alone; the second alone; neither; one failed."""


def test_by_hand() -> None:
    mean_N, states_N = weighted_mean(SCORES_KN, STATES_KN, np.array([3.0, 1.0]))
    np.testing.assert_array_equal(states_N, [0, 0, 0, 1, 2])
    np.testing.assert_allclose(mean_N, [(3 * 1 + 10) / 4, 2.0, 30.0, NAN, NAN], rtol=1e-7)


def test_a_reward_of_weight_zero_is_not_read() -> None:
    """Not even its failures: it is no part of the mean."""
    mean_N, states_N = weighted_mean(SCORES_KN, STATES_KN, np.array([2.0, 0.0]))
    np.testing.assert_array_equal(states_N, [0, 0, 1, 1, 0])
    np.testing.assert_allclose(mean_N, [1.0, 2.0, NAN, NAN, 4.0], rtol=1e-7)


def batch(iteration: int) -> TrainBatch:
    return TrainBatch(iteration, ("p",) * 5, np.zeros(5, np.int64), SCORES_KN, STATES_KN, ())


def test_rows_of_a_weighted_sum_and_its_stages() -> None:
    stages = (StageConfig(rewards=("a",), iterations=1), StageConfig(rewards=("a", "b"), iterations=1))
    objective = Objective(LearnerConfig(objective="weighted_sum", stages=stages), ("a", "b"))
    assert (objective.num_rows, objective.gradient_names) == (3, ("weighted_sum",))
    scores_RN, states_RN = objective.rows(batch(0))
    np.testing.assert_array_equal(scores_RN[:2], SCORES_KN)
    np.testing.assert_array_equal(scores_RN[2], SCORES_KN[0])
    np.testing.assert_array_equal(states_RN[2], STATES_KN[0])
    np.testing.assert_allclose(objective.rows(batch(1))[0][2, :3], [5.5, 2.0, 30.0])
    np.testing.assert_array_equal(objective.forget_spread(np.array([1.0, 2.0, 3.0])), [1.0, 2.0, NAN])


def test_stages_mask_gradients_and_leave_the_rest_of_the_report() -> None:
    stages = (StageConfig(rewards=("b",), iterations=1), StageConfig(rewards=("a", "b"), iterations=1))
    objective = Objective(LearnerConfig(stages=stages), ("a", "b"))
    found = advantages(SCORES_KN, STATES_KN, np.zeros(5, np.int64), np.full(2, NAN), AdvantageConfig())
    first, second = objective.trained(0, found), objective.trained(1, found)
    assert objective.trained_rows == slice(2)
    np.testing.assert_array_equal(first.signal_JN.sum(1), [0, 2])
    np.testing.assert_array_equal(second.signal_JN, found.signal_KN)
    assert objective.weighted_mean(batch(0), found) is None


@pytest.mark.parametrize(
    ("learner", "told"),
    [
        ({"objective": "weighted_sum", "weights": {"a": 1.0}}, "learner.weights must give a weight to each of a, b"),
        ({"stages": [{"rewards": ["c"], "iterations": 1}]}, "learner.stages.0.rewards names c; rewards are a, b"),
        (
            {
                "objective": "weighted_sum",
                "weights": {"a": 1.0, "b": 0.0},
                "stages": [{"rewards": ["a"], "iterations": 1}, {"rewards": ["b"], "iterations": 1}],
            },
            "learner.weights leaves no weight to the rewards of learner.stages.1",
        ),
    ],
)
def test_what_does_not_fit_the_rewards_is_told(learner: dict[str, object], told: str) -> None:
    [line] = LearnerConfig.model_validate(learner).check_names(("a", "b"))
    assert line.startswith(told)


def test_a_reward_of_the_sums_name_would_share_its_columns() -> None:
    [line] = LearnerConfig(objective="weighted_sum").check_names(("a", "weighted_sum"))
    assert line.startswith("rewards.weighted_sum is called as objective weighted_sum calls its sum")
    assert LearnerConfig().check_names(("a", "weighted_sum")) == []
