"""The published head of five linear layers (Aesthetic, ImageReward): its keys and sizes, and what it computes."""

import torch
from torch import Tensor

LAYERS = ((0, 1024), (2, 128), (4, 64), (6, 16), (7, 1))
"""(index in the published nn.Sequential, outputs): the indices left out are dropouts."""


def head_state(width: int, seed: int, prefix: str = "") -> dict[str, Tensor]:
    """Random tensors under the published keys."""
    generator = torch.Generator().manual_seed(seed)
    state, before = {}, width
    for index, after in LAYERS:
        scale = 1.5 / before**0.5
        state[f"{prefix}layers.{index}.weight"] = scale * torch.randn(after, before, generator=generator)
        state[f"{prefix}layers.{index}.bias"] = 0.3 * torch.randn(after, generator=generator)
        before = after
    return state


def head_by_hand(width: int, weights: list[float], bias: float, prefix: str = "") -> dict[str, Tensor]:
    """The first unit of the first layer is weights · x; every further layer hands it on; bias is added at the end."""
    state = {key: torch.zeros_like(value) for key, value in head_state(width, seed=0, prefix=prefix).items()}
    state[f"{prefix}layers.0.weight"][0, : len(weights)] = torch.tensor(weights)
    for index, _ in LAYERS[1:]:
        state[f"{prefix}layers.{index}.weight"][0, 0] = 1.0
    state[f"{prefix}layers.7.bias"][0] = bias
    return state


def apply_head(state: dict[str, Tensor], x: Tensor, prefix: str = "") -> Tensor:
    """Five times W x + b, nothing in between, in float64."""
    for index, _ in LAYERS:
        weight, bias = (state[f"{prefix}layers.{index}.{leaf}"].double() for leaf in ("weight", "bias"))
        x = weight @ x.double() + bias
    return x[0]
