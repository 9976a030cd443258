"""AdamW over the trained adapter, with its state by parameter name.

A step that is not taken leaves moments and step count as they were.
"""

from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor

from learner.config import LearnerConfig

MOMENTS: Final = ("exp_avg", "exp_avg_sq")
STEP: Final = "step"


class LoraOptimizer:
    """Clip, AdamW, and a state that names every tensor."""

    def __init__(self, parameters: Mapping[str, torch.nn.Parameter], config: LearnerConfig) -> None:
        """Optimise these parameters, in this order (sorted names: the order of every flat vector over P)."""
        self.parameters = dict(parameters)
        self.max_grad_norm = config.max_grad_norm
        self._adamw = torch.optim.AdamW(
            list(self.parameters.values()),
            lr=config.lr,
            betas=config.betas,
            eps=config.eps,
            weight_decay=config.weight_decay,
        )
        self.reset()

    def reset(self) -> None:
        """Moments and step count as before the first step."""
        for parameter in self.parameters.values():
            self._adamw.state[parameter] = {
                STEP: torch.tensor(0.0),
                **{moment: torch.zeros_like(parameter) for moment in MOMENTS},
            }

    def clear(self) -> None:
        """Forget gradients."""
        self._adamw.zero_grad(set_to_none=True)

    def set_gradient(self, direction_P: Tensor) -> None:
        """Let the flat vector be the gradient: its own memory, which is the optimizer's from here on."""
        sizes = [parameter.numel() for parameter in self.parameters.values()]
        for parameter, part in zip(self.parameters.values(), torch.split(direction_P, sizes), strict=True):
            parameter.grad = part.view_as(parameter)

    def gradient_norm(self) -> float:
        """Norm of the whole gradient, before clipping."""
        return float(torch.nn.utils.get_total_norm(list(self.gradients().values())))

    def step(self, gradient_norm: float) -> None:
        """Clip to `max_grad_norm` and take an AdamW step."""
        torch.nn.utils.clip_grads_with_norm_(
            list(self.parameters.values()), self.max_grad_norm, torch.tensor(gradient_norm)
        )
        self._adamw.step()

    def tensors(self) -> dict[str, Tensor]:
        """Clones of the moments and step counts on the CPU: `exp_avg.<parameter>`, …"""
        return {
            f"{field}.{key}": self._adamw.state[parameter][field].to("cpu", copy=True)
            for field in (*MOMENTS, STEP)
            for key, parameter in self.parameters.items()
        }

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take what :meth:`tensors` gave.

        Raises:
            ValueError: keys or shapes of other parameters.
        """
        current = self.tensors()
        if tensors.keys() != current.keys():
            strangers = sorted(tensors.keys() ^ current.keys())
            raise ValueError(f"optimizer state has {len(tensors)} tensors, expected {len(current)}: {strangers[0]}")
        for key, value in current.items():
            if tensors[key].shape != value.shape:
                raise ValueError(f"optimizer state {key} has shape {list(tensors[key].shape)}, not {list(value.shape)}")
        for field in (*MOMENTS, STEP):
            for key, parameter in self.parameters.items():
                self._adamw.state[parameter][field].copy_(tensors[f"{field}.{key}"])

    def gradients(self) -> dict[str, Tensor]:
        """What lies in `.grad`, by parameter name; no copies."""
        return {key: parameter.grad for key, parameter in self.parameters.items() if parameter.grad is not None}
