"""Which picture stands on which side, and how a page says so without saying it.

A page holds one token per pair: HMAC-SHA256 of the prompt's id and of the side that stands on the left, under a key
that only key.json holds. Whoever has the key tries both sides; without it the token says nothing.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from typing import Literal

Side = Literal["a", "b"]
SIDES: tuple[Side, Side] = ("a", "b")
KEY_BYTES = 32
TOKEN_DIGITS = 32
"""Hexadecimal digits: 128 bits, so no two tokens meet."""


def new_key() -> str:
    """A fresh secret, as hexadecimal digits."""
    return secrets.token_hex(KEY_BYTES)


def token(key: str, prompt_id: str, left: Side) -> str:
    """What the page calls the pair."""
    return _digest(key, f"pair\n{left}\n{prompt_id}")[:TOKEN_DIGITS]


def arena_id(key: str) -> str:
    """By which votes find their key; says nothing about it."""
    return _digest(key, "arena")[:12]


def lefts(key: str, by_source: Mapping[str, Sequence[str]]) -> dict[str, Side]:
    """Prompt id -> the side on its left. Within a source each side stands there as often, one pair apart at most.

    A voter who likes one hand better then favours neither run.
    """
    chosen: dict[str, Side] = {}
    for prompt_ids in by_source.values():
        drawn = sorted(prompt_ids, key=lambda prompt_id: _digest(key, f"side\n{prompt_id}"))
        start = len(chosen)
        chosen.update({prompt_id: SIDES[(start + index) % 2] for index, prompt_id in enumerate(drawn)})
    return chosen


def shuffled(key: str, prompt_ids: Sequence[str]) -> list[str]:
    """The order in which pairs are shown: one that says nothing of sides."""
    return sorted(prompt_ids, key=lambda prompt_id: _digest(key, f"order\n{prompt_id}"))


def _digest(key: str, text: str) -> str:
    return hmac.new(bytes.fromhex(key), text.encode(), hashlib.sha256).hexdigest()
