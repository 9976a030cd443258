"""TorchJD's methods behind our call. The only file of this room that imports torch, and only for its aggregators.

They get F [M, M] with F Fᵀ = Gram in place of the gradients: their weights depend on inner products alone.

upgrad     UPGrad: projects every gradient onto the cone that serves all, then averages (arXiv 2406.16232)
cagrad     CAGrad: the best worst reward within a ball around the mean gradient (arXiv 2110.14048)
pcgrad     PCGrad: takes out of each gradient what goes against the others, in random order (arXiv 2001.06782)
imtl_g     IMTL-G: equal projections on every gradient; weights of either sign (arXiv 2406.16232, for any rank)
nash_mtl   Nash-MTL: the Nash bargaining solution, started from the last one (arXiv 2202.01017); where no direction
           serves all rewards there is none, TorchJD keeps the last weights, and the report's complaints say so
"""

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torchjd.aggregation import IMTLG, CAGrad, NashMTL, PCGrad, UPGrad, WeightedAggregator

from harmonizer.arrays import Floats, Indices
from harmonizer.gramian import gramian_factor
from harmonizer.report import Weighting
from harmonizer.weighing import WeighingMethod

ZERO_SUM = 1e-9
"""Weights whose sum is smaller than this beside their sizes leave no proportions to report."""


class TorchJd(WeighingMethod):
    """w from TorchJD; α = w/Σw, and Σw is kept as scale, so that the step is n̄ Σ w_k ĝ_k (DESIGN 7)."""

    def __init__(self, name: str, num_rewards: int, seed: int, cagrad_c: float) -> None:
        self._name = name
        self._num_rewards = num_rewards
        self._seed = seed
        self._make: Callable[[int], WeightedAggregator] = {
            "upgrad": lambda _: UPGrad(),
            "cagrad": lambda _: CAGrad(c=cagrad_c),
            "pcgrad": lambda _: PCGrad(),
            "imtl_g": lambda _: IMTLG(),
            "nash_mtl": lambda size: NashMTL(n_tasks=size),
        }[name]
        self.signed = name == "imtl_g"
        self.reset()

    def reset(self) -> None:
        """Start the random numbers over, and Nash-MTL at equal weights."""
        self._num_solves = 0
        self._bargain_K: Floats = np.ones(self._num_rewards)

    def state_dict(self) -> dict[str, Any]:
        """Solves so far, which the random numbers are drawn from, and where Nash-MTL goes on from."""
        return {"method": self._name, "num_solves": self._num_solves, "bargain": self._bargain_K.tolist()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See :meth:`harmonizer.weighing.WeighingMethod.load_state_dict`."""
        bargain, solves = np.array(state.get("bargain", ()), dtype=np.float64), state.get("num_solves")
        if state.get("method") != self._name or bargain.shape != (self._num_rewards,) or type(solves) is not int:
            raise ValueError(f"state must be of method {self._name} and {self._num_rewards} rewards, got {dict(state)}")
        self._num_solves, self._bargain_K = solves, bargain

    def __call__(self, gramian_MM: Floats, members_M: Indices, kl_cosines_M: Floats | None = None) -> Weighting:
        """Where TorchJD fails, equal weights, with the reason; weights of sum 0 are no step."""
        if len(members_M) == 1:
            return Weighting(np.ones(1), "single", "none")
        self._num_solves += 1
        try:
            weights_M, complaints = self._weights(gramian_MM, members_M)
        except Exception as error:  # noqa: BLE001 - solvers under TorchJD raise what they like; a run must go on
            return self._equal(len(members_M), f"{type(error).__name__}: {error}")
        if not np.isfinite(weights_M).all():
            return self._equal(len(members_M), f"weights {weights_M.tolist()}")
        total = math.fsum(weights_M)
        if abs(total) <= ZERO_SUM * float(np.abs(weights_M).sum()):
            return Weighting(np.zeros(len(members_M)), self._name, "torchjd", complaints, scale=0.0)
        return Weighting(weights_M / total, self._name, "torchjd", complaints, scale=total)

    def _equal(self, size: int, complaint: str) -> Weighting:
        return Weighting(np.full(size, 1.0 / size), "fallback", "none", (f"torchjd: {complaint}",))

    def _weights(self, gramian_MM: Floats, members_M: Indices) -> tuple[Floats, tuple[str, ...]]:
        """[M] TorchJD's w, and what it says went wrong.

        The aggregator is a new one every time, so that nothing is remembered but what a checkpoint holds.
        """
        aggregator = self._make(len(members_M))
        weighting: Any = aggregator.weighting
        if isinstance(aggregator, NashMTL):
            weighting.prvs_alpha = self._bargain_K[members_M]
        factor = torch.from_numpy(np.ascontiguousarray(gramian_factor(gramian_MM)))
        seed = int(np.random.SeedSequence((self._seed, self._num_solves)).generate_state(1, np.uint64)[0] >> 1)
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # cvxpy on Nash-MTL's problem: not DPP, ECOS
            torch.manual_seed(seed)  # PCGrad draws from torch's global generator, which the fork gives back
            weights_M = np.asarray(weighting(factor).numpy(), dtype=np.float64)
        if not isinstance(aggregator, NashMTL):
            return weights_M, ()
        if np.isfinite(weighting.prvs_alpha).all():
            self._bargain_K = self._bargain_K.copy()
            self._bargain_K[members_M] = weighting.prvs_alpha
        status = str(weighting.prob.status)
        return weights_M, () if status.startswith("optimal") else (f"torchjd: no bargain found, status {status}",)
