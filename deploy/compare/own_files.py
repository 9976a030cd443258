"""A method laid down in a file beside the recipe, `<recipe>_<method>.yaml`.

What the file changes of the recipe is the method. The recipe takes --set first and the method comes last, so that
neither undoes the other; and nothing that all methods have in common may be changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from deploy import layers
from deploy.compare.methods import Data, steering, without_steering
from deploy.errors import ProblemsError
from deploy.recipe import Recipe, checked_layers, differences, overridden, show

COMMON = ("policy", "prompts", "rewards", "heldout_rewards", "eval", "eval_sampling")
"""Sections that are equal in all methods: model, prompts and number of samples, rewards, evaluation."""
MISSING = object()


def own_file(recipe: Path, method: str) -> Path | None:
    """`<recipe>_<method>.yaml` beside a recipe, where there is one."""
    beside = recipe.with_name(f"{recipe.stem}_{method}{recipe.suffix}")
    return beside if beside.is_file() else None


def read_method(own: Path, recipe: Path, sets: Sequence[str], asked: Recipe) -> Data:
    """The recipe of a method's own file, with --set.

    Its stages are proportions: they need not add up to its iterations, which may be --set's.

    Args:
        asked: the recipe itself, with --set.

    Raises:
        UserError: the file does not load, or changes more than the method.
    """
    beside = layers.load(own)
    base, written = layers.rooted(layers.load(recipe)), layers.rooted(beside)
    onto, set_paths, _ = overridden(base, sets)
    data = _balanced(rebased(base, written, onto), base, written)
    read = replace(beside, data=_of_one_length(data))
    found = checked_layers(read, [path for path in set_paths if _at(written, path) == _at(base, path)])
    _refuse_other_comparison(own, found.resolved, asked.resolved)
    return {**found.resolved, "run": {**found.resolved["run"], "iterations": asked.config.run.iterations}}


def rebased(before: Any, after: Any, onto: Any) -> Any:
    """`onto` with whatever makes `after` of `before`, key by key; where both change a key, `after` has it."""
    if before == after:
        return onto
    if not (isinstance(before, Mapping) and isinstance(after, Mapping) and isinstance(onto, Mapping)):
        return after
    result = {}
    for key in dict.fromkeys((*onto, *after)):
        old, new, now = (one.get(key, MISSING) for one in (before, after, onto))
        found = rebased({} if old is MISSING and isinstance(new, Mapping) else old, new, now)
        if found is not MISSING:
            result[key] = found
    return result


def _balanced(data: Data, base: Data, written: Data) -> Data:
    """Without what goes with one harmonizer's method alone and not with this one, unless the file itself says it."""
    if not all(
        isinstance(one.get(key, {}), Mapping) for one in (data, base, written) for key in ("harmonizer", "learner")
    ):
        return data  # no recipe at all, which its check will tell
    said = set(steering(written)) - {key for key in steering(base) if _same(written, base, key)}
    return without_steering(data, keep=said)


def _same(one: Data, other: Data, key: str) -> bool:
    return bool(_at(one, ("harmonizer", key)) == _at(other, ("harmonizer", key)))


def _of_one_length(data: Data) -> Data:
    """As long as its stages, to be checked; and not to be stopped within one, which no compared run is."""
    evaluation = data.get("eval")
    result = {**data, "eval": {**evaluation, "early_stop": None}} if isinstance(evaluation, Mapping) else dict(data)
    stages = _at(data, ("learner", "stages"))
    lengths = [_at(stage, ("iterations",)) for stage in stages] if isinstance(stages, list | tuple) else []
    if lengths and all(type(length) is int for length in lengths) and isinstance(data.get("run"), Mapping):
        result["run"] = {**data["run"], "iterations": sum(lengths)}
    return result


def _at(data: Any, path: Sequence[Any]) -> Any:
    for key in path:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def _refuse_other_comparison(own: Path, method: Data, recipe: Data) -> None:
    """
    Raises:
        ProblemsError: a line for each key of what is compared that the method has otherwise.
    """
    sections = [*COMMON, *(["sampling"] if method["learner"]["algorithm"] == recipe["learner"]["algorithm"] else [])]
    told = [
        f"{own}: {key} is {show(old)} in the recipe, got {show(new)}; a method may not change what is compared"
        for section in sections
        for key, old, new in differences({section: recipe[section]}, {section: method[section]})
        if key != "eval.early_stop"
    ]
    if told:
        raise ProblemsError(told)
