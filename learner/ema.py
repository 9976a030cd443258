"""Exponential mean of the trained adapter, for evaluation and export; the raw weights are never overwritten by it."""

from collections.abc import Mapping

import torch
from torch import Tensor

from learner.adapters import hash_tensors


class Ema:
    """A copy of its own, on the parameters' device."""

    def __init__(self, parameters: Mapping[str, Tensor], decay: float) -> None:
        """Start as a copy of `parameters`."""
        self.decay = decay
        self._tensors = {key: parameter.detach().float().clone() for key, parameter in parameters.items()}

    @torch.no_grad()
    def update(self, parameters: Mapping[str, Tensor]) -> None:
        """ema ← decay · ema + (1 − decay) · parameters, after every applied step."""
        for key, mean in self._tensors.items():
            mean.lerp_(parameters[key].detach().float(), 1 - self.decay)

    def tensors(self) -> dict[str, Tensor]:
        """Clones on the CPU, by canonical key."""
        return {key: mean.to("cpu", copy=True) for key, mean in self._tensors.items()}

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """
        Raises:
            ValueError: other keys.
        """
        if tensors.keys() != self._tensors.keys():
            raise ValueError(f"EMA has {len(self._tensors)} tensors, got {len(tensors)} with other keys")
        for key, mean in self._tensors.items():
            mean.copy_(tensors[key])

    def hash(self) -> str:
        """As of an adapter."""
        return hash_tensors(self._tensors)
