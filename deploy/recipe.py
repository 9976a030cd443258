"""A recipe, from YAML file and --set to a checked RunConfig, and back to the config.yaml of a run.

load_recipe reads the YAML, lays the overrides over it, checks keys, types, ranges and combinations, and turns paths
into absolute ones. It imports neither torch nor ray. Every problem found is one line: where, key path, value got.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from actors.run_config import RunConfig
from deploy import overrides, paths, schema, strict_yaml
from deploy.errors import ProblemsError, one_line
from rewards.config import ARGS_OF_BUILT_IN, check_args

RECIPES = Path(__file__).parent / "recipes"
Problem = tuple[schema.Path, str]
"""A key path and what is wrong there."""

MAX_VALUE_LENGTH = 80
"""Longer values are cut in messages, characters."""


@dataclass(frozen=True)
class Recipe:
    """A recipe that may run."""

    config: RunConfig
    """With absolute paths."""
    resolved: dict[str, Any]
    """The same as plain data with every default filled in; paths inside the repository are relative to its root."""


def load_recipe(path: Path, sets: Sequence[str] = ()) -> Recipe:
    """Read and check a recipe.

    Raises:
        UserError: anything about it is wrong; all problems, a line each.
    """
    data = strict_yaml.load(path)
    given = overrides.parse_all(sets)
    for override in given:
        data = overrides.apply(data, override, RunConfig)
    set_paths = tuple(override.path for override in given)
    return _build(data, path, set_paths, search=(Path.cwd(), paths.ROOT))


def load_resolved(path: Path) -> Recipe:
    """Read the config.yaml of a run, whose relative paths always start at the repository root.

    Raises:
        UserError: as :func:`load_recipe`.
    """
    return _build(strict_yaml.load(path), path, (), search=(paths.ROOT,))


def _build(data: dict[str, Any], path: Path, set_paths: Sequence[schema.Path], search: Sequence[Path]) -> Recipe:
    """Check data and make its paths absolute; `set_paths` came from --set, the rest from `path`."""
    located, missing = _locate(data, path, set_paths, search)
    problems = [*_not_finite(data), *_invalid(data), *missing]
    if problems:
        raise ProblemsError([": ".join(_said(problem, path, set_paths)) for problem in problems])
    config = RunConfig.model_validate_json(json.dumps(located), strict=True)
    return Recipe(config, to_data(config))


def _locate(
    data: dict[str, Any], path: Path, set_paths: Sequence[schema.Path], search: Sequence[Path]
) -> tuple[dict[str, Any], list[Problem]]:
    """The data with absolute paths, and what was not found."""
    missing: list[Problem] = []
    for found in paths.path_values(data):
        on_command_line = any(found.at[: len(p)] == p for p in set_paths)
        beside = Path.cwd() if on_command_line else path.absolute().parent
        try:
            absolute = paths.resolve(found.value, beside, search, found.hub)
        except FileNotFoundError as error:
            missing.append((found.at, str(error)))
        else:
            data = paths.replace(data, found.at, absolute)
    return data, missing


def _said(problem: Problem, path: Path, set_paths: Sequence[schema.Path]) -> tuple[str, ...]:
    """What to blame, the key path unless it is the whole recipe, and what is wrong."""
    at, why = problem
    return (_where(at, path, set_paths), schema.dotted(at), why) if at else (str(path), why)


def _where(at: schema.Path, path: Path, set_paths: Sequence[schema.Path]) -> str:
    """What to blame for the value at a key path. A section that only --set names is --set's too."""
    touched = at and any(at[: len(p)] == p[: len(at)] for p in set_paths)
    return "--set" if touched and not _section_of_models(at) else str(path)


def _section_of_models(at: schema.Path) -> bool:
    """Whether a path leads to a section with keys of its own, in which recipe and --set may both have had a hand."""
    return bool(schema.keys_at(RunConfig, at, {}))


def _not_finite(data: Any, at: schema.Path = ()) -> Iterator[Problem]:
    """Numbers no range check sees: every comparison with NaN is false."""
    if isinstance(data, float) and not math.isfinite(data):
        yield at, f"must be finite, got {data}"
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield from _not_finite(value, (*at, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _not_finite(value, (*at, index))


def _invalid(data: dict[str, Any]) -> list[Problem]:
    """What the configuration models refuse."""
    try:
        # Strict JSON mode: "3" is no number and true is no 1, while a list still makes a tuple.
        RunConfig.model_validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        details = error.errors(include_url=False)
        return [_problem(d, data) for d in details if not (isinstance(d["input"], float) and math.isnan(d["input"]))]
    return []


def _problem(detail: ErrorDetails, data: dict[str, Any]) -> Problem:
    """One of pydantic's errors in our words: key path, what is wrong, the value got."""
    kind, at = detail["type"], _key_path(detail["loc"], data)
    if kind == "extra_forbidden":
        return at, f"unknown key, got {show(detail['input'])}; {schema.nearest(RunConfig, at, data)}"
    if kind == "missing":
        return at, "is missing"
    if kind == "value_error":
        return at, one_line(detail["msg"].removeprefix("Value error, "))
    message = "should be a mapping of keys" if kind in ("model_type", "dict_type") else detail["msg"]
    return at, f"{one_line(message.removeprefix('Input '))}, got {show(detail['input'])}"


def _key_path(loc: Sequence[str | int], data: dict[str, Any]) -> schema.Path:
    """pydantic's location without what is no key of the recipe: names of union members, `[key]`."""
    at: schema.Path = ()
    for index, part in enumerate(loc):
        parent = schema.get(data, at)
        known = part in parent if isinstance(parent, Mapping) else isinstance(part, int)
        # A section that the recipe does not have is still a section: what is missing in it is missing there.
        known = known or part in schema.keys_at(RunConfig, at, data)
        if known or (index == len(loc) - 1 and part != "[key]" and isinstance(parent, Mapping)):
            at = (*at, part)
    return at


def show(value: Any) -> str:
    """A value as it stands in messages: as in JSON, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_VALUE_LENGTH else text[: MAX_VALUE_LENGTH - 3] + "..."


def to_data(config: RunConfig) -> dict[str, Any]:
    """Plain data of a configuration, every default filled in, paths portable."""
    data: dict[str, Any] = config.model_dump(mode="json")
    for name, reward in data["rewards"].items():
        model = ARGS_OF_BUILT_IN.get(reward["scorer"])
        if model is not None:
            reward["args"] = check_args(model, config.scorer(name).args).model_dump(mode="json")
    for found in list(paths.path_values(data)):
        data = paths.replace(data, found.at, paths.portable(found.value))
    return data


def to_yaml(recipe: Recipe) -> str:
    """The config.yaml of a run."""
    return strict_yaml.dump(recipe.resolved)


def differences(old: Any, new: Any, at: schema.Path = ()) -> Iterator[tuple[str, Any, Any]]:
    """(key path, old value, new value) wherever two resolved recipes differ."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys([*old, *new]):
            yield from differences(old.get(key), new.get(key), (*at, key))
        # The order of rewards is the order of K.
        if at == ("rewards",) and list(old) != list(new) and set(old) == set(new):
            yield "rewards", list(old), list(new)
    elif old != new:
        yield schema.dotted(at), old, new
