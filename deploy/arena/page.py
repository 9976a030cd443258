"""The voting page as one HTML file: no address, no name of a run, nothing by which a side is known."""

from collections.abc import Mapping, Sequence
from typing import Any

from deploy.arena.blinding import arena_id, lefts, shuffled, token
from deploy.arena.sides import Match, Pair
from deploy.html import environment


def html(match: Match, key: str) -> str:
    """The page of all pairs, in an order and with sides that the key decides."""
    data = {"arena": arena_id(key), "pairs": blinded(match.pairs, key)}
    return environment("arena").get_template("arena.html.j2").render(data=data)


def blinded(pairs: Sequence[Pair], key: str) -> list[dict[str, Any]]:
    """What the page knows of each pair: a token, the prompt and two pictures."""
    left = lefts(key, by_source(pairs))
    by_id = {pair.prompt_id: pair for pair in pairs}
    return [_shown(by_id[prompt_id], left[prompt_id] == "a", key) for prompt_id in shuffled(key, list(by_id))]


def by_source(pairs: Sequence[Pair]) -> Mapping[str, list[str]]:
    """Prompt ids of each source."""
    found: dict[str, list[str]] = {}
    for pair in pairs:
        found.setdefault(pair.source, []).append(pair.prompt_id)
    return found


def _shown(pair: Pair, a_left: bool, key: str) -> dict[str, Any]:
    left, right = (pair.a, pair.b) if a_left else (pair.b, pair.a)
    name = token(key, pair.prompt_id, "a" if a_left else "b")
    return {"pair": name, "prompt": pair.prompt, "left": left, "right": right}
