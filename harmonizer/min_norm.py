"""The min-norm QP through cvxpy: compiled once per size, a chain of solvers, an exact finish, and a verdict."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np

from harmonizer.active_set import polished
from harmonizer.arrays import Floats, Indices
from harmonizer.formulas import cancels, kkt_gap, squared_norm
from harmonizer.gramian import gramian_factor
from harmonizer.report import Weighting
from harmonizer.weighing import WeighingMethod

MAX_GAP = 1e-7
"""KKT gap up to which an answer is taken; above it the next solver is asked."""

SOLVER_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    # The objective is a squared norm: an α good to 1e-6 needs it to 1e-12, far below solvers' defaults.
    "CLARABEL": {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12},
    "OSQP": {"eps_abs": 1e-10, "eps_rel": 1e-10, "max_iter": 20_000},
    "HIGHS": {},
    "SCS": {"eps_abs": 1e-10, "eps_rel": 1e-10, "max_iters": 20_000},
}
"""In the order in which they are asked. Those not installed are passed over."""


class _CompiledQp:
    """min ‖Fᵀα‖² over the simplex for one M, with F as a parameter."""

    def __init__(self, size: int) -> None:
        self._factor = cp.Parameter((size, size))
        self._alpha = cp.Variable(size, nonneg=True)
        self._problem = cp.Problem(
            cp.Minimize(cp.sum_squares(self._factor.T @ self._alpha)), [cp.sum(self._alpha) == 1]
        )
        # Without DPP cvxpy would compile the problem anew on every solve, twenty times the cost.
        assert self._problem.is_dpp()

    def solve(self, factor_MM: Floats, solver: str) -> tuple[Floats | None, str]:
        """The solver's own α [M] and status; None without an answer."""
        self._factor.value = factor_MM
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # cvxpy warns of what the status and the KKT gap say
            # Warm starts would let α depend on earlier solves, and a resumed run differ in the last bits.
            self._problem.solve(solver=solver, warm_start=False, **SOLVER_OPTIONS[solver])
        value = self._alpha.value
        return (None if value is None else np.asarray(value, dtype=np.float64)), str(self._problem.status)


class MinNorm(WeighingMethod):
    """α* = argmin over the simplex of ‖Σ α_k ĝ_k‖² (MARBLE, arXiv 2605.06507, gradient harmonization)."""

    def __init__(self, solvers: Sequence[str] | None = None) -> None:
        """Ask `solvers` in turn (default: all of SOLVER_OPTIONS that are installed).

        Raises:
            ValueError: a solver without options here.
        """
        if solvers is None:
            installed = cp.installed_solvers()
            solvers = [name for name in SOLVER_OPTIONS if name in installed]
        unknown = [name for name in solvers if name not in SOLVER_OPTIONS]
        if unknown:
            raise ValueError(f"solvers must be among {', '.join(SOLVER_OPTIONS)}, got {', '.join(unknown)}")
        self._solvers = tuple(solvers)
        self._compiled: dict[int, _CompiledQp] = {}

    def __call__(self, gramian_MM: Floats, members_M: Indices, kl_cosines_M: Floats | None = None) -> Weighting:
        """Weights for a Gram matrix [M, M] with diagonal at most 1, M ≥ 1; which rewards they are does not matter."""
        if len(gramian_MM) == 1:
            return Weighting(np.ones(1), "single", "none", kkt_gap=0.0)
        found = self._best_of_chain(gramian_MM, gramian_factor(gramian_MM))
        found = replace(found, kkt_gap=kkt_gap(gramian_MM, found.alpha_M))
        if found.status == "fallback":
            return found
        if found.kkt_gap > MAX_GAP:
            return replace(found, status="optimal_inaccurate")
        return replace(found, status="stationary") if cancels(gramian_MM, found.alpha_M) else found

    def _best_of_chain(self, gramian_MM: Floats, factor_MM: Floats) -> Weighting:
        """The first answer within MAX_GAP, else the best of all answers, else the best feasible point."""
        answers: list[tuple[float, Floats, str]] = []
        complaints: list[str] = []
        for solver in self._solvers:
            alpha_M, complaint = self._ask(factor_MM, solver)
            if alpha_M is not None:
                alpha_M = finished(gramian_MM, factor_MM, alpha_M)
                gap = kkt_gap(gramian_MM, alpha_M)
                answers.append((gap, alpha_M, solver))
                if gap <= MAX_GAP:
                    break
                complaint = f"KKT gap {gap:.3g}"
            complaints.append(f"{solver}: {complaint}")
        if answers:
            _, alpha_M, solver = min(answers, key=lambda answer: answer[0])
            return Weighting(alpha_M, "optimal", solver, tuple(complaints))
        alpha_M = finished(gramian_MM, factor_MM, best_simple_point(gramian_MM))
        return Weighting(alpha_M, "fallback", "active_set", tuple(complaints))

    def _ask(self, factor_MM: Floats, solver: str) -> tuple[Floats | None, str]:
        """One solver's α [M] brought onto the simplex; or None and what went wrong."""
        size = len(factor_MM)
        if size not in self._compiled:
            self._compiled[size] = _CompiledQp(size)
        try:
            alpha_M, status = self._compiled[size].solve(factor_MM, solver)
        except (cp.error.SolverError, ArithmeticError, ValueError) as error:
            return None, str(error)
        # Whatever the status says of accuracy, the KKT gap decides.
        return (None if alpha_M is None else on_simplex(alpha_M)), status


def on_simplex(alpha_M: Floats) -> Floats | None:
    """[M] a solver's answer without its rounding below 0 and off sum 1; None when nothing of it is usable."""
    if not np.isfinite(alpha_M).all():
        return None
    clipped_M = np.maximum(alpha_M, 0.0)
    total = clipped_M.sum()
    return clipped_M / total if total > 0 else None


def finished(gramian_MM: Floats, factor_MM: Floats, alpha_M: Floats) -> Floats:
    """[M] the polished α, or α itself where polishing did not bring the KKT gap down to rounding or improve it."""
    exact_M = polished(factor_MM, alpha_M)
    rounding = 1e-12
    gap = kkt_gap(gramian_MM, exact_M)
    return exact_M if gap <= max(rounding, kkt_gap(gramian_MM, alpha_M)) else alpha_M


def best_simple_point(gramian_MM: Floats) -> Floats:
    """[M] the shortest of the single gradients and their mean: always there, whatever the solvers do."""
    size = len(gramian_MM)
    candidates = [*np.eye(size), np.full(size, 1.0 / size)]
    return np.asarray(min(candidates, key=lambda alpha_M: squared_norm(gramian_MM, alpha_M)))
