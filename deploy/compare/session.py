"""A comparison from what was asked to its tables. Started again with the same settings, it goes on where it was ended.

    tune -> budget -> train -> tables

What lies in its directory: `compare.json` (what was asked), `tuning/` and `runs/` (run directories, their recipes
beside them), `budget.json`, and `tables.md` with `tables.json`, written anew after each run from the others' files.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from actors.preflight import check_files
from actors.run_config import RunConfig
from deploy.compare import order, reading, render, tables, tuning
from deploy.compare.order import Asked, Row
from deploy.compare.runners import Runner
from deploy.compare.runs import RunSpec, make_spec, standing
from deploy.compare.statistics import Estimate
from deploy.errors import ProblemsError, loading, one_line
from deploy.files import to_json, write_json, write_text
from deploy.recipe import load_recipe
from deploy.rundir import require_writable
from learner.errors import UserError

ASKED, BUDGET, TABLES = "compare.json", "budget.json", "tables.md"
RUNS = "runs"
"""Folder of the runs compared, without those that tuned."""


class Budget(BaseModel):
    """What tuning found for one row; kept, so that runs made later have it too."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    iterations: int
    lr: float
    gains: dict[str, float | None] = {}
    """Learning rate's factor → how much its tuning run won; None where nothing was scored."""
    iteration_s: float | None = None
    """Mean over the tuning runs."""
    memory_gib: float | None = None
    """Of the chosen tuning run's learner."""

    @property
    def by_factor(self) -> dict[float, float]:
        """The gains, NaN where nothing was scored."""
        return {float(factor): math.nan if gain is None else gain for factor, gain in self.gains.items()}


class Budgets(BaseModel):
    """All rows'."""

    rows: dict[str, Budget]


@dataclass
class Session:
    """One sitting of a comparison."""

    asked: Asked
    folder: Path
    runner: Runner
    say: Callable[[str], None]

    def run(self) -> list[tables.Table]:
        """Everything that is still to be done, and the tables.

        Raises:
            UserError: a recipe, a run or the directory is not as it should be.
            StoppedError: asked to stop.
        """
        rows = order.checked_rows(self.asked)
        _check_files(order.check_runs(rows, self.asked))
        self._check_folder()
        with loading(str(self.folder)):
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(self.folder / ASKED, self.asked.model_dump(mode="json"))
        for line in order.left_out(rows):
            self.say(line)
        # What tuning found stands in budget.json: its runs may be gone.
        known = self._read_budgets() or {}
        tuned = self._tune([row for row in rows if row.slug not in known])
        budgets = self._budgets(rows, tuned)
        self._train(rows, budgets)
        return self.write_tables(rows, budgets)

    def tables_of(self) -> list[tables.Table]:
        """The tables of what is there already.

        Raises:
            UserError: nothing is, or of another comparison.
        """
        rows = order.checked_rows(self.asked)
        self._check_folder()
        return self.write_tables(rows, self._read_budgets() or {})

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _check_folder(self) -> None:
        """
        Raises:
            UserError: another comparison lies there, or none can.
        """
        path = self.folder / ASKED
        with loading(str(self.folder)):
            require_writable(path)
        changed = order.differing(_parsed(path, Asked), self.asked) if path.is_file() else []
        if changed:
            told = [f"{self.folder} holds another comparison: {line}" for line in changed]
            raise ProblemsError([*told, "methods and seeds may be added to it; for others choose another --dir"])

    def _tune(self, rows: Sequence[Row]) -> dict[str, dict[float, RunSpec]]:
        """Row → factor → its tuning run, all of them done. Nothing where nothing is tuned."""
        if not (self.asked.tuning_iterations and rows):
            return {}
        config = load_recipe(self.asked.recipe_path, self.asked.sets).config
        folder = self.folder / "tuning"
        files = tuning.split_prompts(config, folder / "prompts", self.asked.tuning_prompts)
        specs = {
            row.slug: {
                factor: make_spec(folder, f"{row.slug}-lr{factor:g}", order.tuning_data(row, self.asked, factor, files))
                for factor in self.asked.lr_factors
            }
            for row in rows
        }
        # A slow hour of the machine then falls on every method alike: these runs tell how long an iteration takes.
        todo = [runs[factor] for factor in self.asked.lr_factors for runs in specs.values()]
        self.say(f"tuning: {len(todo)} runs of {self.asked.tuning_iterations} iterations")
        # Runs beside each other take each other's time, and these are to tell how much a run takes.
        self.runner.make(todo, lambda spec: None, alone=self.asked.minutes is not None)
        return specs

    def _budgets(self, rows: Sequence[Row], tuned: Mapping[str, Mapping[float, RunSpec]]) -> dict[str, Budget]:
        """Each row's learning rate and number of iterations; those of an earlier sitting stand."""
        known = self._read_budgets() or {}
        found = {row.slug: self._budget(row, tuned.get(row.slug, {})) for row in rows if row.slug not in known}
        write_json(self.folder / BUDGET, Budgets(rows={**known, **found}).model_dump(mode="json"))
        for slug, budget in found.items():
            self.say(f"{slug}: {budget.iterations} iterations at lr {budget.lr:g}")
        return {**known, **found}

    def _read_budgets(self) -> dict[str, Budget] | None:
        path = self.folder / BUDGET
        return _parsed(path, Budgets).rows if path.is_file() else None

    def _budget(self, row: Row, runs: Mapping[float, RunSpec]) -> Budget:
        asked, lr = self.asked, float(row.data["learner"]["lr"])
        if not runs:
            return Budget(iterations=asked.iterations or int(row.data["run"]["iterations"]), lr=lr)
        done = asked.tuning_iterations
        gains = {f: tuning.tuned_gain(spec.run_dir.path, done, row.trains) for f, spec in runs.items()}
        best = tuning.best_factor(gains)
        # A learning rate costs no time: all tries together tell it best.
        iteration_s = Estimate.of(reading.read_run(spec.run_dir, row.slug).iteration_s for spec in runs.values()).mean
        iterations = asked.iterations or int(row.data["run"]["iterations"])
        if asked.minutes is not None:
            if not iteration_s > 0:
                raise UserError(
                    f"{row.slug}: {done} tuning iterations do not tell how long one takes; "
                    "give more of them, or --iterations in place of --minutes"
                )
            iterations = max(1, round(asked.minutes * 60 / iteration_s))
        return Budget(
            iterations=iterations,
            lr=lr * best,
            gains={f"{factor:g}": gain for factor, gain in gains.items()},
            iteration_s=iteration_s,
            memory_gib=reading.peak_memory(runs[best].run_dir),
        )

    def _train(self, rows: Sequence[Row], budgets: Mapping[str, Budget]) -> None:
        """Main runs, seed after seed: an early end leaves whole comparisons of fewer seeds."""
        todo = [self._spec(row, seed, budgets[row.slug]) for seed in self.asked.seeds for row in rows]
        left = sum(standing(spec) != "done" for spec in todo)
        self.say(f"training: {len(todo)} runs, {left} to go")

        def made(spec: RunSpec) -> None:
            self.write_tables(rows, budgets)

        self.runner.make(todo, made)

    def _spec(self, row: Row, seed: int, budget: Budget) -> RunSpec:
        data = order.main_data(row, self.asked, seed, budget.iterations, budget.lr)
        return make_spec(self.folder / RUNS, f"{row.slug}-seed{seed}", data)

    def write_tables(self, rows: Sequence[Row], budgets: Mapping[str, Budget]) -> list[tables.Table]:
        """From the files of the runs that are over."""
        records: dict[str, list[reading.RunRecord]] = {}
        for row in rows:
            if row.slug not in budgets:
                continue
            specs = [self._spec(row, seed, budgets[row.slug]) for seed in self.asked.seeds]
            found = [reading.read_run(spec.run_dir, row.name) for spec in specs if standing(spec) == "done"]
            if found:
                records[row.name] = found
        if not records:
            return []
        memory = {row.name: budgets[row.slug].memory_gib or float("nan") for row in rows if row.slug in budgets}
        made = tables.sweep(records) if self.asked.sweep else tables.comparison(records, memory)
        tried = {row.name: budgets[row.slug] for row in rows if row.name in records and budgets[row.slug].gains}
        if tried:
            made.append(tables.tuned({k: b.by_factor for k, b in tried.items()}, {k: b.lr for k, b in tried.items()}))
        write_text(self.folder / TABLES, render.markdown(made))
        write_text(self.folder / TABLES.replace(".md", ".json"), to_json(render.data(made)) + "\n")
        return made


def _check_files(configs: Iterable[RunConfig]) -> None:
    """Prompts, models and packages of all runs, looked at once where they are the same.

    Raises:
        UserError: something is missing or wrong.
    """
    sections = ("policy", "prompts", "rewards", "heldout_rewards", "eval", "actors")
    found = {repr([c.harmonizer.method, *(getattr(c, part) for part in sections)]): c for c in configs}
    for config in found.values():
        check_files(config)


def _parsed(path: Path, model: type[Any]) -> Any:
    try:
        return model.model_validate_json(path.read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError, OSError) as error:
        raise UserError(f"{path} is damaged: {one_line(str(error))[:200]}") from error
