"""A recipe, from YAML file and --set to a checked RunConfig, and back to the config.yaml of a run.

load_recipe reads the YAML with what it is built on, lays the overrides over it, checks keys, types, ranges and
combinations, and turns paths into absolute ones. It imports neither torch nor ray. Every problem found is one line:
where, key path, value got.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from actors.run_config import PARTS_ONLY, RunConfig
from deploy import layers, overrides, paths, schema, strict_yaml
from deploy.errors import ProblemsError, one_line, problems_of
from learner.errors import Problem, UserError

RECIPES = Path(__file__).parent / "recipes"

MAX_VALUE_LENGTH = 80
"""Longer values are cut in messages, characters."""


@dataclass(frozen=True)
class Recipe:
    """A recipe that may run."""

    config: RunConfig
    """With absolute paths."""
    resolved: dict[str, Any]
    """The same as plain data with every default filled in; paths inside the repository are relative to its root."""


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a recipe's data."""

    at: schema.Path
    code: str
    why: str


@dataclass(frozen=True)
class Examined:
    """A recipe, or what is wrong with it and what is left of it."""

    recipe: Recipe | None
    problems: tuple[Problem, ...]
    remnant: RunConfig | None
    """The recipe without what is wrong, so that the rest can be looked at in the same go; None where too little is
    left. Paths that were not found are still in it."""
    exact: bool
    """Whether only unknown keys were left out of it, so that no default stands in for a value."""
    not_found: tuple[str, ...]
    """Paths that were not found, as they were given."""


def load_recipe(path: Path, sets: Sequence[str] = ()) -> Recipe:
    """Read and check a recipe.

    Raises:
        UserError: anything about it is wrong; all problems, a line each.
    """
    return _wanted(examine(path, sets))


def load_resolved(path: Path) -> Recipe:
    """Read the config.yaml of a run, whose relative paths always start at the repository root.

    Raises:
        UserError: as :func:`load_recipe`.
    """
    data = strict_yaml.load(path)
    return _wanted(_examined(data, layers.Layers(data, ((path, data),)), (), (paths.ROOT,), ()))


def checked(data: dict[str, Any], name: str) -> Recipe:
    """Check data that no file holds; `name` stands in its place in messages.

    Raises:
        UserError: as :func:`load_recipe`.
    """
    return checked_layers(layers.Layers(data, ((Path(name), data),)))


def checked_layers(read: layers.Layers, set_paths: Sequence[schema.Path] = ()) -> Recipe:
    """Check data whose values at `set_paths` came from --set and the others from the files `read`.

    Raises:
        UserError: as :func:`load_recipe`.
    """
    return _wanted(_examined(read.data, read, set_paths, (Path.cwd(), paths.ROOT), ()))


def overridden(data: dict[str, Any], sets: Sequence[str]) -> tuple[dict[str, Any], list[schema.Path], list[Problem]]:
    """Data with --set laid over it, the key paths that it names, and what is wrong with it."""
    problems: list[Problem] = []
    set_paths: list[schema.Path] = []
    for text in sets:
        try:
            for override in overrides.read(text):
                data = overrides.apply(data, override, RunConfig)
                set_paths.append(override.path)
        except UserError as error:
            problems += problems_of(error, "recipe.override")
    return data, set_paths, problems


def examine(path: Path, sets: Sequence[str] = ()) -> Examined:
    """Read and check a recipe; what is wrong is returned, not raised."""
    try:
        read = layers.load(path)
    except UserError as error:
        return Examined(None, tuple(problems_of(error, "recipe.unreadable")), None, False, ())
    data, set_paths, problems = overridden(read.data, sets)
    return _examined(data, read, set_paths, (Path.cwd(), paths.ROOT), problems)


def _wanted(examined: Examined) -> Recipe:
    if examined.recipe is None:
        raise ProblemsError(examined.problems)
    return examined.recipe


def _examined(
    data: dict[str, Any],
    read: layers.Layers,
    set_paths: Sequence[schema.Path],
    search: Sequence[Path],
    problems: Sequence[Problem],
) -> Examined:
    """Check data and make its paths absolute; `set_paths` came from --set, the rest from the files `read`."""
    located, missing = _locate(data, read, set_paths, search)
    remnant, faults, exact = _salvaged(located)
    faults = [*faults, *(fault for fault, _ in missing)]
    if not faults and not problems and remnant is not None:
        return Examined(Recipe(remnant, to_data(remnant)), (), remnant, True, ())
    said = [Problem(fault.code, ": ".join(_said(fault, read, set_paths))) for fault in faults]
    not_found = tuple(value for _, value in missing)
    return Examined(None, (*problems, *said), remnant, exact and not problems, not_found)


def _salvaged(data: dict[str, Any]) -> tuple[RunConfig | None, list[Fault], bool]:
    """The configuration without its faults, the faults, and whether unknown keys were the only ones.

    Whatever is wrong is left out until the sections are right by themselves; what they break together is looked at
    then, unless a default stands in for something that was left out.
    """
    faults: list[Fault] = []
    while found := [*_not_finite(data), *_invalid(data)]:
        if _only_unknown_keys(faults):
            faults += [fault for fault in found if fault not in faults]
        smaller = data
        for fault in found:
            smaller = schema.without(smaller, fault.at)
        if smaller == data:
            return None, faults, False
        data = smaller
    config = RunConfig.model_validate_json(json.dumps(data), strict=True, context={PARTS_ONLY: True})
    exact = _only_unknown_keys(faults)
    if exact:
        faults += [Fault((), "recipe.combination", one_line(why)) for why in config.combination_problems()]
    return config, faults, exact


def _only_unknown_keys(faults: Sequence[Fault]) -> bool:
    return all(fault.code == "recipe.unknown_key" for fault in faults)


def _locate(
    data: dict[str, Any], read: layers.Layers, set_paths: Sequence[schema.Path], search: Sequence[Path]
) -> tuple[dict[str, Any], list[tuple[Fault, str]]]:
    """The data with absolute paths, and what was not found, with the path as it was given."""
    missing: list[tuple[Fault, str]] = []
    for found in paths.path_values(data):
        on_command_line = any(found.at[: len(p)] == p for p in set_paths)
        beside = Path.cwd() if on_command_line else read.file_of(found.at).absolute().parent
        try:
            absolute = paths.resolve(found.value, beside, search, found.hub)
        except FileNotFoundError as error:
            missing.append((Fault(found.at, "recipe.path", str(error)), found.value))
        else:
            data = paths.replace(data, found.at, absolute)
    return data, missing


def _said(fault: Fault, read: layers.Layers, set_paths: Sequence[schema.Path]) -> tuple[str, ...]:
    """What to blame, the key path unless it is the whole recipe, and what is wrong."""
    at = fault.at
    return (_where(at, read, set_paths), schema.dotted(at), fault.why) if at else (str(read.file_of(at)), fault.why)


def _where(at: schema.Path, read: layers.Layers, set_paths: Sequence[schema.Path]) -> str:
    """What to blame for the value at a key path. A section that only --set names is --set's too."""
    touched = at and any(at[: len(p)] == p[: len(at)] for p in set_paths)
    return "--set" if touched and not _section_of_models(at) else str(read.file_of(at))


def _section_of_models(at: schema.Path) -> bool:
    """Whether a path leads to a section with keys of its own, in which recipe and --set may both have had a hand."""
    return bool(schema.keys_at(RunConfig, at, {}))


def _not_finite(data: Any, at: schema.Path = ()) -> Iterator[Fault]:
    """Numbers no range check sees: every comparison with NaN is false."""
    if isinstance(data, float) and not math.isfinite(data):
        yield Fault(at, "recipe.value", f"must be finite, got {data}")
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield from _not_finite(value, (*at, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _not_finite(value, (*at, index))


def _invalid(data: dict[str, Any]) -> list[Fault]:
    """What the configuration models refuse."""
    try:
        # Strict JSON mode: "3" is no number and true is no 1, while a list still makes a tuple.
        RunConfig.model_validate_json(json.dumps(data), strict=True, context={PARTS_ONLY: True})
    except ValidationError as error:
        details = error.errors(include_url=False)
        told = [d for d in details if not (isinstance(d["input"], float) and math.isnan(d["input"]))]
        return [_fault(detail, data) for detail in told]
    return []


def _fault(detail: ErrorDetails, data: dict[str, Any]) -> Fault:
    """One of pydantic's errors in our words: key path, what is wrong, the value got."""
    kind, at = detail["type"], _key_path(detail["loc"], data)
    if kind == "extra_forbidden":
        why = f"unknown key, got {show(detail['input'])}; {schema.nearest(RunConfig, at, data)}"
        return Fault(at, "recipe.unknown_key", why)
    if kind == "missing":
        return Fault(at, "recipe.missing_key", "is missing")
    if kind == "value_error":
        code = "recipe.combination" if _section_of_models(at) else "recipe.value"
        return Fault(at, code, one_line(detail["msg"].removeprefix("Value error, ")))
    message = "should be a mapping of keys" if kind in ("model_type", "dict_type") else detail["msg"]
    return Fault(at, "recipe.value", f"{one_line(message.removeprefix('Input '))}, got {show(detail['input'])}")


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
    for section in paths.SECTIONS:
        for name, reward in data[section].items():
            reward["args"] = config.scorer(name).args
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
