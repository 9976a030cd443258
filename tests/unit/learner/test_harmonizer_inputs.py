"""What the learner hands to the harmonizer on each step, and that a resumed one hands over the same."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from harmonizer.config import HarmonizerConfig
from harmonizer.harmonizer import Harmonizer, Plan, Signals, Solution
from learner import checkpoint
from tests.unit.learner.batches import REWARDS, make_batch, make_learner, randomize
from tests.unit.learner.probes import kl_row, watched


class Recorder(Harmonizer):
    """Keeps what it was asked."""

    def __init__(self, **changes: Any) -> None:
        super().__init__(REWARDS, HarmonizerConfig(**changes))
        self.signals: list[Signals] = []
        self.kl_cosines: list[Any] = []

    def plan(self, step: int, active_K: Any, signals: Signals | None = None) -> Plan:
        assert signals is not None
        self.signals.append(signals)
        return super().plan(step, active_K, signals)

    def solve(self, step: int, gramian_KK: Any, active_K: Any, kl_cosines_K: Any = None) -> Solution:
        self.kl_cosines.append(kl_cosines_K)
        return super().solve(step, gramian_KK, active_K, kl_cosines_K)


def test_plan_gets_the_advantages_correlation_and_the_last_amortised_norm(tiny_folder: Path) -> None:
    """Every other step solves: after a solve the norm is not known."""
    balance = Recorder(refresh={"n": 2})
    learner = make_learner(tiny_folder, balance=balance)
    reports = [learner.train(make_batch(learner, i)) for i in range(2)]
    steps = [step for report in reports for step in report.steps]
    assert [step.solved for step in steps] == [True, False, True, False]
    assert [step.solve_reason for step in steps] == ["every_n", "", "every_n", ""]
    norms = [signals.amortized_norm for signals in balance.signals]
    np.testing.assert_array_equal(norms, [np.nan, np.nan, steps[1].grad_norm, np.nan])
    for index, signals in enumerate(balance.signals):
        report = reports[index // 2]
        both_N = report.signal_KN[0] & report.signal_KN[1]
        expected = np.corrcoef(report.advantages_KN[0, both_N], report.advantages_KN[1, both_N])[0, 1]
        assert signals.correlation_KK[0, 1] == pytest.approx(expected, abs=1e-12)
        assert signals.counts_KK[0, 1] == both_N.sum()


def cosines(gradients_KP: torch.Tensor, kl_P: torch.Tensor) -> NDArray[np.float64]:
    rows, kl = gradients_KP.double().numpy(), kl_P.double().numpy()
    return np.asarray(rows @ kl / np.linalg.norm(rows, axis=1) / np.linalg.norm(kl))


def test_solve_gets_the_cosines_with_the_kl_gradient_and_keeps_its_bound(tiny_folder: Path) -> None:
    """The direction in `.grad`, with the KL part taken off, raises KL no faster than asked: here not at all."""
    balance = Recorder(kl="constraint")
    learner = make_learner(tiny_folder, balance=balance, updates_per_iteration=1)
    randomize(learner)
    seen, patch = watched(learner)
    with patch:
        (step,) = learner.train(make_batch(learner, 0)).steps
    (apart,) = seen.apart
    np.testing.assert_allclose(balance.kl_cosines[0], cosines(apart.gradients_KP, kl_row(apart)), rtol=1e-6)
    assert step.solution is not None
    report = step.solution.report
    rewards_P = seen.gradients[0] - learner.config.kl_beta * kl_row(apart)
    rise = -float(cosines(rewards_P[None], kl_row(apart))[0])
    assert report.kl_status in ("slack", "active", "infeasible")
    assert (rise <= 1e-5) == (report.kl_status != "infeasible")


def test_without_kl_there_is_nothing_to_hand_over(tiny_folder: Path) -> None:
    balance = Recorder()
    learner = make_learner(tiny_folder, balance=balance, kl_beta=0.0)
    learner.train(make_batch(learner, 0))
    assert balance.kl_cosines == [None]


def test_an_adaptive_run_resumes_bit_for_bit(tiny_folder: Path, tmp_path: Path) -> None:
    """FAULTS 5: the norm of the last amortised step is the learner's, everything else the harmonizer's state."""
    refresh = {"policy": "adaptive", "n": 3}
    straight_balance, first_balance, balance = (Recorder(refresh=refresh) for _ in range(3))
    straight = make_learner(tiny_folder, balance=straight_balance)
    expected = [learnt for i in range(6) for learnt in straight.train(make_batch(straight, i)).steps]
    first = make_learner(tiny_folder, balance=first_balance)
    for i in range(3):
        first.train(make_batch(first, i))
    tensors, state = first.state()
    assert state["amortized_norm"] == (None if expected[5].solved else expected[5].grad_norm)
    path = checkpoint.save(tmp_path, 3, tensors, {"learner": state, "harmonizer": first_balance.state_dict()})
    tensors, state = checkpoint.load(path)
    second = make_learner(tiny_folder, balance=balance)
    balance.load_state_dict(state["harmonizer"])
    second.load_state(tensors, state["learner"])
    found = [learnt for i in range(3, 6) for learnt in second.train(make_batch(second, i)).steps]
    assert [(s.solve_reason, s.grad_norm) for s in found] == [(s.solve_reason, s.grad_norm) for s in expected[6:]]
    assert balance.state_dict() == straight_balance.state_dict()
    np.testing.assert_array_equal(
        [signals.amortized_norm for signals in balance.signals],
        [signals.amortized_norm for signals in straight_balance.signals[6:]],
    )
