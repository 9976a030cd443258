"""`--set learner.lr=1e-4`: one value of a recipe changed on the command line, read as YAML would read it.

`--set @FILE` changes every value that a YAML file of the same form as a recipe names, and leaves the others.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy import schema, strict_yaml
from learner.errors import UserError

_PART = re.compile(r"^[A-Za-z0-9_-]+$")


@dataclass(frozen=True)
class Override:
    """One `--set`."""

    path: schema.Path
    value: Any


def parse(text: str, option: str = "--set") -> Override:
    """`key.path=value`, where list items are `betas.1` or `betas[1]` and the value is YAML.

    Raises:
        UserError: no `=`, an empty or strange key, or a value that is not YAML.
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise UserError(f"{option} {text}: wants key=value, e.g. learner.lr=1e-4")
    parts = re.sub(r"\[(\d+)\]", r".\1", key.strip()).split(".")
    if not all(_PART.match(part) for part in parts):
        raise UserError(f"{option} {text}: {key!r} is not a key path such as learner.lr or learner.betas[1]")
    path = tuple(int(part) if part.isdigit() else part for part in parts)
    return Override(path, strict_yaml.parse(value, f"{option} {key}", numbered=False))


def read(text: str) -> list[Override]:
    """What one `--set` changes: one value, or all that an overlay names.

    Raises:
        UserError: as :func:`parse`, or the overlay cannot be read.
    """
    return list(_leaves(strict_yaml.load(Path(text[1:])))) if text.startswith("@") else [parse(text)]


def _leaves(data: Mapping[str, Any], at: schema.Path = ()) -> Iterator[Override]:
    """Every value below nested mappings; a list is one value."""
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*at, key))
        else:
            yield Override((*at, key), value)


def apply(data: dict[str, Any], override: Override, root: Any) -> dict[str, Any]:
    """A copy of a recipe's data with one value set; sections on the way are made, defaults of lists are filled in.

    Raises:
        UserError: the path goes through a value that holds no keys, or past the end of a list.
    """
    result = _with(data, override.path, override.value, (), root, data)
    assert isinstance(result, dict)
    return result


def _with(node: Any, rest: schema.Path, value: Any, at: schema.Path, root: Any, data: dict[str, Any]) -> Any:
    if not rest:
        return value
    key, here = rest[0], (*at, rest[0])
    if node is None:
        default = schema.default_at(root, at, data)
        node = default if isinstance(default, list | tuple) else {}
    if isinstance(node, list | tuple):
        if not isinstance(key, int):
            raise UserError(f"--set {schema.dotted(here)}: {schema.dotted(at)} is a list, its items have numbers")
        if key >= len(node):
            raise UserError(f"--set {schema.dotted(here)}: {schema.dotted(at)} has {len(node)} items, the first is 0")
        items = list(node)
        items[key] = _with(items[key], rest[1:], value, here, root, data)
        return items
    if not isinstance(node, dict):
        raise UserError(f"--set {schema.dotted(here)}: {schema.dotted(at)} holds no keys, it is {node!r}")
    name = str(key)
    return {**node, name: _with(node.get(name), rest[1:], value, (*at, name), root, data)}
