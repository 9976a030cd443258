"""`kl: constraint`: the direction's growth of KL is computed here from gradients, not from the code's formula."""

from typing import Any

import numpy as np
import pytest
from gram_zoo import assert_on_simplex, gramian, random_directions, random_sizes, unit_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from harmonizer.arrays import Floats
from harmonizer.config import HarmonizerConfig
from harmonizer.formulas import squared_norm
from harmonizer.harmonizer import Harmonizer, Solution
from harmonizer.steering import crossings

NAMES = ("a", "b", "c", "d", "e", "f")
ROOT_HALF = np.sqrt(0.5)


def solve(gradients_KP: Floats, kl_P: Floats | None, bound: float = 0.0, **settings_: Any) -> Solution:
    num_rewards = len(gradients_KP)
    config = HarmonizerConfig(kl="constraint", kl_bound=bound, **settings_)
    cosines_K = None if kl_P is None else unit_rows(gradients_KP) @ kl_P / np.linalg.norm(kl_P)
    harmonizer = Harmonizer(NAMES[:num_rewards], config)
    return harmonizer.solve(0, gramian(gradients_KP), np.ones(num_rewards, dtype=bool), cosines_K)


def raised(alpha_K: Floats, units_KP: Floats, kl_P: Floats) -> float:
    """First-order growth of KL along −Σ α_k ĝ_k, per length of ∇KL."""
    return float(-(alpha_K @ units_KP) @ kl_P / np.linalg.norm(kl_P))


def test_a_bound_by_hand() -> None:
    """x and y with ∇KL = (−1, 1/2): the middle raises KL, and (1/3, 2/3) leaves it as it is."""
    kl_P = np.array([-1.0, 0.5])
    solution = solve(np.diag([1.0, 100.0]), kl_P)
    np.testing.assert_allclose(solution.alpha_K, [1 / 3, 2 / 3], atol=1e-12)
    report = solution.report
    assert (report.kl_status, report.status) == ("active", "optimal")
    assert report.kl_growth == pytest.approx(0, abs=1e-12)
    assert report.kkt_gap <= 1e-12


def test_a_wide_bound_changes_nothing() -> None:
    """The middle's growth is 1/4 / √(5/4) = 0.2236."""
    solution = solve(np.eye(2), np.array([-1.0, 0.5]), bound=0.23)
    np.testing.assert_allclose(solution.alpha_K, [0.5, 0.5], atol=1e-12)
    assert (solution.report.kl_status, solution.report.kl_growth) == ("slack", pytest.approx(0.25 / np.sqrt(1.25)))


def test_a_bound_that_nothing_keeps_takes_the_mix_that_raises_kl_least() -> None:
    solution = solve(np.eye(2), np.array([-1.0, -0.5]), bound=0.1)
    np.testing.assert_allclose(solution.alpha_K, [0.0, 1.0], atol=1e-12)
    assert solution.report.kl_status == "infeasible"
    assert solution.report.kl_growth == pytest.approx(0.5 / np.sqrt(1.25))


def test_where_several_raise_kl_least_they_are_balanced() -> None:
    solution = solve(np.eye(3), np.array([-1.0, -0.5, -0.5]), bound=0.1)
    np.testing.assert_allclose(solution.alpha_K, [0.0, 0.5, 0.5], atol=1e-9)


@pytest.mark.parametrize("kl_P", [None, np.zeros(2), np.array([np.nan, 1.0])])
def test_without_a_kl_gradient_there_is_no_bound(kl_P: Floats | None) -> None:
    with np.errstate(invalid="ignore"):
        solution = solve(np.eye(2), kl_P)
    np.testing.assert_allclose(solution.alpha_K, [0.5, 0.5], atol=1e-12)
    assert solution.report.kl_status == ("" if kl_P is None else "unknown")


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), num_rewards=st.integers(2, 6), bound=st.sampled_from([0.0, 0.1, 0.3]))
def test_no_mix_within_the_bound_is_shorter(seed: int, num_rewards: int, bound: float) -> None:
    rng = np.random.default_rng(seed)
    gradients_KP = random_directions(rng, num_rewards, num_rewards)
    units_KP, kl_P = unit_rows(gradients_KP), rng.standard_normal(gradients_KP.shape[1])
    solution = solve(gradients_KP * random_sizes(rng, num_rewards)[:, None], kl_P, bound)
    assert_on_simplex(solution.alpha_K)
    grown = raised(solution.alpha_K, units_KP, kl_P)
    assert solution.report.kl_growth == pytest.approx(grown, abs=1e-9)
    assert (grown <= bound + 1e-9) == (solution.report.kl_status != "infeasible")
    allowed, least = max(grown, bound), squared_norm(gramian(units_KP), solution.alpha_K)
    for other_K in rng.dirichlet(np.full(num_rewards, 0.5), 300):
        if solution.report.kl_status == "infeasible":
            assert raised(other_K, units_KP, kl_P) >= grown - 1e-9
        elif raised(other_K, units_KP, kl_P) <= allowed:
            assert least <= squared_norm(gramian(units_KP), other_K) + 1e-10


def test_raw_gradients_count_by_their_length() -> None:
    """x and 3y: growth is α_a − 3 α_b/2 times a factor, so KL stands still at α = (3/5, 2/5)."""
    solution = solve(np.diag([1.0, 3.0]), np.array([-1.0, 0.5]), normalize=False)
    np.testing.assert_allclose(solution.alpha_K, [3 / 5, 2 / 5], atol=1e-12)


def test_floors_and_groups_stay_while_kl_is_bounded() -> None:
    kl_P = np.array([-1.0, 0.5, 0.2, 0.0])
    solution = solve(np.eye(4), kl_P, floors={"a": 0.2}, groups={"one": {"b": 2, "c": 1}})
    assert solution.alpha_K[0] >= 0.2 - 1e-12
    assert solution.alpha_K[1] == pytest.approx(2 * solution.alpha_K[2], abs=1e-12)
    assert raised(solution.alpha_K, np.eye(4), kl_P) == pytest.approx(0, abs=1e-12)
    assert solution.report.kl_status == "active"


def test_sixteen_rewards_half_of_which_raise_kl() -> None:
    """The most corners a bound can have: 8 × 8."""
    rng = np.random.default_rng(3)
    gradients_KP = rng.standard_normal((16, 20))
    gradients_KP[:, 0] = np.where(np.arange(16) < 8, -2.0, 1.0)
    harmonizer = Harmonizer([str(k) for k in range(16)], HarmonizerConfig(kl="constraint"))
    cosines_K = unit_rows(gradients_KP)[:, 0]
    solution = harmonizer.solve(0, gramian(gradients_KP), np.ones(16, dtype=bool), cosines_K)
    assert_on_simplex(solution.alpha_K)
    assert solution.report.kl_status == "active"
    assert solution.report.kl_growth == pytest.approx(0, abs=1e-9)
    assert solution.report.kkt_gap <= 1e-7


def test_crossings_by_hand() -> None:
    """From −1 to +3 an edge passes 0 after a quarter of the way."""
    rows = crossings(np.array([-1.0, 0.0, 3.0]))
    np.testing.assert_allclose(rows, [[0, 1, 0], [0.75, 0, 0.25]], atol=1e-15)


@pytest.mark.parametrize(
    ("cosines", "said"),
    [([0.5], r"kl_cosines_K must be \[2\], got shape \[1\]"), ([0.5, 1.5], "must be cosines, got")],
)
def test_bad_cosines_are_refused_and_nothing_remembered(cosines: list[float], said: str) -> None:
    harmonizer = Harmonizer(("a", "b"), HarmonizerConfig(kl="constraint"))
    before = harmonizer.state_dict()
    with pytest.raises(ValueError, match=said):
        harmonizer.solve(0, np.eye(2), np.ones(2, dtype=bool), cosines)
    assert harmonizer.state_dict() == before
