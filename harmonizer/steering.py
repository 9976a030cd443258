"""Min-norm weights under a user's wishes: groups with one budget, floors, a preference, a bound on KL's growth.

Each wish only narrows or reshapes the set of allowed directions to another convex hull, so the problem stays what it
was: the shortest point of a hull, whose corners are fixed non-negative mixes of the gradients. Corners are the rows of
a matrix; the solver, its polish and its KKT gap are those of the plain problem.

Letters: K rewards of the run, M of them in one solve, U units (groups, and rewards in no group), V corners.

groups      h_u = Σ_{k∈u} s_k ĝ_k with fixed shares s; γ = argmin over the simplex of ‖Σ γ_u h_u‖; α_k = γ_u s_k.
            A group is one voice however many members it has. The direction serves every group's mix, not every member.
floors      γ_u ≥ f_u. With φ = Σ f, γ = f + (1 − φ) β and β on the simplex: corners Σ_v f_v h_v + (1 − φ) h_u.
preference  Improvement in proportion to p: d maximises min_u ⟨h_u, d⟩ / p_u among directions of the same length. The
            dual is min-norm over the hull of h_u / p_u, so on the support ⟨h_u, d⟩ ∝ p_u; equal p is the plain problem.
kl bound    −Σ α_k ℓ_k c_k ≤ b Σ α_k ℓ_k with c_k the cosine of g_k with ∇KL and ℓ_k the length that is balanced (1 for
            unit gradients). Along −d the left side is ⟨−∇KL/‖∇KL‖, d⟩: how fast a step raises KL at first order.
All four combine. In a batch that lacks rewards, shares go to the members present, and units without any leave.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from harmonizer.arrays import Floats, Indices
from harmonizer.config import HarmonizerConfig
from harmonizer.formulas import cancels
from harmonizer.report import Weighting
from harmonizer.weighing import WeighingMethod

ROUNDING = 1e-12
"""Growth beyond the bound by less is on the bound."""


@dataclass(frozen=True, eq=False)
class Steering:
    """What a recipe wishes, as arrays."""

    shares_UK: Floats
    """[U, K] s: share of each reward in each unit; rows sum to 1."""
    floors_U: Floats
    """[U] f."""
    preference_U: Floats
    """[U] p, positive."""

    @classmethod
    def of(cls, config: HarmonizerConfig, reward_names: Sequence[str]) -> "Steering":
        """Read a recipe whose names have been checked."""
        units = config.units(reward_names)
        shares = [[members.get(name, 0.0) for name in reward_names] for members in units.values()]
        floors = [(config.floors or {}).get(unit, 0.0) for unit in units]
        preference = [(config.preference or {}).get(unit, 1.0) for unit in units]
        return cls(np.array(shares), np.array(floors), np.array(preference))

    def corners(self, members_M: Indices) -> Floats:
        """[V, M] corners of the hull as mixes of the members' gradients, V the units present; entries at most 1."""
        shares_UM = self.shares_UK[:, members_M]
        present_U = shares_UM.sum(axis=1) > 0
        shares_UM = shares_UM[present_U] / shares_UM[present_U].sum(axis=1, keepdims=True)
        floors_U, preference_U = self.floors_U[present_U], self.preference_U[present_U]
        room = max(0.0, 1.0 - float(floors_U.sum()))
        mixes_VU = floors_U[None, :] + room * np.eye(len(floors_U))
        rates_V = mixes_VU @ preference_U
        # A common factor changes nothing; this one keeps the Gram matrix of the corners at most 1.
        return np.asarray(
            (rates_V.min() / rates_V)[:, None] * (mixes_VU / mixes_VU.sum(axis=1, keepdims=True)) @ shares_UM
        )

    def floors_K(self, members_M: Indices, num_rewards: int) -> Floats:
        """[K] least weight of each member, f_u s_k; 0 for the others."""
        shares_UM = self.shares_UK[:, members_M]
        totals_U = shares_UM.sum(axis=1, keepdims=True)
        shares_UM = np.divide(shares_UM, totals_U, out=np.zeros_like(shares_UM), where=totals_U > 0)
        floors = np.zeros(num_rewards)
        floors[members_M] = self.floors_U @ shares_UM
        return floors


class Steered(WeighingMethod):
    """Min-norm under a :class:`Steering`, and under a bound on KL's growth where one is set."""

    def __init__(self, solver: WeighingMethod, steering: Steering, kl_bound: float | None) -> None:
        self._solver = solver
        self.steering = steering
        self._kl_bound = kl_bound

    def __call__(self, gramian_MM: Floats, members_M: Indices, kl_cosines_M: Floats | None = None) -> Weighting:
        corners_VM = self.steering.corners(members_M)
        found = self._shortest(gramian_MM, corners_VM)
        if self._kl_bound is None or kl_cosines_M is None:
            return found
        if not np.isfinite(kl_cosines_M).all():  # ∇KL is zero, as at the very start, or broken
            return replace(found, kl_status="unknown")
        lengths_M = np.sqrt(np.diag(gramian_MM))
        return self._bounded(gramian_MM, corners_VM, lengths_M, kl_cosines_M, found)

    def _bounded(
        self, gramian_MM: Floats, corners_VM: Floats, lengths_M: Floats, kl_cosines_M: Floats, free: Weighting
    ) -> Weighting:
        """`free` where it keeps the bound; else the shortest point on it; else the mix that raises KL least."""
        bound = float(self._kl_bound or 0.0)
        grown = growth(free.alpha_M, lengths_M, kl_cosines_M)
        if grown <= bound + ROUNDING:
            return replace(free, kl_growth=grown, kl_status="slack")
        # The free optimum breaks the bound and the problem is convex, so the bounded one lies on the bound itself.
        least = min(growth(row, lengths_M, kl_cosines_M) for row in corners_VM)
        feasible = least <= bound + ROUNDING
        excess_M = lengths_M * (-kl_cosines_M - (bound if feasible else least))
        on_bound_VM = crossings(corners_VM @ excess_M) @ corners_VM
        found = self._shortest(gramian_MM, on_bound_VM)
        grown = growth(found.alpha_M, lengths_M, kl_cosines_M)
        return replace(found, kl_growth=grown, kl_status="active" if feasible else "infeasible")

    def _shortest(self, gramian_MM: Floats, corners_VM: Floats) -> Weighting:
        """α [M] of the shortest point of the hull of the corners; the KKT gap is that of this hull."""
        hull_VV = corners_VM @ gramian_MM @ corners_VM.T
        found = self._solver((hull_VV + hull_VV.T) / 2, np.arange(len(corners_VM)))
        alpha_M = corners_VM.T @ found.alpha_M
        alpha_M /= alpha_M.sum()
        status = found.status
        if status == "single" and len(alpha_M) > 1:  # one corner, but several rewards in it
            status = "stationary" if cancels(gramian_MM, alpha_M) else "optimal"
        return replace(found, alpha_M=alpha_M, status=status)


def growth(weights_M: Floats, lengths_M: Floats, kl_cosines_M: Floats) -> float:
    """−Σ w_k ℓ_k c_k / Σ w_k ℓ_k: KL's first-order growth along −Σ w_k g_k, per length that went in.

    Args:
        weights_M: non-negative, any scale.
        lengths_M: ℓ_k, of the gradients that are balanced.
        kl_cosines_M: c_k = cos(∇KL, g_k).
    """
    pulls_M = weights_M * lengths_M
    return float(-(pulls_M @ kl_cosines_M) / pulls_M.sum())


def crossings(excess_V: Floats) -> Floats:
    """[W, V] corners of {β on the simplex: excess·β = 0}: those with excess 0, and where an edge passes from − to +."""
    scale = float(np.abs(excess_V).max())
    signs_V = np.where(np.abs(excess_V) <= ROUNDING * max(1.0, scale), 0.0, np.sign(excess_V))
    identity = np.eye(len(excess_V))
    rows = [identity[v] for v in np.flatnonzero(signs_V == 0)]
    for low in np.flatnonzero(signs_V < 0):
        for high in np.flatnonzero(signs_V > 0):
            rows.append(excess_V[high] * identity[low] - excess_V[low] * identity[high])
            rows[-1] /= excess_V[high] - excess_V[low]
    return np.array(rows)
