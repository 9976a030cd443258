"""Groups, floors, preference: each against its definition, on directions rather than on formulas of the code."""

from typing import Any

import numpy as np
import pytest
from gram_zoo import assert_on_simplex, gramian, random_directions, random_sizes, unit_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from harmonizer.arrays import Floats
from harmonizer.config import HarmonizerConfig
from harmonizer.formulas import lifted, squared_norm
from harmonizer.harmonizer import Harmonizer, Solution

NAMES = ("a", "b", "c", "d", "e")


def solve(gradients_KP: Floats, active: list[bool] | None = None, **settings_: Any) -> Solution:
    num_rewards = len(gradients_KP)
    harmonizer = Harmonizer(NAMES[:num_rewards], HarmonizerConfig(**settings_))
    return harmonizer.solve(0, gramian(gradients_KP), np.array(active or [True] * num_rewards))


def improvements(gradients_KP: Floats, solution: Solution) -> Floats:
    """[K] ⟨ĝ_k, d⟩ of the direction of length 1."""
    d_P = solution.coefficients_K @ gradients_KP
    return np.asarray(unit_rows(gradients_KP) @ d_P / np.linalg.norm(d_P))


def random_simplex(rng: np.random.Generator, number: int, size: int) -> Floats:
    return np.asarray(rng.dirichlet(np.full(size, 0.5), number))


# Floors -------------------------------------------------------------------------------------------------------------


def test_a_floor_by_hand() -> None:
    """The diagonal has no weight beside x and y; with a floor of 0.4 the rest is shared evenly."""
    gradients_KP = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    np.testing.assert_allclose(solve(gradients_KP).alpha_K, [0.5, 0.5, 0.0], atol=1e-12)
    solution = solve(gradients_KP, floors={"c": 0.4})
    np.testing.assert_allclose(solution.alpha_K, [0.3, 0.3, 0.4], atol=1e-12)
    assert solution.report.status == "optimal"
    assert solution.report.kkt_gap <= 1e-12


def test_floors_that_add_up_to_one_are_the_weights() -> None:
    solution = solve(np.eye(3), floors={"a": 0.5, "b": 0.3, "c": 0.2})
    np.testing.assert_allclose(solution.alpha_K, [0.5, 0.3, 0.2], atol=1e-12)


def test_floors_below_the_weights_change_nothing() -> None:
    gradients_KP = random_directions(np.random.default_rng(0), 4, 4)
    free_K = solve(gradients_KP).alpha_K
    floors = {name: float(alpha) / 2 for name, alpha in zip(NAMES, free_K, strict=False)}
    np.testing.assert_allclose(solve(gradients_KP, floors=floors).alpha_K, free_K, atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), num_rewards=st.integers(2, 5))
def test_no_allowed_mix_is_shorter(seed: int, num_rewards: int) -> None:
    """Against random points of {α ≥ floors, Σα = 1}, whatever the rank and the sizes."""
    rng = np.random.default_rng(seed)
    gradients_KP = random_directions(rng, num_rewards, int(rng.integers(1, num_rewards + 1)))
    floors_K = rng.random(num_rewards) / num_rewards
    floors = dict(zip(NAMES, floors_K.tolist(), strict=False))
    solution = solve(gradients_KP * random_sizes(rng, num_rewards)[:, None], floors=floors)
    assert_on_simplex(solution.alpha_K)
    assert (solution.alpha_K >= floors_K - 1e-12).all()
    unit_KK = gramian(unit_rows(gradients_KP))
    least = squared_norm(unit_KK, solution.alpha_K)
    for beta_K in random_simplex(rng, 200, num_rewards):
        other_K = floors_K + (1 - floors_K.sum()) * beta_K
        assert least <= squared_norm(unit_KK, other_K) + 1e-10


def test_an_absent_rewards_floor_leaves_with_it() -> None:
    solution = solve(np.eye(3), [True, True, False], floors={"c": 0.9, "a": 0.1})
    np.testing.assert_allclose(solution.alpha_K, [0.5, 0.5, 0.0], atol=1e-12)


def test_floors_hold_on_amortised_steps_too() -> None:
    """α* = (1/2, 1/4, 1/4), then (1/2, 1/2) without c, which holds 1/4: ᾱ = (3/8, 3/8, 1/4) is below a's floor."""
    harmonizer = Harmonizer(NAMES[:3], HarmonizerConfig(floors={"a": 0.5}, ema={"rho": 0.0}))
    harmonizer.solve(0, np.eye(3), np.ones(3, dtype=bool))
    shares_K = harmonizer.solve(10, np.eye(3), np.array([True, True, False])).ema_K
    np.testing.assert_allclose(shares_K, [3 / 8, 3 / 8, 1 / 4], atol=1e-12)
    weights = harmonizer.plan(11, np.ones(3, dtype=bool)).weights
    assert weights is not None
    np.testing.assert_allclose(weights.weights_K, [0.5, 0.3, 0.2], atol=1e-12)


def test_lifted_by_hand() -> None:
    """0.1 is missing; the others hold 0.5 and 0.1 above their floors, so they give 5 to 1."""
    lifted_K = lifted(np.array([0.1, 0.7, 0.2]), np.array([0.2, 0.2, 0.1]))
    np.testing.assert_allclose(lifted_K, [0.2, 0.2 + 0.5 * 5 / 6, 0.1 + 0.5 / 6], rtol=1e-14)
    same_K = np.array([0.3, 0.7])
    assert lifted(same_K, np.array([0.3, 0.0])) is same_K


# Preference ---------------------------------------------------------------------------------------------------------


def test_a_preference_by_hand() -> None:
    """Orthogonal gradients: improvements are α itself, so α = p / Σp."""
    solution = solve(np.diag([1.0, 10.0, 100.0]), preference={"a": 1, "b": 2, "c": 5})
    np.testing.assert_allclose(solution.alpha_K, [1 / 8, 2 / 8, 5 / 8], atol=1e-12)


def test_equal_preference_is_no_preference_at_any_scale() -> None:
    gradients_KP = random_directions(np.random.default_rng(1), 4, 4)
    for scale in (1e-6, 1.0, 1e6):
        alpha_K = solve(gradients_KP, preference=dict.fromkeys("abcd", scale)).alpha_K
        np.testing.assert_allclose(alpha_K, solve(gradients_KP).alpha_K, atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), num_rewards=st.integers(2, 5))
def test_improvements_are_in_proportion_to_the_preference(seed: int, num_rewards: int) -> None:
    """Rewards with weight improve at rates ∝ p, the others faster; and no direction has a better worst rate."""
    rng = np.random.default_rng(seed)
    gradients_KP = random_directions(rng, num_rewards, num_rewards)
    p_K = rng.uniform(0.2, 5.0, num_rewards)
    solution = solve(gradients_KP, preference=dict(zip(NAMES, p_K.tolist(), strict=False)))
    rates_K = improvements(gradients_KP, solution) / p_K
    worst = rates_K.min()
    assert worst > 0
    np.testing.assert_allclose(rates_K[solution.alpha_K > 1e-6], worst, rtol=1e-6)
    units_KP = unit_rows(gradients_KP)
    for mix_K in random_simplex(rng, 200, num_rewards):
        other_P = mix_K @ units_KP
        assert (units_KP @ other_P / np.linalg.norm(other_P) / p_K).min() <= worst + 1e-9


# Groups -------------------------------------------------------------------------------------------------------------


def test_a_group_has_one_budget_by_hand() -> None:
    """Of four orthogonal gradients three share one budget; alone they would have three quarters of the weight."""
    solution = solve(np.eye(4), groups={"pictures": {"a": 1, "b": 1, "c": 2}})
    # h = (1, 1, 2)/4 of length² 3/8 against y: γ = (1, 3/8)/(11/8)
    np.testing.assert_allclose(solution.alpha_K, [2 / 11, 2 / 11, 4 / 11, 3 / 11], atol=1e-12)
    assert solution.report.kkt_gap <= 1e-12


@pytest.mark.parametrize("seed", range(10))
def test_shares_within_a_group_are_fixed_and_the_groups_are_min_norm(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gradients_KP = unit_rows(random_directions(rng, 5, 5))
    solution = solve(gradients_KP, groups={"one": {"b": 3, "e": 1}, "two": {"c": 1, "d": 1}})
    alpha_K = solution.alpha_K
    assert alpha_K[1] == pytest.approx(3 * alpha_K[4], abs=1e-12)
    assert alpha_K[2] == pytest.approx(alpha_K[3], abs=1e-12)
    mixes_UP = np.array([gradients_KP[0], [0, 0.75, 0, 0, 0.25] @ gradients_KP, [0, 0, 0.5, 0.5, 0] @ gradients_KP])
    d_P = alpha_K @ gradients_KP
    assert (mixes_UP @ d_P).min() >= d_P @ d_P - 1e-9


def test_a_group_shares_out_to_those_present_and_leaves_when_none_is() -> None:
    groups = {"one": {"a": 3, "b": 1}}
    np.testing.assert_allclose(solve(np.eye(3), [False, True, True], groups=groups).alpha_K, [0, 0.5, 0.5], atol=1e-12)
    np.testing.assert_allclose(solve(np.eye(3), [False, False, True], groups=groups).alpha_K, [0, 0, 1.0])


def test_a_group_whose_members_cancel_is_reported() -> None:
    solution = solve(np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]), groups={"one": {"a": 1, "b": 1}})
    np.testing.assert_allclose(solution.alpha_K, [0.5, 0.5, 0.0], atol=1e-12)
    assert solution.report.status == "stationary"


# All of them --------------------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_together_they_minimise_the_length_per_preferred_improvement(seed: int) -> None:
    """‖Σ γ_u h_u‖ / (p·γ) over γ ≥ f is what all three say at once; also when permuted and rescaled."""
    rng = np.random.default_rng(seed)
    gradients_KP = unit_rows(random_directions(rng, 5, 4))
    config: dict[str, Any] = {
        "groups": {"one": {"a": 1, "b": 2}},
        "floors": {"one": 0.2, "d": 0.1},
        "preference": {"one": 2.0, "c": 1.0, "d": 0.5, "e": 1.5},
    }
    solution = solve(gradients_KP * random_sizes(rng, 5)[:, None], **config)
    alpha_K = solution.alpha_K
    gamma_U = np.array([alpha_K[0] + alpha_K[1], *alpha_K[2:]])
    floors_U, p_U = np.array([0.2, 0.0, 0.1, 0.0]), np.array([2.0, 1.0, 0.5, 1.5])
    assert (gamma_U >= floors_U - 1e-12).all()
    mixes_UP = np.array([(gradients_KP[0] + 2 * gradients_KP[1]) / 3, *gradients_KP[2:]])
    hull_UU = gramian(mixes_UP)

    def length(weights_U: Floats) -> float:
        return float(squared_norm(hull_UU, weights_U) / (p_U @ weights_U) ** 2)

    for beta_U in random_simplex(rng, 200, 4):
        assert length(gamma_U) <= length(floors_U + 0.7 * beta_U) + 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_permuting_rewards_permutes_the_weights(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gradients_KP, order = random_directions(rng, 5, 5), rng.permutation(5)
    preference = {"one": 2.0, "c": 1.0, "d": 3.0, "e": 1.0}
    config = HarmonizerConfig(groups={"one": {"a": 1, "b": 2}}, floors={"d": 0.3}, preference=preference)
    everyone = np.ones(5, dtype=bool)
    straight = Harmonizer(NAMES, config).solve(0, gramian(gradients_KP), everyone)
    names = [NAMES[k] for k in order]
    permuted = Harmonizer(names, config).solve(0, gramian(gradients_KP[order]), everyone)
    np.testing.assert_allclose(permuted.alpha_K, straight.alpha_K[order], rtol=0, atol=1e-9)
