"""The QP: golden numbers, KKT on every kind of Gram matrix, the chain of solvers."""

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from gram_zoo import assert_min_norm, assert_on_simplex, gramian, random_directions, random_sizes, unit_rows

from harmonizer.arrays import Floats
from harmonizer.formulas import kkt_gap
from harmonizer.gramian import departures, gradient_norms, unit_gramian
from harmonizer.min_norm import SOLVER_OPTIONS, MinNorm, _CompiledQp, best_simple_point, on_simplex

SQRT2 = np.sqrt(2.0)


@pytest.fixture(scope="module")
def min_norm() -> MinNorm:
    return MinNorm()


def solve(method: MinNorm, gramian_KK: Floats) -> Any:
    return method(gramian_KK, np.arange(len(gramian_KK)))


def random_unit_gramian(rng: np.random.Generator) -> Floats | None:
    """[M, M] of K 1..16 gradients of rank 1..K, sizes 1e-8..1e8, with duplicates, opposites and zeros (which leave)."""
    num_rewards = int(rng.integers(1, 17))
    directions_KP = random_directions(rng, num_rewards, int(rng.integers(1, num_rewards + 1)), int(rng.integers(0, 4)))
    gramian_KK = gramian(directions_KP * random_sizes(rng, num_rewards)[:, None])
    names = [str(k) for k in range(num_rewards)]
    left = departures(gramian_KK, np.ones(num_rewards, dtype=bool), names)
    members = [k for k, name in enumerate(names) if name not in left]
    if not members:
        return None
    block_MM = gramian_KK[np.ix_(members, members)]
    return unit_gramian(block_MM, gradient_norms(block_MM))


@pytest.mark.parametrize(
    ("gradients", "alpha"),
    [
        ([[1.0, 0.0], [0.0, 1.0]], [0.5, 0.5]),
        ([[1.0, 0.0], [-0.6, 0.8]], [0.5, 0.5]),  # unit gradients: the middle, whatever the angle
        ([[1.0, 0.0], [0.0, 2.0]], [0.8, 0.2]),  # raw ones: α₁² + 4α₂² is least at 4/5
        ([[1.0, 0.0], [2.0, 0.0]], [1.0, 0.0]),  # raw and collinear: the shorter
        (np.eye(3), [1 / 3, 1 / 3, 1 / 3]),
        # x, and y and z at 60°: α ∝ G⁻¹1 = (1, 2/3, 2/3)
        ([[1, 0, 0], [0, 1, 0], [0, 0.5, np.sqrt(0.75)]], [3 / 7, 2 / 7, 2 / 7]),
        # the third lies between the others and is served by their middle already
        ([[1.0, 0.0], [0.0, 1.0], [1 / SQRT2, 1 / SQRT2]], [0.5, 0.5, 0.0]),
        # the third against both: they cancel at (1, 1, √2)/(2 + √2)
        ([[1.0, 0.0], [0.0, 1.0], [-1 / SQRT2, -1 / SQRT2]], np.array([1, 1, SQRT2]) / (2 + SQRT2)),
    ],
)
def test_golden_numbers(min_norm: MinNorm, gradients: list[list[float]], alpha: list[float]) -> None:
    gramian_KK = gramian(np.array(gradients))
    gramian_KK = gramian_KK / np.diag(gramian_KK).max()
    np.testing.assert_allclose(solve(min_norm, gramian_KK).alpha_M, alpha, rtol=0, atol=1e-12)


def test_one_reward_needs_no_solver(min_norm: MinNorm) -> None:
    found = solve(min_norm, np.eye(1))
    assert (found.alpha_M.tolist(), found.status, found.solver) == ([1.0], "single", "none")


@pytest.mark.parametrize(
    ("gradients", "status"),
    [
        ([[1.0, 0.0], [0.0, 1.0]], "optimal"),
        ([[1.0, 0.0], [1.0, 0.0]], "optimal"),
        ([[1.0, 0.0], [-1.0, 0.0]], "stationary"),
        ([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]], "stationary"),
    ],
)
def test_status_says_whether_the_gradients_cancel(min_norm: MinNorm, gradients: list[list[float]], status: str) -> None:
    """FAULTS 17: duplicates are harmless, opposites leave no direction, and the report tells."""
    found = solve(min_norm, gramian(np.array(gradients)))
    assert (found.status, found.solver, found.complaints) == (status, "CLARABEL", ())
    assert_on_simplex(found.alpha_M)


def check_random_gramians(method: MinNorm, seed: int, number: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(number):
        unit_MM = random_unit_gramian(rng)
        if unit_MM is None:
            continue
        found = solve(method, unit_MM)
        assert found.status in ("optimal", "stationary", "single")
        assert_min_norm(unit_MM, found.alpha_M)


def test_kkt_on_random_gramians(min_norm: MinNorm) -> None:
    """FAULTS 16 and 17."""
    check_random_gramians(min_norm, seed=0, number=300)


@pytest.mark.slow
def test_kkt_on_ten_thousand_gramians(min_norm: MinNorm) -> None:
    """FAULTS 16 and 17."""
    check_random_gramians(min_norm, seed=1, number=10_000)


def test_permuting_gradients_permutes_the_answer(min_norm: MinNorm) -> None:
    """α itself where one α is the answer, the direction of degenerate Gram matrices; K 2..16, all ranks, duplicates."""
    rng = np.random.default_rng(6)
    unique = 0
    for _ in range(200):
        unit_MM = random_unit_gramian(rng)
        if unit_MM is None or len(unit_MM) == 1:
            continue
        order = rng.permutation(len(unit_MM))
        straight_M = solve(min_norm, unit_MM).alpha_M
        back_M = np.empty_like(straight_M)
        back_M[order] = solve(min_norm, unit_MM[np.ix_(order, order)]).alpha_M
        apart_M = back_M - straight_M
        assert apart_M @ unit_MM @ apart_M <= 1e-12
        if np.linalg.eigvalsh(unit_MM)[0] > 1e-6:
            unique += 1
            np.testing.assert_allclose(back_M, straight_M, rtol=0, atol=1e-9)
    assert unique > 10


@pytest.mark.parametrize("distance", [1e-14, 1e-10, 1e-8, 1e-6, 1e-3])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_kkt_near_duplicates_and_opposites(min_norm: MinNorm, distance: float, sign: float) -> None:
    """FAULTS 17: α may be a matter of rounding there, the point it gives may not."""
    rng = np.random.default_rng(5)
    gradients_KP = rng.standard_normal((6, 9))
    gradients_KP[1] = sign * (gradients_KP[0] + distance * rng.standard_normal(9))
    gradients_KP[3] = sign * (gradients_KP[2] + distance * rng.standard_normal(9))
    unit_KK = gramian(unit_rows(gradients_KP))
    assert_min_norm(unit_KK, solve(min_norm, unit_KK).alpha_M)


@pytest.mark.parametrize("solver", SOLVER_OPTIONS)
def test_each_solver_of_the_chain_gives_the_same_weights(min_norm: MinNorm, solver: str) -> None:
    if solver not in cp.installed_solvers():
        pytest.fail(f"{solver} comes with cvxpy's dependencies; the chain names it")
    rng = np.random.default_rng(2)
    method = MinNorm([solver])
    for rank in (2, 5):
        unit_KK = gramian(unit_rows(random_directions(rng, 5, rank)))
        found = solve(method, unit_KK)
        assert (found.solver, found.complaints) == (solver, ())
        np.testing.assert_allclose(found.alpha_M, solve(min_norm, unit_KK).alpha_M, rtol=0, atol=1e-9)


def test_a_solver_that_fails_hands_over_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    real = _CompiledQp.solve

    def broken(self: _CompiledQp, factor_MM: Floats, solver: str) -> tuple[Floats | None, str]:
        if solver == "CLARABEL":
            raise cp.error.SolverError("numerical trouble")
        return real(self, factor_MM, solver)

    monkeypatch.setattr(_CompiledQp, "solve", broken)
    found = solve(MinNorm(), np.eye(3))
    assert (found.status, found.solver) == ("optimal", "OSQP")
    assert found.complaints == ("CLARABEL: numerical trouble",)
    np.testing.assert_allclose(found.alpha_M, 1 / 3, atol=1e-12)


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [((None, "infeasible"), "infeasible"), ((np.array([np.nan] * 3), "optimal"), "optimal"), ((-np.ones(3), "x"), "x")],
)
def test_without_any_answer_the_best_feasible_point_is_refined(
    monkeypatch: pytest.MonkeyPatch, answer: tuple[Floats | None, str], complaint: str
) -> None:
    monkeypatch.setattr(_CompiledQp, "solve", lambda *_: answer)
    unit_KK = gramian(unit_rows(random_directions(np.random.default_rng(4), 3, 3)))
    found = solve(MinNorm(["CLARABEL", "SCS"]), unit_KK)
    assert (found.status, found.solver) == ("fallback", "active_set")
    assert found.complaints == (f"CLARABEL: {complaint}", f"SCS: {complaint}")
    assert_min_norm(unit_KK, found.alpha_M)


def test_a_poor_answer_is_repaired_or_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solver that stops early is polished; where even that fails, the gap decides, not the solver's word."""
    monkeypatch.setattr(_CompiledQp, "solve", lambda *_: (np.array([0.9, 0.1]), "optimal"))
    assert solve(MinNorm(["CLARABEL"]), np.eye(2)).alpha_M == pytest.approx([0.5, 0.5])
    monkeypatch.setattr("harmonizer.min_norm.polished", lambda _factor, alpha_M: alpha_M)
    found = solve(MinNorm(["CLARABEL", "OSQP"]), np.eye(2))
    assert found.status == "optimal_inaccurate"
    assert found.complaints == ("CLARABEL: KKT gap 0.72", "OSQP: KKT gap 0.72")
    assert_on_simplex(found.alpha_M)


def test_unknown_solver_is_refused() -> None:
    with pytest.raises(ValueError, match=r"CLARABEL.*got MOSEK"):
        MinNorm(["CLARABEL", "MOSEK"])


def test_a_problem_is_compiled_once_per_size(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    real = _CompiledQp.__init__

    def counted(self: _CompiledQp, size: int) -> None:
        compiled.append(size)
        real(self, size)

    monkeypatch.setattr(_CompiledQp, "__init__", counted)
    method = MinNorm()
    for size in (3, 4, 3, 4, 3):
        solve(method, np.eye(size))
    assert compiled == [3, 4]


def test_weights_do_not_depend_on_earlier_solves() -> None:
    """A resumed run solves as the uninterrupted one did, to the last bit."""
    rng = np.random.default_rng(8)
    unit_KK = gramian(unit_rows(random_directions(rng, 5, 5)))
    fresh, used = MinNorm(), MinNorm()
    for _ in range(4):
        solve(used, gramian(unit_rows(random_directions(rng, 5, 3))))
    np.testing.assert_array_equal(solve(fresh, unit_KK).alpha_M, solve(used, unit_KK).alpha_M)


def test_on_simplex() -> None:
    np.testing.assert_allclose(on_simplex(np.array([0.5, -1e-9, 0.6])), [5 / 11, 0.0, 6 / 11])
    assert on_simplex(np.array([np.nan, 1.0])) is None
    assert on_simplex(np.array([-1.0, -2.0])) is None


def test_best_simple_point_is_the_shortest() -> None:
    np.testing.assert_array_equal(best_simple_point(np.eye(2)), [0.5, 0.5])
    np.testing.assert_array_equal(best_simple_point(np.array([[1.0, 0.9], [0.9, 0.81]])), [0.0, 1.0])
    assert kkt_gap(np.eye(2), best_simple_point(np.eye(2))) == 0
