"""Where the paths of a recipe lead. Everything that a worker opens is absolute before it leaves the command line.

The rule: `./x` and `../x` start beside the recipe (given with --set: in the working directory). Any other relative
path is looked for in the working directory, then in the repository root. Where a hub id may stand, `owner/name` that is
neither there nor in a folder `owner` is one, and is left alone.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy import schema
from rewards.config import ARGS_OF_BUILT_IN, ARGS_OF_GENEVAL_PART

ROOT = Path(__file__).resolve().parents[1]
"""Repository root: the folder of the rooms."""

_HUB_ID = re.compile(r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")


@dataclass(frozen=True)
class PathField:
    """One place of a recipe that holds a path; `*` stands for any name."""

    pattern: tuple[str, ...]
    hub: bool = False
    """Whether a hub id may stand there."""


SECTIONS = ("rewards", "heldout_rewards")
"""Of a recipe: where scorers are configured."""
PATH_FIELDS = (
    PathField(("policy", "base"), hub=True),
    PathField(("policy", "init_lora")),
    PathField(("prompts", "sources", "*", "train")),
    PathField(("prompts", "sources", "*", "heldout")),
    *(
        PathField((section, "*", "args", *inner), hub=True)
        for section in SECTIONS
        for inner in (
            *((name,) for name in ("checkpoint", "processor", "tokenizer", "head")),
            *((part, "checkpoint") for part in ("detector_args", "colors_args")),
        )
    ),
    PathField(("actors", "pools", "*", "runtime_env", "py_executable")),
)
# What a user's own scorer or detector calls a path we cannot know, but ./x and ../x can be nothing else.
_DOTTED_ONLY = tuple((section, "*", "args") for section in SECTIONS)


@dataclass(frozen=True)
class Found:
    """A path field of one recipe."""

    at: schema.Path
    value: str
    hub: bool
    dotted_only: bool = False


def path_values(data: Mapping[str, Any]) -> Iterator[Found]:
    """Every path a recipe names."""
    taken: set[schema.Path] = set()
    for field in PATH_FIELDS:
        for at in _matches(data, field.pattern):
            value = schema.get(data, at)
            if isinstance(value, str) and not _is_foreign(data, at):
                taken.add(at)
                yield Found(at, value, field.hub)
    for at in (found for pattern in _DOTTED_ONLY for found in _matches(data, pattern)):
        for leaf, value in _strings(schema.get(data, at), at):
            if leaf not in taken and value.startswith(("./", "../", "~")):
                yield Found(leaf, value, hub=False, dotted_only=True)


def _is_foreign(data: Mapping[str, Any], at: schema.Path) -> bool:
    """Arguments of these names are paths in built-in scorers; another scorer's `checkpoint` may be anything."""
    if at[0] not in SECTIONS:
        return False
    args, inner = ARGS_OF_BUILT_IN.get(str(schema.get(data, (*at[:2], "scorer")))), at[3:]
    if args is not None and len(inner) > 1:
        part = str(inner[0]).removesuffix("_args")
        args = ARGS_OF_GENEVAL_PART.get(str(schema.get(data, (*at[:3], part)))) if part in args.model_fields else None
    return args is None or at[-1] not in args.model_fields


def _matches(data: Any, pattern: tuple[str, ...], at: schema.Path = ()) -> Iterator[schema.Path]:
    if not pattern:
        yield at
    elif isinstance(data, Mapping):
        for key in data if pattern[0] == "*" else ([pattern[0]] if pattern[0] in data else []):
            yield from _matches(data[key], pattern[1:], (*at, key))


def _strings(data: Any, at: schema.Path) -> Iterator[tuple[schema.Path, str]]:
    if isinstance(data, str):
        yield at, data
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield from _strings(value, (*at, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _strings(value, (*at, index))


def resolve(value: str, beside: Path, search: Sequence[Path], hub: bool) -> str:
    """Absolute path of an existing file or folder, or a hub id as it is.

    Raises:
        FileNotFoundError: nothing is there; the message says where it was looked for.
    """
    given = os.path.expanduser(value)
    if os.path.isabs(given):
        places = [given]
    elif given.startswith(("./", "../")) or given in (".", ".."):
        places = [os.path.join(beside, given)]
    else:
        places = [os.path.join(folder, given) for folder in search]
    places = list(dict.fromkeys(os.path.abspath(place) for place in places))
    for place in places:
        if os.path.exists(place):
            return place
    if hub and _HUB_ID.match(value) and not any(os.path.isdir(os.path.dirname(place)) for place in places):
        return value
    raise FileNotFoundError(f"no such file or folder, got {value!r} (looked for {' and '.join(places)})")


def portable(value: str, root: Path = ROOT) -> str:
    """The path relative to the repository root where it lies inside, so that a run moves with its clone."""
    if not os.path.isabs(value):
        return value
    relative = os.path.relpath(value, root)
    return value if relative.startswith("..") else Path(relative).as_posix()


def replace(data: Any, at: schema.Path, value: Any) -> Any:
    """A copy of nested data with the value at an existing path replaced."""
    if not at:
        return value
    if isinstance(data, Mapping):
        return {**data, at[0]: replace(data[at[0]], at[1:], value)}
    items = list(data)
    index = int(at[0])
    items[index] = replace(items[index], at[1:], value)
    return items
