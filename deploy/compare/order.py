"""What a comparison was asked for, and the recipe of each of its runs.

asked -> tuning runs -> a learning rate and a number of iterations for each method -> main runs
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from actors.run_config import RunConfig
from deploy import overrides, schema
from deploy.compare.methods import Data, Method, choose, in_stages, stages_of, steering
from deploy.compare.own_files import own_file, read_method
from deploy.errors import ProblemsError
from deploy.layers import merged
from deploy.paths import ROOT
from deploy.recipe import Recipe, checked, load_recipe
from learner.errors import UserError

TUNING_SEED_OFFSET = 10_000
"""Tuning draws prompts and noise that no compared run does."""
SWEPT_SECTION = "harmonizer"
"""Where a swept key stands that names no section of the recipe."""
OVERWRITTEN: tuple[schema.Path, ...] = (
    ("run", "name"), ("run", "seed"), ("eval",), ("checkpoint",), ("learner", "probe_every"),
)  # fmt: skip
"""Key paths that :func:`main_data` sets in every run, and evaluation, by which all are measured."""
_UNNAMEABLE = re.compile(r"[^A-Za-z0-9._-]")
"""What `run.name` may not hold."""


class Asked(BaseModel):
    """A comparison's settings, kept in its directory; going on with others is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    recipe: str
    """Path; one within the repository is written from its root on, so that a clone may move."""
    sets: tuple[str, ...] = ()
    methods: tuple[str, ...]
    seeds: tuple[int, ...] = Field(min_length=1)
    minutes: float | None = Field(None, gt=0)
    """Wall-clock budget of each main run; None: `iterations`."""
    iterations: int | None = Field(None, ge=1)
    tuning_iterations: int = Field(6, ge=0)
    """Of each tuning run; 0: nothing is tuned, and nothing known of peak memory."""
    lr_factors: tuple[float, ...] = (0.5, 1.0, 2.0)
    """Learning rates tried for each method, as multiples of the recipe's."""
    tuning_prompts: int = Field(32, ge=1)
    """Of each source's training prompts that tuning sets aside to choose by."""
    probe_every: int = Field(11, ge=0)
    """`learner.probe_every` of the main runs."""
    sweep: tuple[str, ...] = ()
    """`key=a,b` each; every combination is a row, in place of methods."""

    @property
    def recipe_path(self) -> Path:
        """Absolute."""
        return ROOT / self.recipe


@dataclass(frozen=True)
class Row:
    """One row of the tables: a method, or one combination of a sweep."""

    name: str
    data: Data
    """The recipe, before budget and seed."""
    trains: tuple[str, ...]
    """The rewards that its learning rate is chosen by."""
    without: tuple[str, ...] = ()
    """Keys of the recipe's harmonizer that its method cannot take."""

    @property
    def slug(self) -> str:
        """Its name in files and as part of `run.name`."""
        return _UNNAMEABLE.sub("-", self.name.replace(" ", "_"))


def rows_of(asked: Asked) -> tuple[Row, ...]:
    """The rows of a comparison.

    Raises:
        UserError: a recipe that does not load, that is no one's to compare, or unknown methods or keys.
    """
    recipe = load_recipe(asked.recipe_path, asked.sets)
    learner = recipe.config.learner
    if learner.objective != "gradients" or learner.stages:
        raise UserError(f"{asked.recipe}: compare starts from a recipe with a gradient per reward and without stages")
    if asked.sweep:
        return _swept(recipe, asked)
    return tuple(_row(method, recipe, asked) for method in choose(asked.methods, recipe.config.reward_names))


def _row(method: Method, recipe: Recipe, asked: Asked) -> Row:
    rewards = (method.of_one,) if method.of_one else recipe.config.reward_names
    own = own_file(asked.recipe_path, method.name)
    data = read_method(own, asked.recipe_path, asked.sets, recipe) if own else method.change(recipe.resolved)
    there = steering(data)
    return Row(method.name, data, rewards, tuple(key for key in steering(recipe.resolved) if key not in there))


def _swept(recipe: Recipe, asked: Asked) -> tuple[Row, ...]:
    axes = [_axis(text) for text in asked.sweep]
    _refuse_idle_axes([path for path, _, _ in axes], asked)
    rows = []
    for values in product(*(values for _, _, values in axes)):
        data: Any = recipe.resolved
        for (path, _, _), value in zip(axes, values, strict=True):
            data = overrides.apply(data, overrides.Override(path, value), RunConfig)
        name = " ".join(f"{key}={_said(value)}" for (_, key, _), value in zip(axes, values, strict=True))
        rows.append(Row(name, data, recipe.config.reward_names))
    return tuple(rows)


def _refuse_idle_axes(axes: Sequence[schema.Path], asked: Asked) -> None:
    """
    Raises:
        UserError: an axis that every run's recipe overwrites, or one that another axis overwrites.
    """
    budget = [("run", "iterations")] if asked.minutes or asked.iterations else []
    for at, path in enumerate(axes):
        key = schema.dotted(path)
        for own in (*OVERWRITTEN, *budget):
            if _overlap(path, own):
                raise UserError(f"--sweep {key}: {schema.dotted(own)} of every run is set by compare itself")
        for other in axes[:at]:
            if _overlap(path, other):
                raise UserError(f"--sweep {key}: {schema.dotted(other)} is an axis already; list all values behind one")


def _overlap(one: schema.Path, other: schema.Path) -> bool:
    """Whether one of two key paths leads to the other."""
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def _axis(text: str) -> tuple[schema.Path, str, list[Any]]:
    """Key path, key as given and values of `key=a,b`.

    Raises:
        UserError: no key of a recipe, or no values.
    """
    key, equals, values = text.partition("=")
    listed = [value for value in values.split(",") if value.strip()]
    if not equals or not listed:
        raise UserError(f"--sweep {text}: wants key=value,value, e.g. refresh.n=1,5,10")
    known = set(RunConfig.model_fields)
    parsed = [overrides.parse(f"{key}={value}", "--sweep") for value in listed]
    path = parsed[0].path if parsed[0].path[0] in known else (SWEPT_SECTION, *parsed[0].path)
    return path, key.strip(), [one.value for one in parsed]


def _said(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_said, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


# -- recipes of runs --------------------------------------------------------------------------------------------------


def budgeted(data: Data, name: str, seed: int, iterations: int, lr: float) -> Data:
    """A row's recipe as a run of so many iterations, resumable after each of them, evaluated before and after only."""
    changed = {
        "run": {"name": name, "seed": seed, "iterations": iterations},
        "learner": {"lr": lr},
        # Whatever else a recipe says of evaluations in between, as when to stop early, goes: every run has its budget.
        "eval": {"every": 0, "early_stop": None, "best_by": None},
        "checkpoint": {"every": 1, "keep_last": 1, "keep_best": 0},
    }
    result: Data = dict(merged(data, changed))
    stages = stages_of(data)
    return in_stages(result, stages, iterations) if stages else result


def main_data(row: Row, asked: Asked, seed: int, iterations: int, lr: float) -> Data:
    """The recipe of a main run."""
    data = budgeted(row.data, f"{row.slug}-seed{seed}", seed, iterations, lr)
    return dict(merged(data, {"learner": {"probe_every": asked.probe_every}}))


def tuning_data(row: Row, asked: Asked, factor: float, files: dict[str, dict[str, str]]) -> Data:
    """The recipe of a tuning run: other prompts to evaluate on, another seed, nothing measured beside it.

    Args:
        files: source → `train` and `heldout` files that tuning uses in place of the recipe's.
    """
    seed, lr = asked.seeds[0] + TUNING_SEED_OFFSET, row.data["learner"]["lr"] * factor
    name = _UNNAMEABLE.sub("-", f"{row.slug}-lr{factor:g}")
    data = budgeted(row.data, name, seed, asked.tuning_iterations, lr)
    changed = {"prompts": {"sources": files}, "eval": {"prompts_per_source": None}, "learner": {"probe_every": 0}}
    return dict(merged(data, changed))


def left_out(rows: Sequence[Row]) -> list[str]:
    """What the recipe's harmonizer says and some rows do without, a line for each such set of keys."""
    sets = dict.fromkeys(row.without for row in rows if row.without)
    return [
        f"left out of {', '.join(row.name for row in rows if row.without == keys)}, whose methods cannot take it: "
        f"{', '.join(f'harmonizer.{key}' for key in keys)}"
        for keys in sets
    ]


def check_runs(rows: Sequence[Row], asked: Asked) -> list[RunConfig]:
    """See that every run's recipe loads, as far as it is known before anything has been tuned; one of each row.

    Raises:
        UserError: one does not; which, and what is wrong with it.
    """
    configs = []
    for row in rows:
        lr, iterations = float(row.data["learner"]["lr"]), asked.iterations or int(row.data["run"]["iterations"])
        # What the minutes allow comes of tuning; until then it is enough for any stages.
        iterations = iterations if asked.minutes is None else max(iterations, len(stages_of(row.data)))
        try:
            runs = [
                checked(main_data(row, asked, seed, iterations, lr), f"{row.slug}-seed{seed}") for seed in asked.seeds
            ]
            configs.append(runs[0].config)
            for factor in asked.lr_factors if asked.tuning_iterations else ():
                checked(tuning_data(row, asked, factor, {}), f"{row.slug}-lr{factor:g}")
        except ProblemsError:
            raise
        except UserError as error:
            raise UserError(f"{row.name}: {error}") from error
    return configs


def differing(old: Asked, new: Asked) -> list[str]:
    """One line for each setting in which a comparison that is gone on with differs; more methods and seeds may come."""
    before, now = old.model_dump(), new.model_dump()
    grown = {"methods": set(old.methods) <= set(new.methods), "seeds": new.seeds[: len(old.seeds)] == old.seeds}
    changed = [key for key in before if before[key] != now[key] and not grown.get(key)]
    return [f"{key} was {_said(before[key])}, got {_said(now[key])}" for key in changed]


def checked_rows(asked: Asked) -> Sequence[Row]:
    """:func:`rows_of`, with no two rows of one name.

    Raises:
        UserError: as it, or two rows of one name.
    """
    rows = rows_of(asked)
    slugs = [row.slug for row in rows]
    twice = sorted({slug for slug in slugs if slugs.count(slug) > 1})
    if twice:
        raise UserError(f"{', '.join(twice)} would be compared with itself; name each value once")
    return rows
