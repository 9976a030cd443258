"""The whole object: what a learner sees of it.

The direction is checked on gradients, not on weights: d = Σ a_k g_k.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gram_zoo import assert_min_norm, assert_on_simplex, gramian, random_directions, random_sizes, unit_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from harmonizer.arrays import Floats
from harmonizer.config import HarmonizerConfig
from harmonizer.harmonizer import AmortizedWeights, Harmonizer, Solution
from harmonizer.min_norm import MinNorm
from harmonizer.report import Weighting

NAMES = ("a", "b", "c", "d", "e")
ROOT = Path(__file__).parents[3]


def make(num_rewards: int, **settings: Any) -> Harmonizer:
    return Harmonizer(NAMES[:num_rewards], HarmonizerConfig(**settings))


def everyone(num_rewards: int) -> np.ndarray:
    return np.ones(num_rewards, dtype=bool)


def solve(harmonizer: Harmonizer, gradients_KP: Floats, active: np.ndarray | None = None) -> Solution:
    """With NaN or infinite gradients in it a Gram matrix is computed as the learner does, NaN rows and all."""
    with np.errstate(invalid="ignore"):
        gramian_KK = gramian(gradients_KP)
    return harmonizer.solve(0, gramian_KK, everyone(len(gradients_KP)) if active is None else active)


def amortized(harmonizer: Harmonizer, active_K: np.ndarray) -> AmortizedWeights:
    weights = harmonizer.plan(1, active_K).weights
    assert weights is not None
    return weights


def direction(solution: Solution | AmortizedWeights, gradients_KP: Floats) -> Floats:
    return np.asarray(solution.coefficients_K @ gradients_KP)


def three_gradients() -> Floats:
    """x, and y and z at 60°, with norms 1, 10, 100."""
    return np.array([[1.0, 0, 0], [0, 10.0, 0], [0, 50.0, 100 * np.sqrt(0.75)]])


# Solving steps ------------------------------------------------------------------------------------------------------


def test_three_gradients_by_hand() -> None:
    """α* ∝ G⁻¹1 = (1, 2/3, 2/3), ‖d*‖² = 3/7, n̄ = 37, a_k = α_k n̄/‖g_k‖."""
    solution = solve(make(3), three_gradients())
    np.testing.assert_allclose(solution.alpha_K, [3 / 7, 2 / 7, 2 / 7], rtol=1e-12)
    np.testing.assert_array_equal(solution.ema_K, solution.alpha_K)
    np.testing.assert_allclose(solution.norms_K, [1, 10, 100], rtol=1e-14)
    assert solution.mean_norm == pytest.approx(37, rel=1e-14)
    np.testing.assert_allclose(solution.coefficients_K, [37 * 3 / 7, 3.7 * 2 / 7, 0.37 * 2 / 7], rtol=1e-12)
    report = solution.report
    np.testing.assert_allclose(report.inner_products_K, 3 / 7, rtol=1e-12)
    np.testing.assert_allclose(report.cosines_K, np.sqrt(3 / 7), rtol=1e-12)
    np.testing.assert_allclose(report.cosine_KK, [[1, 0, 0], [0, 1, 0.5], [0, 0.5, 1]], atol=1e-15)
    assert report.worst_cosine == pytest.approx(np.sqrt(3 / 7), rel=1e-12)
    assert report.kkt_gap <= 1e-12
    assert (report.status, report.solver, report.left) == ("optimal", "CLARABEL", {})


def test_report_matches_the_applied_direction_on_gradients() -> None:
    rng = np.random.default_rng(0)
    gradients_KP = random_directions(rng, 5, 5) * np.array([1, 10, 0.1, 3, 1e3])[:, None]
    for settings_ in ({}, {"apply": "ema"}, {"normalize": False}, {"method": "uniform"}):
        harmonizer = make(5, **settings_)
        solve(harmonizer, random_directions(rng, 5, 5))
        solution = solve(harmonizer, gradients_KP)
        d_P = direction(solution, gradients_KP)
        cosines_K = unit_rows(gradients_KP) @ d_P / np.linalg.norm(d_P)
        np.testing.assert_allclose(solution.report.cosines_K, cosines_K, rtol=0, atol=1e-9)
        assert solution.report.worst_cosine == pytest.approx(cosines_K.min(), abs=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_weights_depend_on_directions_only(seed: int) -> None:
    """FAULTS 16: gradient sizes from 1e-8 to 1e8 move α by less than 1e-9, and KKT holds."""
    rng = np.random.default_rng(seed)
    directions_KP = unit_rows(random_directions(rng, 5, int(rng.integers(1, 6))))
    alpha_K = solve(make(5), directions_KP).alpha_K
    assert_min_norm(gramian(directions_KP), alpha_K)
    for sizes_K in (random_sizes(rng, 5), np.full(5, 1e-8), np.full(5, 1e8)):
        scaled_K = solve(make(5), directions_KP * sizes_K[:, None]).alpha_K
        np.testing.assert_allclose(scaled_K, alpha_K, rtol=0, atol=1e-9)


def test_rescaling_a_reward_leaves_the_direction_of_the_step() -> None:
    """FAULTS 18: the wide-scale reward does not win."""
    rng = np.random.default_rng(1)
    gradients_KP = random_directions(rng, 4, 4)
    before_P = direction(solve(make(4), gradients_KP), gradients_KP)
    for reward in range(4):
        for factor in (1e-6, 1e6):
            scaled_KP = gradients_KP * np.where(np.arange(4) == reward, factor, 1.0)[:, None]
            after_P = direction(solve(make(4), scaled_KP), scaled_KP)
            np.testing.assert_allclose(unit_rows(after_P[None]), unit_rows(before_P[None]), rtol=0, atol=1e-9)


def test_where_the_weighted_sum_loses_a_reward_min_norm_does_not() -> None:
    """FAULTS 18: one reward's gradient is a hundred times the other's and points a little against it."""
    gradients_KP = np.array([[100.0, 0.0], [-0.3, 1.0]])
    total_P = gradients_KP.sum(axis=0)
    assert gradients_KP[1] @ total_P < 0
    d_P = direction(solve(make(2), gradients_KP), gradients_KP)
    assert (gradients_KP @ d_P > 0).all()


@pytest.mark.parametrize("seed", range(10))
def test_permuting_rewards_permutes_the_weights(seed: int) -> None:
    """Also where many α are optimal: ties are broken evenly, not by order."""
    rng = np.random.default_rng(seed)
    gradients_KP = random_directions(rng, 5, int(rng.integers(1, 6)), spoil=seed % 3)
    order = rng.permutation(5)
    solution, permuted = solve(make(5), gradients_KP), solve(make(5), gradients_KP[order])
    np.testing.assert_allclose(permuted.alpha_K, solution.alpha_K[order], rtol=0, atol=1e-9)
    np.testing.assert_allclose(permuted.coefficients_K, solution.coefficients_K[order], rtol=1e-6, atol=1e-9)


# Gradients that break solvers ---------------------------------------------------------------------------------------

X, Y, ZERO = (1.0, 0.0), (0.0, 2.0), (0.0, 0.0)
MINUS_X = (-3.0, 0.0)


@pytest.mark.parametrize(
    ("rows", "alpha", "status", "left"),
    [
        ((X, X), (0.5, 0.5), "optimal", {}),
        ((X, Y, Y), (0.5, 0.25, 0.25), "optimal", {}),
        ((X, MINUS_X), (0.5, 0.5), "stationary", {}),
        ((X, X, MINUS_X), (0.25, 0.25, 0.5), "stationary", {}),
        ((X, ZERO, Y), (0.5, 0.0, 0.5), "optimal", {"b": "zero gradient"}),
        ((ZERO, Y), (0.0, 1.0), "single", {"a": "zero gradient"}),
        ((X, (np.nan, 1.0), Y), (0.5, 0.0, 0.5), "optimal", {"b": "non-finite gradient"}),
        ((X, (np.inf, 0.0), Y), (0.5, 0.0, 0.5), "optimal", {"b": "non-finite gradient"}),
    ],
)
def test_awkward_gradients(
    rows: tuple[tuple[float, float], ...], alpha: tuple[float, ...], status: str, left: dict[str, str]
) -> None:
    """FAULTS 17: always on the simplex, and the report says what happened."""
    gradients_KP = np.array(rows)
    solution = solve(make(len(rows)), gradients_KP)
    assert_on_simplex(solution.alpha_K)
    np.testing.assert_allclose(solution.alpha_K, alpha, rtol=0, atol=1e-12)
    assert (solution.report.status, solution.report.left) == (status, left)
    assert solution.active_K.tolist() == [name not in left for name in NAMES[: len(rows)]]
    assert np.isfinite(solution.coefficients_K).all()
    present_K = solution.active_K
    np.testing.assert_array_equal(np.isnan(solution.report.inner_products_K), ~present_K)
    np.testing.assert_array_equal(np.isnan(solution.report.cosine_KK), ~np.outer(present_K, present_K))


def test_opposites_leave_no_cosines_to_report() -> None:
    """FAULTS 17: the direction is zero but for rounding, and a cosine with rounding would be noise."""
    report = solve(make(2), np.array([X, MINUS_X])).report
    np.testing.assert_allclose(report.inner_products_K, 0, atol=1e-12)
    assert np.isnan(report.cosines_K).all()
    assert np.isnan(report.worst_cosine)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_non_finite_gradient_changes_nothing_for_the_others(bad: float) -> None:
    """FAULTS 17: everything the others get is bit-identical to a run in which that reward had no signal."""
    gradients_KP = random_directions(np.random.default_rng(2), 4, 4)
    broken_KP = gradients_KP.copy()
    broken_KP[2, 0] = bad
    without = solve(make(4), gradients_KP, np.array([True, True, False, True]))
    broken = solve(make(4), broken_KP)
    for field in ("alpha_K", "ema_K", "coefficients_K", "active_K", "mean_norm", "norms_K"):
        np.testing.assert_array_equal(getattr(broken, field), getattr(without, field))
    np.testing.assert_array_equal(broken.report.cosines_K, without.report.cosines_K)
    assert (without.report.left, broken.report.left) == ({"c": "no signal"}, {"c": "non-finite gradient"})


@pytest.mark.parametrize("bad", [np.nan, 0.0])
def test_nobody_left_means_no_step_and_an_untouched_memory(bad: float) -> None:
    """FAULTS 17: all non-finite (or zero) means no optimizer step."""
    harmonizer = make(3)
    solve(harmonizer, three_gradients())
    before = harmonizer.state_dict()
    solution = solve(harmonizer, np.full((3, 2), bad))
    np.testing.assert_array_equal(solution.coefficients_K, 0)
    np.testing.assert_array_equal(solution.alpha_K, 0)
    np.testing.assert_allclose(solution.ema_K, [3 / 7, 2 / 7, 2 / 7], rtol=1e-12)
    assert not solution.active_K.any()
    assert (solution.report.status, solution.mean_norm) == ("no_active", 0.0)
    assert set(solution.report.left) == {"a", "b", "c"}
    assert np.isnan(solution.report.worst_cosine)
    assert harmonizer.state_dict() == before


def test_no_signal_anywhere_means_no_step() -> None:
    harmonizer = make(2)
    assert harmonizer.plan(1, np.zeros(2, dtype=bool)).solve
    solution = solve(harmonizer, np.array([X, Y]), np.zeros(2, dtype=bool))
    assert solution.report.status == "no_active"
    assert solution.report.left == {"a": "no signal", "b": "no signal"}


# Smoothing and steps in between -------------------------------------------------------------------------------------


def test_amortised_step_is_the_step_that_was_solved() -> None:
    gradients_KP = three_gradients()
    harmonizer = make(3)
    solution, weights = solve(harmonizer, gradients_KP), amortized(harmonizer, everyone(3))
    np.testing.assert_array_equal(weights.coefficients_K, solution.coefficients_K)
    np.testing.assert_array_equal(weights.weights_K, solution.alpha_K)
    assert weights.mean_norm == solution.mean_norm


def test_amortised_weights_are_renormalised_over_the_batch_by_hand() -> None:
    """ᾱ = (3, 2, 2)/7 without the first: 1/2 each, n̄ = 55, a = (0, 55/20, 55/200)."""
    harmonizer = make(3)
    solve(harmonizer, three_gradients())
    weights = amortized(harmonizer, np.array([False, True, True]))
    np.testing.assert_allclose(weights.weights_K, [0, 0.5, 0.5], rtol=1e-12)
    np.testing.assert_allclose(weights.coefficients_K, [0, 55 / 20, 55 / 200], rtol=1e-12)
    assert weights.mean_norm == pytest.approx(55)
    assert weights.active_K.tolist() == [False, True, True]


def test_the_papers_amortisation_applies_the_shares_to_raw_gradients() -> None:
    harmonizer = make(3, amortize="paper")
    solve(harmonizer, three_gradients())
    weights = amortized(harmonizer, everyone(3))
    np.testing.assert_allclose(weights.coefficients_K, [3 / 7, 2 / 7, 2 / 7], rtol=1e-12)


def test_norms_are_those_of_each_rewards_last_solve() -> None:
    """b is absent from the second solve, so its norm stays 2: n̄ = 3, a = ᾱ n̄/‖g‖ = (1/2)·3/(4, 2)."""
    harmonizer = make(2)
    solve(harmonizer, np.array([X, Y]))
    solve(harmonizer, np.array([(4.0, 0.0), Y]), np.array([True, False]))
    weights = amortized(harmonizer, everyone(2))
    np.testing.assert_allclose(weights.coefficients_K, [3 / 8, 3 / 4], rtol=1e-12)


def test_an_absent_reward_keeps_its_share() -> None:
    harmonizer = make(3)
    first = solve(harmonizer, three_gradients()).ema_K
    second = solve(harmonizer, three_gradients(), np.array([True, True, False])).ema_K
    assert second[2] == first[2]
    np.testing.assert_allclose(second[:2], 0.7 * first[:2] + 0.3 * (5 / 7) * 0.5, rtol=1e-12)


def test_a_newcomer_gets_its_share_at_its_first_solve() -> None:
    """Before it there is none, also on amortised steps; with everyone else absent it still gets one."""
    harmonizer = make(3)
    solution = solve(harmonizer, three_gradients(), np.array([True, True, False]))
    assert solution.ema_K[2] == 0
    weights = amortized(harmonizer, everyone(3))
    assert weights.active_K.tolist() == [True, True, False]
    assert weights.mean_norm == pytest.approx(5.5)
    only_new = np.array([False, False, True])
    assert harmonizer.plan(1, only_new).solve
    np.testing.assert_allclose(solve(harmonizer, three_gradients(), only_new).ema_K, 1 / 3, rtol=1e-12)
    assert not harmonizer.plan(1, only_new).solve


def test_a_reward_whose_share_is_zero_is_solved_for_when_alone() -> None:
    """The diagonal gets no weight beside x and y; a batch with only its signal cannot go by that."""
    gradients_KP = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    for apply in ("solved", "ema"):
        harmonizer = make(3, apply=apply)
        assert solve(harmonizer, gradients_KP).ema_K[2] == 0
        alone = np.array([False, False, True])
        assert harmonizer.plan(1, alone).solve
        solution = solve(harmonizer, gradients_KP, alone)
        np.testing.assert_allclose(direction(solution, gradients_KP), [1, 1], rtol=1e-12)
        assert solution.ema_K.sum() == pytest.approx(1)


def test_apply_ema_steps_with_the_smoothed_weights() -> None:
    """First α* = (1, 1, 0)/2, then (1, 1, 1)/3: ᾱ = (5, 5, 2)/12 is applied."""
    harmonizer = make(3, apply="ema", ema={"rho": 0.5})
    solve(harmonizer, np.array([[1.0, 0, 0], [0, 1.0, 0], [0.6, 0.8, 0]]))
    solution = solve(harmonizer, np.eye(3))
    np.testing.assert_allclose(solution.alpha_K, 1 / 3, atol=1e-12)
    np.testing.assert_allclose(solution.ema_K, [5 / 12, 5 / 12, 1 / 6], atol=1e-12)
    np.testing.assert_allclose(solution.coefficients_K, solution.ema_K, rtol=1e-12)


def test_without_normalisation_raw_gradients_are_balanced() -> None:
    """α₁² + 4α₂² is least at (4/5, 1/5); d = Σ α_k g_k without n̄, on amortised steps too."""
    gradients_KP = np.array([X, Y])
    harmonizer = make(2, normalize=False)
    solution = solve(harmonizer, gradients_KP)
    np.testing.assert_allclose(solution.alpha_K, [0.8, 0.2], rtol=1e-9)
    np.testing.assert_array_equal(solution.coefficients_K, solution.alpha_K)
    np.testing.assert_array_equal(amortized(harmonizer, everyone(2)).coefficients_K, solution.alpha_K)
    assert solution.report.kkt_gap <= 1e-12


# Other methods ------------------------------------------------------------------------------------------------------


def test_uniform_stays_uniform_whoever_comes_and_goes() -> None:
    harmonizer = make(3, method="uniform")
    for active, shares in (([1, 1, 0], [1 / 2, 1 / 2, 0]), ([0, 1, 1], [1 / 3] * 3), ([1, 1, 1], [1 / 3] * 3)):
        solution = solve(harmonizer, three_gradients(), np.array(active, dtype=bool))
        np.testing.assert_allclose(solution.alpha_K, np.array(active) / sum(active), rtol=1e-15)
        np.testing.assert_allclose(solution.ema_K, shares, rtol=1e-15)
        assert solution.report.status == "uniform"
    assert solution.report.kkt_gap > 0.1


def test_fixed_weights_are_applied_to_unit_gradients() -> None:
    harmonizer = make(2, method="fixed", fixed={"b": 0.25, "a": 0.75})
    solution = solve(harmonizer, np.array([X, Y]))
    np.testing.assert_allclose(solution.coefficients_K, [0.75 * 1.5, 0.25 * 1.5 / 2], rtol=1e-15)
    np.testing.assert_array_equal(amortized(harmonizer, everyone(2)).coefficients_K, solution.coefficients_K)


def test_a_batch_with_only_weightless_rewards_makes_no_step() -> None:
    harmonizer = make(2, method="fixed", fixed={"a": 1.0, "b": 0.0})
    solve(harmonizer, np.array([X, Y]))
    only_b = np.array([False, True])
    assert harmonizer.plan(1, only_b).solve
    solution = solve(harmonizer, np.array([X, Y]), only_b)
    assert solution.report.status == "no_active"
    assert solution.report.left == {"a": "no signal", "b": "zero weight"}
    np.testing.assert_array_equal(solution.coefficients_K, 0)


def test_weighted_gradients_are_the_sum_as_it_stands() -> None:
    """3 g_a + g_b with α = (3, 1)/4 and scale 4; without a only g_b; no norm is looked at, on any step."""
    harmonizer = make(2, method="weighted_gradients", weights={"b": 1.0, "a": 3.0})
    gradients_KP = np.array([X, Y])
    first = harmonizer.plan(1, everyone(2)).weights
    assert first is not None
    np.testing.assert_array_equal(first.coefficients_K, [3.0, 1.0])
    solution = solve(harmonizer, gradients_KP)
    np.testing.assert_allclose(solution.coefficients_K, [3.0, 1.0], rtol=1e-15)
    np.testing.assert_allclose(solution.alpha_K, [0.75, 0.25], rtol=1e-15)
    assert (solution.report.scale, solution.report.status) == (4.0, "weighted_gradients")
    only_b = np.array([False, True])
    np.testing.assert_allclose(amortized(harmonizer, only_b).coefficients_K, [0.0, 1.0], rtol=1e-15)
    np.testing.assert_allclose(solve(harmonizer, gradients_KP, only_b).coefficients_K, [0.0, 1.0], rtol=1e-15)
    np.testing.assert_allclose(amortized(harmonizer, everyone(2)).coefficients_K, [3.0, 1.0], rtol=1e-15)


def test_weighted_gradients_are_the_mean_without_weights() -> None:
    np.testing.assert_allclose(solve(make(4, method="weighted_gradients"), np.eye(4)).coefficients_K, 0.25, rtol=1e-15)


# Trust region, conflicts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("radius", [0.1, 0.5, 2.0])
def test_shares_move_no_farther_than_the_trust_region(radius: float) -> None:
    """From (1, 1, 0)/2 towards (1, 1, 1)/3 with ρ = 0: an L1 distance of 2/3, of which at most the radius is gone."""
    harmonizer = make(3, ema={"rho": 0.0, "trust_region": radius})
    first_K = solve(harmonizer, np.array([[1.0, 0, 0], [0, 1.0, 0], [0.6, 0.8, 0]])).ema_K
    np.testing.assert_allclose(first_K, [0.5, 0.5, 0], atol=1e-12)
    second_K = solve(harmonizer, np.eye(3)).ema_K
    part = min(1.0, radius / (2 / 3))
    np.testing.assert_allclose(second_K, first_K + part * (np.full(3, 1 / 3) - first_K), atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), radius=st.floats(0.01, 1.0))
def test_the_cached_step_moves_no_farther_either(seed: int, radius: float) -> None:
    """‖Σ Δᾱ_k ĝ_k‖ ≤ Σ |Δᾱ_k| ≤ radius, with rewards coming and going and held shares untouched."""
    rng = np.random.default_rng(seed)
    harmonizer = make(4, ema={"trust_region": radius})
    before_K = solve(harmonizer, random_directions(rng, 4, 4)).ema_K
    for _ in range(5):
        gradients_KP, active_K = unit_rows(random_directions(rng, 4, 4)), rng.random(4) < 0.7
        after_K = solve(harmonizer, gradients_KP, active_K).ema_K
        assert np.abs(after_K - before_K).sum() <= radius + 1e-12
        assert np.linalg.norm((after_K - before_K) @ gradients_KP) <= radius + 1e-12
        np.testing.assert_array_equal(after_K[~active_K], before_K[~active_K])
        assert_on_simplex(after_K)
        before_K = after_K


def test_the_report_says_what_the_plain_sum_would_have_done() -> None:
    """100 x and y − 0.3 x: the sum is (99.7, 1), against the second; the min-norm direction is against none."""
    gradients_KP = np.array([[100.0, 0.0], [-0.3, 1.0]])
    report = solve(make(2), gradients_KP).report
    total_P = gradients_KP.sum(axis=0)
    expected_K = unit_rows(gradients_KP) @ total_P / np.linalg.norm(total_P)
    np.testing.assert_allclose(report.sum_cosines_K, expected_K, rtol=0, atol=1e-12)
    assert report.sum_worst_cosine == pytest.approx(expected_K[1], abs=1e-12)
    assert report.sum_worst_cosine < -0.2 < 0 < report.worst_cosine


def test_fractions_count_the_solves_against_a_reward() -> None:
    """Sum: against, for, against. Ours: never; opposites leave no direction, so the third is not known."""
    harmonizer = make(2)
    conflict, peace, opposites = np.array([[9.0, 0], [-1.0, 1.0]]), np.eye(2), np.array([[9.0, 0], [-1.0, 0]])
    reports = [solve(harmonizer, gradients_KP).report for gradients_KP in (conflict, peace, opposites)]
    assert [report.sum_negative_fraction for report in reports] == [1.0, 1 / 2, 2 / 3]
    assert [report.negative_fraction for report in reports] == [0.0, 0.0, 0.0]
    again = make(2)
    again.load_state_dict(json.loads(json.dumps(harmonizer.state_dict())))
    report = solve(again, conflict).report
    assert (report.sum_negative_fraction, report.negative_fraction) == (3 / 4, 0.0)
    nobody = solve(again, np.full((2, 2), np.nan)).report
    assert np.isnan([nobody.negative_fraction, nobody.sum_negative_fraction]).all()
    uniform = solve(make(2, method="weighted_gradients"), conflict).report
    assert (uniform.negative_fraction, uniform.worst_cosine) == (1.0, pytest.approx(uniform.sum_worst_cosine))


# Plan, memory, input ------------------------------------------------------------------------------------------------


def test_plan_follows_the_policy_and_changes_nothing() -> None:
    harmonizer = make(3, refresh={"n": 3})
    assert [harmonizer.plan(step, everyone(3)).solve for step in range(4)] == [True] * 4  # nothing solved yet
    solve(harmonizer, three_gradients())
    before = harmonizer.state_dict()
    plans = [harmonizer.plan(step, everyone(3)) for step in range(7)]
    assert [plan.solve for plan in plans] == [True, False, False, True, False, False, True]
    assert all((plan.weights is None) == plan.solve for plan in plans)
    assert harmonizer.state_dict() == before


def test_every_step_solves_every_step() -> None:
    harmonizer = make(3, refresh={"policy": "every_step"})
    solve(harmonizer, three_gradients())
    assert all(harmonizer.plan(step, everyone(3)).solve for step in range(5))


def test_what_is_handed_out_is_not_what_is_remembered() -> None:
    harmonizer = make(3)
    solution = solve(harmonizer, three_gradients())
    before = harmonizer.state_dict()
    for array in (solution.ema_K, solution.norms_K, solution.alpha_K, amortized(harmonizer, everyone(3)).weights_K):
        array[:] = -1
    assert harmonizer.state_dict() == before


def test_reset_forgets() -> None:
    harmonizer = make(3)
    solve(harmonizer, three_gradients())
    harmonizer.reset()
    assert harmonizer.state_dict() == make(3).state_dict()
    assert harmonizer.plan(1, everyone(3)).solve
    solution = solve(harmonizer, np.eye(3))
    np.testing.assert_array_equal(solution.ema_K, solution.alpha_K)


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), cut=st.integers(0, 5))
def test_a_restored_harmonizer_goes_on_bit_for_bit(seed: int, cut: int) -> None:
    """Six solves with coming and going rewards straight, and with a save through JSON in between."""
    rng = np.random.default_rng(seed)
    batches = [
        (random_directions(rng, 4, 3, spoil=1) * random_sizes(rng, 4)[:, None], rng.random(4) < 0.7) for _ in range(6)
    ]
    straight, saved = make(4), make(4)
    for number, (gradients_KP, active_K) in enumerate(batches):
        if number == cut:
            state = json.dumps(saved.state_dict(), allow_nan=False)
            saved = make(4)
            saved.load_state_dict(json.loads(state))
        one, other = (solve(harmonizer, gradients_KP, active_K) for harmonizer in (straight, saved))
        for field in ("alpha_K", "ema_K", "coefficients_K", "norms_K"):
            np.testing.assert_array_equal(getattr(one, field), getattr(other, field))
        if straight.state_dict()["ema"] != [None] * 4:
            assert one.ema_K.sum() == pytest.approx(1, abs=1e-12)
        assert straight.state_dict() == saved.state_dict()
        plans = [harmonizer.plan(1, active_K).weights for harmonizer in (straight, saved)]
        if plans[0] is not None and plans[1] is not None:
            np.testing.assert_array_equal(plans[0].coefficients_K, plans[1].coefficients_K)


def test_a_state_of_other_rewards_is_refused_and_nothing_loaded() -> None:
    harmonizer = make(3)
    solve(harmonizer, three_gradients())
    before = harmonizer.state_dict()
    with pytest.raises(ValueError, match="in this order, got"):
        harmonizer.load_state_dict(make(2).state_dict())
    assert harmonizer.state_dict() == before


@pytest.mark.parametrize("key", ["method", "refresh", "scale"])
def test_a_state_without_a_part_is_refused(key: str) -> None:
    state = make(2).state_dict()
    del state[key]
    with pytest.raises(ValueError, match=f"harmonizer state lacks {key}, got keys"):
        make(2).load_state_dict(state)


def test_a_state_of_another_method_is_refused() -> None:
    state = make(2).state_dict() | {"method": {"num_solves": 3}}
    with pytest.raises(ValueError, match=r"MinNorm remembers nothing between solves, got a state of \['num_solves'\]"):
        make(2).load_state_dict(state)


@pytest.mark.parametrize(
    ("gramian_KK", "active", "step", "said"),
    [
        (np.eye(3), everyone(2), 0, r"active_K must be \[3\] booleans, got shape \[2\] of bool"),
        (np.eye(3), np.ones(3), 0, r"active_K must be \[3\] booleans, got shape \[3\] of float64"),
        (np.eye(2), everyone(3), 0, r"gramian must be \[3, 3\], got shape \[2, 2\]"),
        (np.eye(3), everyone(3), -1, "step counts from 0, got -1"),
        (-np.eye(3), everyone(3), 0, "negative squared norm"),
        (np.ones((3, 3)) + 9 * np.triu(np.ones((3, 3)), 1), everyone(3), 0, "symmetric"),
        (np.where(np.eye(3), 1.0, np.nan), everyone(3), 0, "non-finite entry between finite gradients"),
    ],
)
def test_bad_input_is_refused_and_nothing_remembered(
    gramian_KK: Floats, active: np.ndarray, step: int, said: str
) -> None:
    harmonizer = make(3)
    with pytest.raises(ValueError, match=said):
        harmonizer.solve(step, gramian_KK, active)
    assert harmonizer.state_dict() == make(3).state_dict()


@pytest.mark.parametrize("alpha", [[0.7, 0.7], [1.5, -0.5], [np.nan, 1.0], [1.0]])
def test_weights_off_the_simplex_are_refused_and_nothing_remembered(
    alpha: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    harmonizer = make(2)
    monkeypatch.setattr(MinNorm, "__call__", lambda *_: Weighting(np.array(alpha), "optimal", "mine"))
    with pytest.raises(ValueError, match=r"optimal: weights of 2 rewards must be on the simplex, got \["):
        solve(harmonizer, np.eye(2))
    assert harmonizer.state_dict() == make(2).state_dict()


@pytest.mark.parametrize(("names", "said"), [((), "at least one reward"), (("a", "b", "a"), "differ.*got a, b, a")])
def test_bad_names_are_refused(names: tuple[str, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Harmonizer(names, HarmonizerConfig())


def test_importing_the_room_pulls_in_neither_torch_nor_cvxpy() -> None:
    """The learner needs this room's types in every rank; importing cvxpy takes a CPU-second."""
    code = "import sys, harmonizer.harmonizer; print([m for m in ('torch', 'cvxpy', 'scipy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
