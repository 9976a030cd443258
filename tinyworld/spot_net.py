"""The network of the strict detector. Few imports: it runs in a scorer's process."""

from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from tinyworld.palette import SHAPES

FOLDER: Final = Path(__file__).parent / "weights" / "strict_detector"
WEIGHTS_FILE: Final = "model.safetensors"
CELL: Final = 8
"""Pixels per side of one cell of the grid."""
CHANNELS: Final = (24, 48, 72)


class _Block(nn.Module):
    """Residual pair of 3×3 convolutions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.norms = nn.ModuleList(nn.GroupNorm(4, width) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """[N, width, H, W] to the same."""
        inner = functional.gelu(self.norms[0](self.first(x)))
        return functional.gelu(x + self.norms[1](self.second(inner)))


class SpotNet(nn.Module):
    """Objects as points (Zhou et al. 2019, arXiv 1904.07850): where a shape's centre lies, and how large it is.

    One cell of CELL² pixels names at most one object of each shape; in this world centres are further apart.
    """

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = 3
        for width in CHANNELS:
            layers += [nn.Conv2d(before, width, 3, stride=2, padding=1), nn.GroupNorm(4, width), nn.GELU()]
            before = width
        self.body = nn.Sequential(*layers, *(_Block(before) for _ in range(3)))
        self.points = nn.Conv2d(before, len(SHAPES), 1)
        self.places = nn.Conv2d(before, 3, 1)
        assert self.points.bias is not None
        nn.init.constant_(self.points.bias, -4.0)  # nearly every cell is empty

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Pixels [N, 3, 64, 64] in 0..1 to logits [N, shapes, 8, 8] and places [N, 3, 8, 8].

        A place is x and y of the centre within its cell and the radius, all in cells.
        """
        x = self.body(2 * pixels - 1)
        return self.points(x), self.places(x)


def build_spot_net(seed: int) -> SpotNet:
    """Random weights (fp32)."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return SpotNet()
