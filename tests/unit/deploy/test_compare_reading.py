"""What a run's files say, as numbers."""

import math
from typing import Any

import pytest

from deploy.compare.reading import step_health
from deploy.recipe import RECIPES, load_recipe


def step(
    solved: bool, norms: list[float], shares: list[float], length: float, kl: float, share: float
) -> dict[str, Any]:
    names = ("pickscore", "hpsv2", "clipscore", "ocr", "geneval")
    row: dict[str, Any] = {"solved": solved, "applied": length > 0, "grad_norm": length, "kl": kl, "kl_share": share}
    row |= {f"norm_{name}": value for name, value in zip(names, norms, strict=True)}
    return row | {f"weight_{name}": value for name, value in zip(names, shares, strict=True)}


def test_how_steps_are_by_hand() -> None:
    """Of eleven steps the last tenth is two; a reward without a gradient has no norm."""
    solves = [
        step(True, [1.0, 2.0, 4.0, math.nan, 0.0], [0.5, 0.3, 0.2, math.nan, 0.0], 0.5, 0.1, 0.4),
        step(True, [1.0, 1.0, 1.0, 1.0, 8.0], [0.2, 0.2, 0.2, 0.2, 0.2], 3.0, 0.1, 0.2),
    ]
    others = [
        step(False, [math.nan] * 5, [0.1, 0.1, 0.1, 0.0, 0.7], 0.5, kl, math.nan) for kl in [9.0] * 7 + [2.0, 4.0]
    ]
    health = step_health([*solves, *others], load_recipe(RECIPES / "tiny.yaml").config)
    assert health == pytest.approx(
        {
            "norms, largest/smallest": (4.0 + 8.0) / 2,
            "largest share": (0.5 + 0.2 + 9 * 0.7) / 11,
            "gradient norm": (0.5 + 3.0 + 9 * 0.5) / 11,
            "steps clipped": 1 / 11,
            "steps not applied": 0.0,
            "KL to the base": 3.0,
            "KL's share": 0.3,
        }
    )
