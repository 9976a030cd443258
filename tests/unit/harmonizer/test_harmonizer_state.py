import json
import math
from typing import Any

import numpy as np
import pytest

from harmonizer.diagnostics import Conflicts
from harmonizer.state import Memory

NAMES = ("a", "b", "c")
NO_CONFLICTS = {"applied": {"known": 0, "negative": 0}, "sum": {"known": 0, "negative": 0}}
GOOD: dict[str, Any] = {
    "reward_names": list(NAMES),
    "ema": [0.25, None, 0.75],
    "norms": [1.5, None, 2.0],
    "scale": 1.0,
    "conflicts": NO_CONFLICTS,
}


def test_comes_back_from_json_bit_for_bit() -> None:
    memory = Memory(
        np.array([1 / 3, 0.0, 2 / 3]), np.array([1e-8 / 3, math.nan, 1e8 / 7]), 1 / 7, Conflicts(7, 1), Conflicts(6, 5)
    )
    state = memory.to_json(NAMES)
    again = Memory.from_json(json.loads(json.dumps(state, allow_nan=False)), NAMES)
    np.testing.assert_array_equal(again.shares_K, memory.shares_K)
    np.testing.assert_array_equal(again.norms_K, memory.norms_K)
    assert again.solved_K.tolist() == [True, False, True]
    assert (again.scale, again.conflicts, again.sum_conflicts) == (1 / 7, Conflicts(7, 1), Conflicts(6, 5))
    assert again.to_json(NAMES) == state


def test_before_the_first_solve_nothing_is_known() -> None:
    state = Memory.empty(3).to_json(NAMES)
    assert state == {
        "reward_names": ["a", "b", "c"],
        "ema": [None] * 3,
        "norms": [None] * 3,
        "scale": 1.0,
        "conflicts": NO_CONFLICTS,
    }
    assert not Memory.from_json(state, NAMES).solved_K.any()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reward_names": ["a", "c", "b"]}, r"of rewards \['a', 'b', 'c'\], in this order, got \['a', 'c', 'b'\]"),
        ({"reward_names": ["a", "b"]}, "in this order, got"),
        ({"ema": [0.5, 0.5]}, "per reward, got"),
        ({"norms": [1.0, 1.0, 1.0]}, "a share and a norm, or neither"),
        ({"ema": [0.25, None, 0.7]}, "non-negative with sum 1, got"),
        ({"ema": [1.25, None, -0.25]}, "non-negative with sum 1, got"),
        ({"ema": [math.nan, None, 1.0]}, "non-negative with sum 1, got"),
        ({"norms": [0.0, None, 1.0]}, "finite and positive, got"),
        ({"norms": [math.inf, None, 1.0]}, "finite and positive, got"),
        ({"scale": None}, "scale must be finite, got None"),
        ({"scale": math.nan}, "scale must be finite, got nan"),
        ({"conflicts": {**NO_CONFLICTS, "sum": {"known": 1, "negative": 2}}}, "negative at most known, got"),
        ({"conflicts": {}}, "conflicts must be counts"),
    ],
)
def test_a_state_no_solve_can_have_left_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Memory.from_json(GOOD | change, NAMES)


@pytest.mark.parametrize("key", GOOD)
def test_a_missing_key_is_named(key: str) -> None:
    with pytest.raises(ValueError, match=f"lacks {key}, got keys"):
        Memory.from_json({k: v for k, v in GOOD.items() if k != key}, NAMES)
