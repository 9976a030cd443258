"""Runs of one recipe under several seeds, which are shown as one line."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OWN_KEYS = ("name", "seed")
"""Keys of `run` in which runs of one recipe may differ."""
OWN_NAMES = tuple(f"run.{key}" for key in OWN_KEYS)
_SEED = re.compile(r"[-_. ]*(?:seed)?[-_. ]*\d*$")


@dataclass(frozen=True)
class Replicates:
    """Runs that differ in their seed only."""

    label: str
    indices: tuple[int, ...]
    """Of the runs, in the order in which they were named."""


def group(labels: Sequence[str], configs: Sequence[Mapping[str, Any]]) -> tuple[Replicates, ...]:
    """Runs of the same recipe together. A run without a readable recipe stands alone."""
    members: list[tuple[Any, list[int]]] = []
    for index, config in enumerate(configs):
        recipe = without_own_keys(config)
        found = next((indices for key, indices in members if config and key == recipe), None)
        if found is None:
            members.append((recipe, [index]))
        else:
            found.append(index)
    return tuple(Replicates(_label([labels[i] for i in indices]), tuple(indices)) for _, indices in members)


def without_own_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """A resolved recipe without the run's own name and seed."""
    run = config.get("run")
    kept = {key: value for key, value in run.items() if key not in OWN_KEYS} if isinstance(run, Mapping) else run
    return {**config, "run": kept}


def _label(labels: Sequence[str]) -> str:
    if len(labels) == 1:
        return labels[0]
    stem = next(iter({_SEED.sub("", label) for label in labels}), "") or labels[0]
    return f"{stem} ({len(labels)} seeds)"


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested keys as dotted ones."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            found.update(flat(value, f"{name}."))
        else:
            found[name] = value
    return found


def differing(configs: Sequence[Any], prefix: str = "") -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """(key, value in every recipe) of the keys in which recipes differ, names and seeds aside.

    A part that one of them lacks altogether is one row, with what it holds in the others; None where there is none.
    """
    keys = dict.fromkeys(key for config in configs for key in config)
    found: list[tuple[str, tuple[Any, ...]]] = []
    for key in keys:
        values, name = tuple(config.get(key) for config in configs), f"{prefix}{key}"
        if all(value == values[0] for value in values) or name in OWN_NAMES:
            continue
        if all(isinstance(value, Mapping) and value for value in values):
            found += differing(values, f"{name}.")
        else:
            found.append((name, tuple(", ".join(map(str, v)) if isinstance(v, Mapping) else v for v in values)))
    return tuple(found)
