"""The head of five linear layers that Aesthetic and ImageReward share: from an embedding to one number.

Published without activations in between (they are commented out in the code of both), so the whole is linear; dropout
stands between the layers, which is nothing outside training but counts in the numbering of the keys.

Letters: N samples, D the width of the embedding.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rewards.converted import Source, convert

HIDDEN = (1024, 128, 64, 16)
_DROPOUT_AFTER = 3
"""Layers that have a dropout behind them."""


class ScoreHead(nn.Module):
    """[N, D] to [N]; its keys are `layers.0`, `.2`, `.4`, `.6` and `.7`, each with weight and bias."""

    def __init__(self, width: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for index, (before, after) in enumerate(zip((width, *HIDDEN), (*HIDDEN, 1), strict=True)):
            layers.append(nn.Linear(before, after))
            if index < _DROPOUT_AFTER:
                layers.append(nn.Dropout())
        self.layers = nn.Sequential(*layers)

    def forward(self, embedding_ND: Tensor) -> Tensor:
        """Scores [N]."""
        scores: Tensor = self.layers(embedding_ND).squeeze(-1)
        return scores


def load_head(stored: Mapping[str, Any], width: int, where: Path, prefix: str = "") -> ScoreHead:
    """A head in float32 and eval mode with the stored tensors in it, all of those under the prefix.

    Args:
        stored: by key.
        width: of the embedding it is fed, D.
        where: the file, for error messages.
        prefix: of its keys.

    Raises:
        ValueError: tensors are missing, left over or of another shape; names them.
    """
    head = ScoreHead(width)
    own = {key: value for key, value in stored.items() if key.startswith(prefix)}
    tensors = convert(own, head.state_dict(), lambda name: Source(prefix + name), where)
    head.load_state_dict({name: tensor.to(torch.float32) for name, tensor in tensors.items()})
    return head.eval().requires_grad_(False)
