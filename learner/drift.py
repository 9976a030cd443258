"""How far the steps between two solves stray from what a solve would give.

Two measures, neither of which takes a gradient of its own. On every step: cosine and norm of the step's gradient beside
those of the last solving step, batches and policy having moved on since (so it holds the batches' noise too). On a
solving step, from its Gram matrix and free of that noise: the direction that the coefficients of the step before would
have given on this very batch, beside the direction that was solved.

Letters: K rewards.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.signals import products

NAN = float("nan")


@dataclass(frozen=True)
class Stray:
    """A step beside the last solving step before it; NaN and −1 when there is none."""

    steps_since_solve: int = -1
    """1 on the step after a solve."""
    cosine: float = NAN
    """Of the two whole gradients, KL included, before clipping."""
    norm_ratio: float = NAN
    """This step's norm over the solving step's."""


@dataclass(frozen=True)
class Staleness:
    """The direction under the coefficients of the step before, beside the one solved on the same batch."""

    cosine: float = NAN
    norm_ratio: float = NAN
    """Its norm over the solved one's."""


def staleness(
    gramian_KK: NDArray[np.float64],
    active_K: NDArray[np.bool_],
    before_K: NDArray[np.float64] | None,
    solved_K: NDArray[np.float64],
) -> Staleness:
    """Cosine and norms of Σ b_k g_k and Σ a_k g_k over the active rewards, from ⟨g_j, g_k⟩ alone.

    Args:
        gramian_KK: inner products of the raw gradients; rows of inactive rewards are not read.
        active_K: rewards in this solve.
        before_K: b_k, coefficients of the step before; None when there was none.
        solved_K: a_k of this solve.
    """
    if before_K is None:
        return Staleness()
    product, before, solved = products(gramian_KK, np.where(active_K, before_K, 0.0), np.where(active_K, solved_K, 0.0))
    if min(before, solved) <= 0:
        return Staleness()
    return Staleness(product / math.sqrt(before * solved), math.sqrt(before / solved))


class Drift:
    """Remembers the last solving step's gradient and the last applied step's coefficients; part of a resumed state."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self.coefficients_K: NDArray[np.float64] | None = None
        self._gradients: dict[str, Tensor] = {}
        self._steps = 0

    def step(
        self, gradients: Mapping[str, Tensor], norm: float, solved: bool, coefficients_K: NDArray[np.float64]
    ) -> Stray:
        """Compare an applied step with the last solving one, and remember what the next steps are compared with.

        Args:
            gradients: by parameter name, before clipping; copied on a solving step.
            norm: of all of them.
            solved: whether this step solved.
            coefficients_K: what it applied.
        """
        self._steps += 1
        found = self._against(gradients, norm)
        if solved:
            self._gradients = {key: gradient.detach().clone() for key, gradient in gradients.items()}
            self._steps = 0
        self.coefficients_K = np.array(coefficients_K)
        return found

    def _against(self, gradients: Mapping[str, Tensor], norm: float) -> Stray:
        if not self._gradients:
            return Stray()
        kept = math.sqrt(sum(_dot(value, value) for value in self._gradients.values()))
        product = sum(_dot(gradient, self._gradients[key]) for key, gradient in gradients.items())
        return Stray(self._steps, product / (norm * kept), norm / kept)

    def tensors(self) -> dict[str, Tensor]:
        """The remembered gradient on the CPU, by parameter name; empty before the first solve."""
        return {key: gradient.to("cpu", copy=True) for key, gradient in self._gradients.items()}

    def state(self) -> dict[str, Any]:
        """The numbers beside :meth:`tensors`."""
        return {
            "steps": self._steps,
            "coefficients_K": None if self.coefficients_K is None else self.coefficients_K.tolist(),
        }

    def load(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any], device: torch.device) -> None:
        """Remember what :meth:`tensors` and :meth:`state` gave."""
        coefficients = state["coefficients_K"]
        self.coefficients_K = None if coefficients is None else np.array(coefficients, dtype=np.float64)
        self._gradients = {key: value.to(device, copy=True) for key, value in tensors.items()}
        self._steps = int(state["steps"])


def _dot(a: Tensor, b: Tensor) -> float:
    """Summed in float64: norms squared of small gradients leave float32's comfort."""
    return float((a.double() * b.double()).sum())
