"""One object that remembers ᾱ and norms: plan a step, solve a step, be saved and restored.

Letters: K rewards of the run, M of them in one solve. Formulas: MARBLE, arXiv 2605.06507, and DESIGN 4.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from harmonizer import formulas
from harmonizer.arrays import Bools, Floats
from harmonizer.batch import GradientBatch, read_batch
from harmonizer.config import HarmonizerConfig
from harmonizer.diagnostics import idle_report, solve_report
from harmonizer.ema import updated_shares
from harmonizer.methods import ConstantWeights, build_method
from harmonizer.refresh import is_due
from harmonizer.report import AmortizedWeights, Plan, Solution, SolveReport, Weighting
from harmonizer.state import Memory

__all__ = ["AmortizedWeights", "Harmonizer", "Plan", "Solution", "SolveReport"]


class Harmonizer:
    """Turns K reward gradients into one step, seeing their Gram matrix only."""

    def __init__(self, reward_names: Sequence[str], config: HarmonizerConfig) -> None:
        """Balance these rewards, in this order, as the recipe says.

        Raises:
            ValueError: no rewards, a name twice, or fixed weights for other rewards.
        """
        names = tuple(reward_names)
        if not names:
            raise ValueError("reward_names must name at least one reward, got none")
        if len(set(names)) != len(names):
            raise ValueError(f"reward_names must differ from each other, got {', '.join(names)}")
        self.reward_names = names
        self.config = config
        self._method = build_method(config, names)
        self._memory = Memory.empty(len(names))

    def plan(self, step: int, active_K: ArrayLike) -> Plan:
        """Whether this step solves, and if not, its weights. Changes nothing.

        Solves when the refresh policy says so, and when no active reward has a share to go by.

        Args:
            step: optimizer steps applied so far.
            active_K: [K] bool, rewards with signal in this batch.

        Raises:
            ValueError: a negative step, or another shape or type than [K] bool.
        """
        active_K = self._checked(step, active_K)
        weights = None if is_due(step, self.config.refresh) else self._amortized(active_K)
        return Plan(solve=weights is None, weights=weights)

    def solve(self, step: int, gramian_KK: ArrayLike, active_K: ArrayLike) -> Solution:
        """Weigh this batch's gradients, and remember ᾱ and norms.

        Rewards that are inactive, not finite or zero leave first and keep their share; their Gram entries are not read.
        With none left the solution is all zeros, its status `no_active`, and nothing is remembered.

        Args:
            step: optimizer steps applied so far.
            gramian_KK: [K, K] inner products of the raw gradients g_k.
            active_K: [K] bool, rewards with signal in this batch.

        Raises:
            ValueError: a negative step, another shape, or a matrix that is no Gram matrix of any gradients; what is
                remembered is untouched then.
        """
        active_K = self._checked(step, active_K)
        batch = read_batch(gramian_KK, active_K, self.reward_names, self.config.normalize)
        if not len(batch.members_M):
            return self._idle(batch, {})
        weighting = self._method(batch.balanced_MM, batch.members_M)
        if not weighting.alpha_M.any():
            return self._idle(batch, {self.reward_names[k]: "zero weight" for k in batch.members_M})
        return self._settled(batch, weighting)

    def state_dict(self) -> dict[str, Any]:
        """Everything remembered, as JSON-able lists that come back bit for bit."""
        return self._memory.to_json(self.reward_names)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Remember what `state_dict` gave.

        Raises:
            ValueError: a state of other rewards, or numbers that are no shares and norms; nothing is loaded then.
        """
        self._memory = Memory.from_json(state, self.reward_names)

    def reset(self) -> None:
        """Forget ᾱ and norms; the next step solves."""
        self._memory = Memory.empty(len(self.reward_names))

    def _checked(self, step: int, active: ArrayLike) -> Bools:
        active_K = np.asarray(active)
        if active_K.shape != (len(self.reward_names),) or active_K.dtype != np.bool_:
            raise ValueError(
                f"active_K must be [{len(self.reward_names)}] booleans, got shape {list(active_K.shape)} of "
                f"{active_K.dtype}"
            )
        if step < 0:
            raise ValueError(f"step counts from 0, got {step}")
        return active_K

    def _amortized(self, active_K: Bools) -> AmortizedWeights | None:
        """ᾱ over the active rewards that were solved before; None when they have no share."""
        memory = self._memory
        members_K = active_K & memory.solved_K
        weights_K = formulas.renormalized(memory.shares_K, members_K)
        if not weights_K.any():
            return None
        paper = self.config.amortize == "paper"
        coefficients_K = weights_K if paper else self._coefficients(weights_K, memory.norms_K, members_K)
        return AmortizedWeights(coefficients_K, weights_K, members_K, formulas.mean_norm(memory.norms_K, members_K))

    def _coefficients(self, weights_K: Floats, norms_K: Floats, members_K: Bools) -> Floats:
        """[K] a_k of the direction that was balanced: of unit gradients with n̄ before them, or of raw ones."""
        if self.config.normalize:
            return formulas.raw_coefficients(weights_K, norms_K, members_K)
        return np.where(members_K, weights_K, 0.0)

    def _new_shares(self, alpha_K: Floats, members_K: Bools) -> Floats:
        """[K] ᾱ after a solve. Constant weights are not smoothed: ᾱ is them, over all rewards solved so far."""
        memory = self._memory
        if isinstance(self._method, ConstantWeights):
            return formulas.renormalized(self._method.weights_K, members_K | memory.solved_K)
        return updated_shares(memory.shares_K, memory.solved_K, alpha_K, members_K, self.config.ema.rho)

    def _settled(self, batch: GradientBatch, weighting: Weighting) -> Solution:
        """Remember a solve and say what to apply."""
        members_K, norms_K = batch.members_K, batch.norms_K
        alpha_K = batch.scattered(weighting.alpha_M, 0.0)
        ema_K = self._new_shares(alpha_K, members_K)
        applied_K = formulas.renormalized(ema_K, members_K) if self.config.apply == "ema" else alpha_K
        if not applied_K.any():  # every share belongs to absent rewards
            applied_K = alpha_K
        coefficients_K = self._coefficients(applied_K, norms_K, members_K)
        report = solve_report(batch, weighting, coefficients_K)
        self._memory = Memory(ema_K, np.where(members_K, norms_K, self._memory.norms_K))
        mean_norm = formulas.mean_norm(norms_K, members_K)
        return Solution(alpha_K, ema_K.copy(), coefficients_K, mean_norm, norms_K, members_K, report)

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
