"""Which keys a recipe may have, read off the configuration models, and the nearest one to a wrong key."""

import types
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from rewards.config import ARGS_OF_BUILT_IN, ARGS_OF_GENEVAL_PART

Path = tuple[str | int, ...]

MIN_LIKENESS = 0.55
"""Below this no key is near enough to be named; the valid ones are listed instead."""
SIBLING_BONUS = 0.15
"""A key beside the wrong one beats an equally like key elsewhere."""


def dotted(path: Path) -> str:
    """`('a', 'b', 1)` as `a.b.1`."""
    return ".".join(str(part) for part in path)


def models_of(annotation: Any) -> Iterator[Any]:
    """Alternatives of an annotation, with None, Optional and Annotated taken off."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from models_of(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for option in get_args(annotation):
            yield from models_of(option)
    elif annotation is not type(None):
        yield annotation


def _child(annotation: Any, key: str | int, data: Any) -> list[tuple[Any, Any]]:
    """(annotation, default) of what stands under a key, one for each alternative that has it."""
    found: list[tuple[Any, Any]] = []
    for option in models_of(annotation):
        if isinstance(option, type) and issubclass(option, BaseModel):
            field = option.model_fields.get(str(key))
            if field is not None:
                inner = _args_model(option, str(key), data) or field.annotation
                default = field.get_default(call_default_factory=True, validated_data={})
                found.append((inner, default))
        elif get_origin(option) is dict:
            found.append((get_args(option)[1], PydanticUndefined))
        elif get_origin(option) in (tuple, list) and isinstance(key, int):
            inner_types = [a for a in get_args(option) if a is not Ellipsis]
            found.append((inner_types[min(key, len(inner_types) - 1)], PydanticUndefined))
    return found


def _args_model(option: type[BaseModel], key: str, data: Any) -> type[BaseModel] | None:
    """Arguments are a plain mapping whose keys depend on what stands beside them: a scorer, GenEval's two parts."""
    known = {"args": ("scorer", ARGS_OF_BUILT_IN)} | {
        f"{part}_args": (part, ARGS_OF_GENEVAL_PART) for part in ("detector", "colors")
    }
    if key not in known or not isinstance(data, Mapping):
        return None
    beside, models = known[key]
    return models.get(str(data.get(beside))) if beside in option.model_fields else None


def annotations_at(root: type[BaseModel], path: Path, data: Any) -> list[tuple[Any, Any]]:
    """(annotation, default) at a path; empty where no model knows it."""
    level: list[tuple[Any, Any]] = [(root, PydanticUndefined)]
    for key in path:
        level = [child for annotation, _ in level for child in _child(annotation, key, data)]
        data = get(data, (key,))
    return level


def keys_at(root: type[BaseModel], path: Path, data: Any) -> tuple[str, ...]:
    """Valid keys of the section at a path, in their order; those of a free mapping are the ones it has."""
    keys: dict[str, None] = {}
    here = get(data, path)
    for annotation, _ in annotations_at(root, path, data):
        for option in models_of(annotation):
            if isinstance(option, type) and issubclass(option, BaseModel):
                keys.update(dict.fromkeys(option.model_fields))
            elif get_origin(option) is dict and isinstance(here, Mapping):
                keys.update(dict.fromkeys(str(key) for key in here))
    return tuple(keys)


def default_at(root: type[BaseModel], path: Path, data: Any) -> Any:
    """Default of a field as plain data, or None where there is none."""
    for _, default in annotations_at(root, path, data):
        if default is not PydanticUndefined:
            return default.model_dump(mode="json") if isinstance(default, BaseModel) else default
    return None


def get(data: Any, path: Path) -> Any:
    """Value at a path of nested mappings and lists, or None."""
    for key in path:
        if isinstance(data, Mapping):
            data = data.get(key)
        elif isinstance(data, list | tuple) and isinstance(key, int) and -len(data) <= key < len(data):
            data = data[key]
        else:
            return None
    return data


def all_paths(root: type[BaseModel], data: Any, at: Path = ()) -> Iterator[Path]:
    """Every valid path, sections before what they hold."""
    for key in keys_at(root, at, data):
        path = (*at, key)
        yield path
        yield from all_paths(root, data, path)


def nearest(root: type[BaseModel], path: Path, data: Any) -> str:
    """What to tell about a key that does not exist: the nearest valid one, or the valid ones beside it."""
    wrong, parent = str(path[-1]), path[:-1]
    best, best_score = None, MIN_LIKENESS
    for candidate in all_paths(root, data):
        likeness = SequenceMatcher(None, wrong.lower(), str(candidate[-1]).lower()).ratio()
        score = likeness + (SIBLING_BONUS if candidate[:-1] == parent else 0.0)
        if candidate != path and score > best_score:
            best, best_score = candidate, score
    if best is not None:
        return f"the nearest valid key is {dotted(best)}"
    return f"valid keys here are {', '.join(keys_at(root, parent, data))}"


def without(data: Any, path: Path) -> Any:
    """A copy of nested data without the value at a path; the same data where there is none."""
    if not path:
        return data
    key, rest = path[0], path[1:]
    if isinstance(data, Mapping) and key in data:
        kept = {name: value for name, value in data.items() if name != key}
        return {**data, key: without(data[key], rest)} if rest else kept
    if isinstance(data, list) and isinstance(key, int) and key < len(data):
        # An item cannot go alone: the others would move up.
        return [*data[:key], without(data[key], rest), *data[key + 1 :]] if rest else data
    return data
