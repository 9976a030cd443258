"""TorchJD's methods behind our call: they get F, say α = w/Σw and Σw, and remember what a checkpoint needs."""

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gram_zoo import assert_on_simplex, gramian, random_directions, random_sizes, unit_rows
from torchjd.aggregation import IMTLG, MGDA, CAGrad, NashMTL, UPGrad

from harmonizer import config as config_module
from harmonizer.arrays import Floats
from harmonizer.config import NEEDS, HarmonizerConfig
from harmonizer.formulas import squared_norm
from harmonizer.harmonizer import Harmonizer, Solution
from harmonizer.min_norm import MinNorm

NAMES = ("a", "b", "c", "d", "e")
ROOT = Path(__file__).parents[3]
METHODS = sorted(NEEDS)


def make(method: str, num_rewards: int = 4, **settings: Any) -> Harmonizer:
    return Harmonizer(NAMES[:num_rewards], HarmonizerConfig(method=method, **settings))


def solve(harmonizer: Harmonizer, gradients_KP: Floats, active: list[bool] | None = None) -> Solution:
    return harmonizer.solve(0, gramian(gradients_KP), np.array(active or [True] * len(gradients_KP)))


def aggregated(method: str, units_KP: Floats) -> Floats:
    """TorchJD's own direction of the unit gradients themselves."""
    aggregator: Any = {
        "upgrad": UPGrad,
        "cagrad": lambda: CAGrad(c=0.5),
        "imtl_g": IMTLG,
        "nash_mtl": lambda: NashMTL(n_tasks=len(units_KP)),
    }[method]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Nash-MTL's problem is not DPP
        return np.asarray(aggregator(torch.from_numpy(units_KP)).numpy())


@pytest.mark.parametrize("method", [method for method in METHODS if method != "pcgrad"])
@pytest.mark.parametrize("seed", range(3))
def test_the_step_is_torchjds_direction_of_the_unit_gradients(method: str, seed: int) -> None:
    """d = n̄ Σ w_k ĝ_k, whatever the sizes; α is w over its sum, which is kept."""
    rng = np.random.default_rng(seed)
    directions_KP = random_directions(rng, 4, 4)
    gradients_KP = directions_KP * rng.uniform(0.1, 10, 4)[:, None]
    solution = solve(make(method), gradients_KP)
    expected_P = solution.mean_norm * aggregated(method, unit_rows(gradients_KP))
    # Nash-MTL stops at 1e-3 of its own equations; F and the gradients take other ways there.
    tolerance = 1e-3 if method == "nash_mtl" else 1e-6
    np.testing.assert_allclose(
        solution.coefficients_K @ gradients_KP, expected_P, rtol=0, atol=tolerance * np.abs(expected_P).max()
    )
    assert solution.alpha_K.sum() == pytest.approx(1, abs=1e-12)
    lengths_K = solution.coefficients_K * solution.norms_K / solution.mean_norm
    np.testing.assert_allclose(lengths_K, solution.report.scale * solution.alpha_K, rtol=1e-12)
    assert (solution.report.status, solution.report.solver) == (method, "torchjd")


def test_pcgrad_by_hand() -> None:
    """Two unit gradients at 120°: each loses its part against the other, w = (3/2, 3/2)."""
    solution = solve(make("pcgrad", 2), np.array([[1.0, 0.0], [-0.5, np.sqrt(0.75)]]))
    np.testing.assert_allclose(solution.alpha_K, [0.5, 0.5], rtol=1e-12)
    assert solution.report.scale == pytest.approx(3.0, rel=1e-12)


def test_imtl_g_projects_equally_and_may_weigh_negatively() -> None:
    """x, and y and z close to it: the middle one gets a negative weight, and projections are equal."""
    gradients_KP = unit_rows(np.array([[1.0, 0.0, 0.0], [1.0, 0.3, 0.0], [1.0, 0.6, 0.1]]))
    solution = solve(make("imtl_g", 3), gradients_KP)
    assert solution.alpha_K.min() < -0.1
    projections_K = gradients_KP @ (solution.coefficients_K @ gradients_KP)
    np.testing.assert_allclose(projections_K, projections_K[0], rtol=1e-8)
    np.testing.assert_allclose(solution.report.cosines_K, solution.report.cosines_K[0], rtol=1e-8)


def test_weights_of_both_signs_are_only_used_together() -> None:
    harmonizer = make("imtl_g", 3)
    gradients_KP = unit_rows(np.array([[1.0, 0.0, 0.0], [1.0, 0.3, 0.0], [1.0, 0.6, 0.1]]))
    solve(harmonizer, gradients_KP)
    assert not harmonizer.plan(1, np.ones(3, dtype=bool)).solve
    plan = harmonizer.plan(1, np.array([True, True, False]))
    assert (plan.solve, plan.reason) == (True, "no weights")
    fewer = solve(harmonizer, gradients_KP, [True, True, False])
    np.testing.assert_array_equal(fewer.ema_K, fewer.alpha_K)
    assert fewer.ema_K.sum() == pytest.approx(1, abs=1e-12)
    state = json.loads(json.dumps(harmonizer.state_dict(), allow_nan=False))
    again = make("imtl_g", 3)
    again.load_state_dict(state)
    assert again.state_dict() == state


@pytest.mark.parametrize("method", METHODS)
def test_amortised_steps_keep_the_scale(method: str) -> None:
    harmonizer = make(method)
    solution = solve(harmonizer, random_directions(np.random.default_rng(0), 4, 4))
    weights = harmonizer.plan(1, np.ones(4, dtype=bool)).weights
    assert weights is not None
    np.testing.assert_allclose(weights.coefficients_K, solution.coefficients_K, rtol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_a_restored_one_goes_on_bit_for_bit(method: str) -> None:
    """PCGrad's random numbers and Nash-MTL's start go through JSON; rewards come and go."""
    rng = np.random.default_rng(1)
    batches = [
        (random_directions(rng, 4, 3, spoil=1) * random_sizes(rng, 4)[:, None], (rng.random(4) < 0.8).tolist())
        for _ in range(5)
    ]
    straight, saved = make(method, seed=3), make(method, seed=3)
    for number, (gradients_KP, active) in enumerate(batches):
        if number == 2:
            state = json.dumps(saved.state_dict(), allow_nan=False)
            saved = make(method, seed=3)
            saved.load_state_dict(json.loads(state))
            torch.manual_seed(99)
        one, other = (solve(harmonizer, gradients_KP, active) for harmonizer in (straight, saved))
        for field in ("alpha_K", "ema_K", "coefficients_K"):
            np.testing.assert_array_equal(getattr(one, field), getattr(other, field))
        assert straight.state_dict() == saved.state_dict()


def test_what_is_remembered_matters() -> None:
    """PCGrad draws another order in every solve, Nash-MTL falls back on its last bargain; a reset starts both over."""
    angles = np.array([0.0, 2.0, 4.0]) * np.pi / 3
    hopeless_KP = np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1)
    good_KP = np.array([[1.0, 0, 0], [1.0, 1.0, 0], [1.0, -0.5, 1.0]])
    random_KP = random_directions(np.random.default_rng(5), 4, 3)
    for method, first_KP, then_KP in (("pcgrad", random_KP, random_KP), ("nash_mtl", good_KP, hopeless_KP)):
        harmonizer = make(method, len(first_KP))
        fresh_K = solve(harmonizer, then_KP).alpha_K
        harmonizer.reset()
        solve(harmonizer, first_KP)
        assert (solve(harmonizer, then_KP).alpha_K != fresh_K).any(), method
        harmonizer.reset()
        np.testing.assert_array_equal(solve(harmonizer, then_KP).alpha_K, fresh_K)
    with pytest.raises(ValueError, match="state must be of method nash_mtl and 3 rewards, got"):
        harmonizer.load_state_dict(make("pcgrad", 3).state_dict())
    without = harmonizer.state_dict()
    del without["method"]["num_solves"]
    with pytest.raises(ValueError, match="state must be of method nash_mtl and 3 rewards, got"):
        harmonizer.load_state_dict(without)


def test_rewards_that_cannot_agree_leave_nash_mtl_where_it_was() -> None:
    """Three gradients in a plane that cancel: there is no bargain, and the report tells."""
    angles = np.array([0.0, 2.0, 4.0]) * np.pi / 3
    solution = solve(make("nash_mtl", 3), np.stack([np.cos(angles), np.sin(angles)], axis=1))
    np.testing.assert_allclose(solution.alpha_K, 1 / 3, rtol=1e-12)
    assert solution.report.complaints[0].startswith("torchjd: no bargain found, status ")


def test_random_numbers_are_its_own() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    solve(make("pcgrad"), random_directions(np.random.default_rng(2), 4, 4))
    assert torch.equal(torch.rand(3), expected)
    gradients_KP = random_directions(np.random.default_rng(3), 4, 3)
    drawn = {solve(make("pcgrad", seed=seed), gradients_KP).alpha_K.tobytes() for seed in range(6)}
    assert len(drawn) > 1


@pytest.mark.parametrize("method", METHODS)
def test_awkward_gradients_leave_finite_weights(method: str) -> None:
    """FAULTS 17: duplicates, opposites, zeros and non-finite ones; a step, or a reason for none."""
    for rows in (
        [[1.0, 0], [1.0, 0], [0, 1.0]],
        [[1.0, 0], [-3.0, 0], [0, 1.0]],
        [[1.0, 0], [0, 0], [np.nan, 1.0]],
        [[1e-8, 0], [0, 1e8], [1.0, 1.0]],
    ):
        gradients_KP = np.array(rows)
        with np.errstate(invalid="ignore"):
            solution = solve(make(method, 3), gradients_KP)
        assert np.isfinite(solution.coefficients_K).all()
        assert solution.report.status in (method, "single", "fallback", "no_active")
        if solution.active_K.any():
            assert solution.alpha_K.sum() == pytest.approx(1, abs=1e-9)


def test_a_failure_falls_back_to_equal_weights_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("Failed to solve the quadratic programming problem.")

    monkeypatch.setattr("torchjd._linalg._dual_cone.QuadprogProjector.__call__", broken)
    solution = solve(make("upgrad", 3), np.eye(3))
    assert_on_simplex(solution.alpha_K)
    np.testing.assert_allclose(solution.alpha_K, 1 / 3, rtol=1e-15)
    assert (solution.report.status, solution.report.scale) == ("fallback", 1.0)
    assert solution.report.complaints == ("torchjd: ValueError: Failed to solve the quadratic programming problem.",)


def test_without_the_extra_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_module, "find_spec", lambda name: None if name in ("torchjd", "ecos") else "there")
    for method, packages in (("upgrad", "torchjd"), ("nash_mtl", "torchjd, ecos")):
        with pytest.raises(ValueError, match=f"method {method} needs {packages}, which this environment lacks: pip"):
            make(method)
    make("min_norm")


def test_they_are_not_imported_before_they_are_asked_for() -> None:
    code = (
        "import sys, harmonizer.harmonizer as h, harmonizer.config as c\n"
        "h.Harmonizer(['a', 'b'], c.HarmonizerConfig())\n"
        "print([m for m in ('torch', 'torchjd') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def check_mgda(seed: int, number: int) -> None:
    """Frank-Wolfe, 5,000 iterations: an upper bound on the minimum by another hand."""
    rng, min_norm = np.random.default_rng(seed), MinNorm()
    mgda = MGDA(epsilon=1e-12, max_iters=5000).gramian_weighting
    for _ in range(number):
        num_rewards = int(rng.integers(2, 17))
        units_KP = unit_rows(random_directions(rng, num_rewards, int(rng.integers(1, num_rewards + 1))))
        unit_KK = gramian(units_KP)
        ours = squared_norm(unit_KK, min_norm(unit_KK, np.arange(num_rewards)).alpha_M)
        theirs = squared_norm(unit_KK, mgda(torch.from_numpy(unit_KK)).numpy())
        assert ours <= theirs + 1e-9, (num_rewards, ours, theirs)


def test_torchjds_mgda_is_never_lower() -> None:
    check_mgda(seed=0, number=6)


@pytest.mark.slow
def test_torchjds_mgda_is_never_lower_on_two_hundred() -> None:
    check_mgda(seed=1, number=200)
