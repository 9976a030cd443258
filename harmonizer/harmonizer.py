"""One object that remembers ᾱ and norms: plan a step, solve a step, be saved and restored.

Letters: K rewards of the run, M of them in one solve. Formulas: MARBLE, arXiv 2605.06507, and DESIGN 4.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from harmonizer import formulas
from harmonizer.arrays import Bools, Floats
from harmonizer.batch import GradientBatch, read_batch
from harmonizer.config import HarmonizerConfig
from harmonizer.diagnostics import idle_report, solve_report
from harmonizer.ema import updated_shares, within_region
from harmonizer.inputs import checked_active, checked_cosines, checked_signals, checked_weighting
from harmonizer.methods import ConstantWeights, WeightedGradients, build_method
from harmonizer.refresh import build_policy
from harmonizer.report import AmortizedWeights, Plan, Signals, Solution, SolveReport, Weighting
from harmonizer.state import Memory
from harmonizer.steering import Steered

__all__ = ["AmortizedWeights", "Harmonizer", "Plan", "Signals", "Solution", "SolveReport"]


class Harmonizer:
    """Turns K reward gradients into one step, seeing their Gram matrix only."""

    def __init__(self, reward_names: Sequence[str], config: HarmonizerConfig) -> None:
        """Balance these rewards, in this order, as the recipe says.

        Raises:
            ValueError: no rewards, a name twice, names in the recipe of other rewards, or a package not installed.
        """
        names = tuple(reward_names)
        if not names:
            raise ValueError("reward_names must name at least one reward, got none")
        if len(set(names)) != len(names):
            raise ValueError(f"reward_names must differ from each other, got {', '.join(names)}")
        self.reward_names = names
        self.config = config
        self._method = build_method(config, names)
        self._normalize = config.normalize and not self._method.raw
        self._refresh = build_policy(config.refresh)
        self._memory = Memory.empty(len(names))

    def plan(self, step: int, active_K: ArrayLike, signals: Signals | None = None) -> Plan:
        """Whether this step solves, and if not, its weights. Only the policy `adaptive` takes note of anything.

        Solves when the refresh policy says so, and when no active reward has a share to go by.

        Args:
            step: optimizer steps applied so far.
            active_K: [K] bool, rewards with signal in this batch.
            signals: what `adaptive` goes by; without them it sees the active set and the time only.

        Raises:
            ValueError: a negative step, or another shape or type than [K] bool, or [K, K] signals.
        """
        active_K = checked_active(active_K, step, len(self.reward_names))
        reason = self._refresh.due(step, active_K, checked_signals(signals, len(self.reward_names)))
        weights = None if reason else self._amortized(active_K)
        return Plan(weights is None, weights, "" if weights is not None else reason or "no weights")

    def solve(
        self, step: int, gramian_KK: ArrayLike, active_K: ArrayLike, kl_cosines_K: ArrayLike | None = None
    ) -> Solution:
        """Weigh this batch's gradients, and remember ᾱ and norms.

        Rewards that are inactive, not finite or zero leave first and keep their share; their Gram entries are not read.
        With none left the solution is all zeros, its status `no_active`, and nothing is remembered.

        Args:
            step: optimizer steps applied so far.
            gramian_KK: [K, K] inner products of the raw gradients g_k.
            active_K: [K] bool, rewards with signal in this batch.
            kl_cosines_K: [K] cosine of each gradient with ∇KL, for `kl: constraint`; without it there is no bound.

        Raises:
            ValueError: a negative step, another shape, or a matrix that is no Gram matrix of any gradients, or no
                cosines; what is remembered is untouched then.
        """
        active_K = checked_active(active_K, step, len(self.reward_names))
        kl_cosines_K = checked_cosines(kl_cosines_K, len(self.reward_names))
        batch = read_batch(gramian_KK, active_K, self.reward_names, self._normalize)
        if not len(batch.members_M):
            return self._idle(batch, {})
        kl_cosines_M = None if kl_cosines_K is None else kl_cosines_K[batch.members_M]
        weighting = self._method(batch.balanced_MM, batch.members_M, kl_cosines_M)
        weighting = checked_weighting(weighting, len(batch.members_M), self._method.signed)
        if not weighting.alpha_M.any():
            return self._idle(batch, {self.reward_names[k]: "zero weight" for k in batch.members_M})
        self._refresh.solved(step, active_K, self._cached_cosine(batch, weighting.alpha_M))
        return self._settled(batch, weighting)

    def state_dict(self) -> dict[str, Any]:
        """Everything remembered, JSON-able, and back from JSON bit for bit."""
        parts = {"method": self._method.state_dict(), "refresh": self._refresh.state_dict()}
        return self._memory.to_json(self.reward_names) | parts

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Remember what `state_dict` gave.

        Raises:
            ValueError: a state of other rewards or another recipe, or numbers that are no shares and norms; nothing is
                loaded then.
        """
        missing = [key for key in ("method", "refresh") if key not in state]
        if missing:
            raise ValueError(f"harmonizer state lacks {', '.join(missing)}, got keys {list(state)}")
        memory = Memory.from_json(state, self.reward_names, self._method.signed)
        method = self._method.state_dict()
        self._method.load_state_dict(state["method"])
        try:
            self._refresh.load_state_dict(state["refresh"])
        except ValueError:
            self._method.load_state_dict(method)
            raise
        self._memory = memory

    def reset(self) -> None:
        """Forget everything; the next step solves."""
        self._memory = Memory.empty(len(self.reward_names))
        self._method.reset()
        self._refresh.reset()

    def _amortized(self, active_K: Bools) -> AmortizedWeights | None:
        """ᾱ over the active rewards that were solved before; None when there is nothing to go by."""
        memory, method = self._memory, self._method
        solved_K = active_K & memory.solved_K
        members_K, shares_K, scale = solved_K, memory.shares_K, memory.scale
        if isinstance(method, WeightedGradients):  # neither shares nor norms of a solve go into Σ w_k g_k
            members_K, shares_K, scale = active_K, method.weights_K, method.scale(active_K)
        if method.signed and (members_K != memory.solved_K).any():
            return None  # weights of both signs mean something only together
        weights_K = self._floored(formulas.renormalized(shares_K, members_K), members_K)
        if not weights_K.any():
            return None
        paper = self.config.amortize == "paper"
        coefficients_K = weights_K if paper else self._coefficients(weights_K, memory.norms_K, members_K)
        mean_norm = formulas.mean_norm(memory.norms_K, solved_K)
        return AmortizedWeights(scale * coefficients_K, weights_K, members_K, mean_norm)

    def _floored(self, weights_K: Floats, members_K: Bools) -> Floats:
        """[K] smoothed weights, lifted to the floors: in ᾱ, rewards that come and go may have pushed others below."""
        if not isinstance(self._method, Steered) or not weights_K.any():
            return weights_K
        floors_K = self._method.steering.floors_K(np.flatnonzero(members_K), len(weights_K))
        return formulas.lifted(weights_K, floors_K)

    def _coefficients(self, weights_K: Floats, norms_K: Floats, members_K: Bools) -> Floats:
        """[K] a_k of the direction that was balanced: of unit gradients with n̄ before them, or of raw ones."""
        if self._normalize:
            return formulas.raw_coefficients(weights_K, norms_K, members_K)
        return np.where(members_K, weights_K, 0.0)

    def _new_shares(self, alpha_K: Floats, members_K: Bools) -> Floats:
        """[K] ᾱ after a solve. Constant weights are not smoothed: ᾱ is them, over all rewards solved so far.

        Where weights may be negative a held share could be more than all there is, so such an ᾱ is only ever of rewards
        solved together: when others come or go it starts anew from α*.
        """
        memory, method = self._memory, self._method
        if isinstance(method, ConstantWeights):
            return formulas.renormalized(method.weights_K, members_K | memory.solved_K)
        if method.signed and (members_K != memory.solved_K).any():
            return alpha_K.copy()
        smoothed_K = updated_shares(memory.shares_K, memory.solved_K, alpha_K, members_K, self.config.ema.rho)
        radius = self.config.ema.trust_region
        if radius is None or not memory.solved_K.any():
            return smoothed_K
        return within_region(memory.shares_K, smoothed_K, radius)

    def _settled(self, batch: GradientBatch, weighting: Weighting) -> Solution:
        """Remember a solve and say what to apply."""
        members_K, norms_K, memory = batch.members_K, batch.norms_K, self._memory
        alpha_K = batch.scattered(weighting.alpha_M, 0.0)
        ema_K = self._new_shares(alpha_K, members_K)
        applied_K = alpha_K
        if self.config.apply == "ema":
            applied_K = self._floored(formulas.renormalized(ema_K, members_K), members_K)
        if not applied_K.any():  # every share belongs to absent rewards
            applied_K = alpha_K
        coefficients_K = weighting.scale * self._coefficients(applied_K, norms_K, members_K)
        report = solve_report(batch, weighting, coefficients_K)
        conflicts = memory.conflicts.counted(report.worst_cosine)
        sum_conflicts = memory.sum_conflicts.counted(report.sum_worst_cosine)
        report = replace(report, negative_fraction=conflicts.fraction, sum_negative_fraction=sum_conflicts.fraction)
        remembered_K = np.full_like(norms_K, np.nan) if self._method.signed else memory.norms_K
        new_norms_K = np.where(members_K, norms_K, remembered_K)
        self._memory = Memory(ema_K, new_norms_K, weighting.scale, conflicts, sum_conflicts)
        mean_norm = formulas.mean_norm(norms_K, members_K)
        return Solution(alpha_K, ema_K.copy(), coefficients_K, mean_norm, norms_K, members_K, report)

    def _cached_cosine(self, batch: GradientBatch, alpha_M: Floats) -> float:
        """Cosine of the direction that ᾱ would have taken with the one solved; NaN where either is none."""
        cached = self._amortized(batch.members_K)
        if cached is None:
            return math.nan
        coefficients_K = self._coefficients(batch.scattered(alpha_M, 0.0), batch.norms_K, batch.members_K)
        norms_M = batch.norms_K[batch.members_M]
        return formulas.cosine_between(
            batch.unit_MM,
            cached.coefficients_K[batch.members_M] * norms_M,
            coefficients_K[batch.members_M] * norms_M,
        )

    def _idle(self, batch: GradientBatch, also_left: dict[str, str]) -> Solution:
        """The solution of a batch in which no reward may have weight."""
        num_rewards = len(self.reward_names)
        return Solution(
            alpha_K=np.zeros(num_rewards),
            ema_K=self._memory.shares_K.copy(),
            coefficients_K=np.zeros(num_rewards),
            mean_norm=0.0,
            norms_K=batch.norms_K,
            active_K=np.zeros(num_rewards, dtype=np.bool_),
            report=idle_report(num_rewards, batch.left | also_left),
        )
