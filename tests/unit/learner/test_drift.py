"""What the steps between two solves are compared with."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from learner.drift import Drift, staleness
from tests.unit.learner.batches import harmonizer, make_batch, make_learner
from tests.unit.learner.probes import watched


def test_staleness_is_the_angle_between_two_mixes_of_the_same_gradients() -> None:
    """Rows of inactive rewards are not read."""
    gradients = np.random.default_rng(0).normal(size=(4, 50))
    before, solved = np.array([0.5, 9.0, 0.1, 2.0]), np.array([1.0, 0.0, 3.0, 0.2])
    active = np.array([True, False, True, True])
    gramian = gradients @ gradients.T
    gramian[1], gramian[:, 1] = np.nan, np.nan
    a, b = before[active] @ gradients[active], solved[active] @ gradients[active]
    found = staleness(gramian, active, before, solved)
    assert found.cosine == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
    assert found.norm_ratio == pytest.approx(np.linalg.norm(a) / np.linalg.norm(b))
    assert staleness(gramian, active, 3 * solved, solved).norm_ratio == pytest.approx(3)


@pytest.mark.parametrize(
    ("active", "before"),
    [([True, True], None), ([False, False], [1.0, 1.0]), ([True, False], [0.0, 1.0])],
)
def test_staleness_is_unknown_without_a_step_before_or_anything_in_common(
    active: list[bool], before: list[float] | None
) -> None:
    found = staleness(np.eye(2), np.array(active), None if before is None else np.array(before), np.array([1.0, 0.0]))
    assert np.isnan([found.cosine, found.norm_ratio]).all()


def test_the_last_solving_step_is_what_counts() -> None:
    drift = Drift()
    east, north = {"w": torch.tensor([2.0, 0.0])}, {"w": torch.tensor([1.0, 1.0])}
    first = drift.step(east, 2.0, True, np.ones(1))
    assert first.steps_since_solve == -1
    assert math.isnan(first.cosine)
    east["w"].zero_()  # a copy is kept
    for since in (1, 2):
        found = drift.step(north, math.sqrt(2), False, np.ones(1))
        assert found.steps_since_solve == since
        assert found.cosine == pytest.approx(math.sqrt(0.5))
        assert found.norm_ratio == pytest.approx(math.sqrt(0.5))
    assert drift.step(north, math.sqrt(2), True, np.ones(1)).cosine == pytest.approx(math.sqrt(0.5))
    again = drift.step(north, math.sqrt(2), False, np.ones(1))
    assert (again.steps_since_solve, again.cosine) == (1, pytest.approx(1))


def test_a_runs_steps_carry_it(tiny_folder: Path) -> None:
    """Solves at steps 0 and 3; the second one is compared with the amortised step before it."""
    learner = make_learner(tiny_folder, balance=harmonizer())
    seen, patch = watched(learner)
    with patch:
        steps = [step for i in range(2) for step in learner.train(make_batch(learner, i)).steps]
    assert [step.solved for step in steps] == [True, False, False, True]
    assert [step.steps_since_solve for step in steps] == [-1, 1, 2, 3]
    for step, gradient in zip(steps[1:], seen.gradients[1:], strict=True):
        first = seen.gradients[0].double()
        cosine = torch.nn.functional.cosine_similarity(first, gradient.double(), dim=0)
        assert step.solve_cosine == pytest.approx(float(cosine), rel=1e-6)
        assert step.solve_norm_ratio == pytest.approx(step.grad_norm / steps[0].grad_norm)
    assert np.isnan([step.stale_cosine for step in steps[:3]]).all()
    apart = seen.apart[1].gradients_KP.double()
    kept, solved = (torch.as_tensor(step.coefficients_K) @ apart for step in steps[2:])
    assert steps[3].stale_cosine == pytest.approx(float(torch.nn.functional.cosine_similarity(kept, solved, dim=0)))
    assert steps[3].stale_norm_ratio == pytest.approx(float(kept.norm() / solved.norm()))
    assert steps[3].stale_cosine < 1


def test_a_step_not_taken_is_not_counted(tiny_folder: Path) -> None:
    learner = make_learner(tiny_folder, balance=harmonizer())
    learner.train(make_batch(learner, 0))
    before = learner._step.drift.state()
    states = np.full_like(make_batch(learner, 1).states_KN, 2)
    report = learner.train(make_batch(learner, 1, states_KN=states))
    assert not report.applied
    assert {step.steps_since_solve for step in report.steps} == {-1}
    assert learner._step.drift.state() == before
