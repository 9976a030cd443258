"""What the harmonizer hands out: a solve with its report, cached weights, and the plan that picks between them."""

import math
from dataclasses import dataclass, field

import numpy as np

from harmonizer.arrays import Bools, Floats, Indices


@dataclass(frozen=True, eq=False)
class Weighting:
    """Weights of the M rewards of one solve and where they come from."""

    alpha_M: Floats
    """[M] sum 1 (on the simplex but for signed methods), or all 0 when no member may have weight."""
    status: str
    """As in :class:`SolveReport`."""
    solver: str
    complaints: tuple[str, ...] = ()
    scale: float = 1.0
    """Σw of a method whose weights w leave the simplex; `alpha_M` is w/Σw."""
    kkt_gap: float = math.nan
    """Of the problem that was solved; NaN: that of the plain min-norm problem."""
    kl_growth: float = math.nan
    kl_status: str = ""
    """As in :class:`SolveReport`."""


@dataclass(frozen=True, eq=False)
class SolveReport:
    """How one solve went. NaN means: not known, because the reward was not in the QP or the direction is zero."""

    status: str
    """Of the QP: `optimal`; `stationary`: optimal, but the gradients cancel, so no direction serves every reward;
    `optimal_inaccurate`: `kkt_gap` is above 1e-7; `fallback`: every solver failed, best feasible point.
    Without a QP: `single` (one reward left), `no_active` (none left: apply no step), and the name of any other method
    than min_norm, for which `fallback` means that it failed and weights are equal."""
    solver: str
    """Name of the solver that gave α*; `none` where none was needed."""
    kkt_gap: float
    """αᵀGα − min_k (Gα)_k on the Gram matrix that was balanced; 0 at the min-norm point. With floors, a preference,
    groups or a bound on KL: of that problem, over its corners instead of the gradients."""
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
    scale: float = 1.0
    """Σw of a method whose weights w leave the simplex (α* is w/Σw); a factor of the coefficients."""
    sum_cosines_K: Floats = field(default_factory=lambda: np.full(0, np.nan))
    """[K] cosine of each reward's gradient with Σ_j g_j, what a baseline of equal weights would have stepped along."""
    sum_worst_cosine: float = math.nan
    """Smallest of `sum_cosines_K`."""
    negative_fraction: float = math.nan
    """Share of the run's solves so far whose `worst_cosine` is negative, of those in which it is known."""
    sum_negative_fraction: float = math.nan
    """The same of `sum_worst_cosine`."""
    kl_growth: float = math.nan
    """−Σ α_k cos(∇KL, g_k) of the solved direction, with `kl: constraint`; see harmonizer.steering."""
    kl_status: str = ""
    """With `kl: constraint`: `slack`, `active` (the bound changed α*), `infeasible` (no allowed mix keeps the bound, so
    the one that raises KL least was taken), `unknown` (∇KL is zero or not finite: no bound). Else empty."""


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
class Signals:
    """What is known before a step without any reward's gradient; input of the `adaptive` refresh policy."""

    correlation_KK: Floats
    """[K, K] of the batch's advantages, each pair over the samples in which both have signal; NaN where unknown."""
    counts_KK: Indices
    """[K, K] how many samples that are."""
    amortized_norm: float
    """Norm before clipping of the whole gradient of the step before, if that one was applied and did not solve; else
    NaN."""


@dataclass(frozen=True, eq=False)
class Plan:
    """What the next step does."""

    solve: bool
    weights: AmortizedWeights | None
    """None when `solve`."""
    reason: str = ""
    """Why it solves: `every_n`, `every_step`; of harmonizer.adaptive `warm-up`, `time`, `active set`, `advantages`,
    `norm`; or `no weights`, when no active reward has any to go by."""
