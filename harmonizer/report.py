"""What the harmonizer hands out: a solve with its report, cached weights, and the plan that picks between them."""

from dataclasses import dataclass

from harmonizer.arrays import Bools, Floats


@dataclass(frozen=True, eq=False)
class Weighting:
    """Weights of the M rewards of one solve and where they come from."""

    alpha_M: Floats
    """[M] on the simplex, or all 0 when no member may have weight."""
    status: str
    """As in :class:`SolveReport`."""
    solver: str
    complaints: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class SolveReport:
    """How one solve went. NaN means: not known, because the reward was not in the QP or the direction is zero."""

    status: str
    """Of the QP: `optimal`; `stationary`: optimal, but the gradients cancel, so no direction serves every reward;
    `optimal_inaccurate`: `kkt_gap` is above 1e-7; `fallback`: every solver failed, best feasible point.
    Without a QP: `single` (one reward left), `no_active` (none left: apply no step), `uniform`, `fixed`."""
    solver: str
    """Name of the solver that gave α*; `none` where none was needed."""
    kkt_gap: float
    """αᵀGα − min_k (Gα)_k on the Gram matrix that was balanced; 0 at the min-norm point."""
    inner_products_K: Floats
    """[K] ⟨ĝ_k, Σ_j α*_j ĝ_j⟩: positive where the solved direction serves reward k."""
    cosines_K: Floats
    """[K] cosine of each reward's gradient with the applied direction."""
    cosine_KK: Floats
    """[K, K] cosines between the rewards' gradients."""
    worst_cosine: float
    """Smallest of `cosines_K`."""
    left: dict[str, str]
    """Reward name → why it left: `no signal`, `zero gradient`, `non-finite gradient`, `zero weight`."""
    complaints: tuple[str, ...] = ()
    """What was wrong with the answers of the solvers asked before, one `SOLVER: reason` each."""


@dataclass(frozen=True, eq=False)
class Solution:
    """One solving step: the reward part of the step is d = Σ_k coefficients_k g_k."""

    alpha_K: Floats
    """[K] this solve's α*, on the simplex; 0 where a reward left; all 0 when none was active."""
    ema_K: Floats
    """[K] ᾱ after this solve; 0 for a reward never yet solved."""
    coefficients_K: Floats
    """[K] a_k on the raw gradients; 0 where a reward left."""
    mean_norm: float
    """n̄ over `active_K`; 0 when none was active. Not a factor of the coefficients when `normalize` is off."""
    norms_K: Floats
    """[K] ‖g_k‖ in this batch; NaN where unknown or not finite."""
    active_K: Bools
    """[K] rewards that were weighed: with signal, finite and not zero."""
    report: SolveReport


@dataclass(frozen=True, eq=False)
class AmortizedWeights:
    """Weights of a step without a solve."""

    coefficients_K: Floats
    """[K] a_k for raw g_k; 0 outside `active_K`."""
    weights_K: Floats
    """[K] ᾱ renormalised over `active_K`."""
    active_K: Bools
    """[K] rewards with signal in this batch that have been solved before."""
    mean_norm: float
    """n̄ of the remembered norms over `active_K`."""


@dataclass(frozen=True, eq=False)
class Plan:
    """What the next step does."""

    solve: bool
    weights: AmortizedWeights | None
    """None when `solve`."""
