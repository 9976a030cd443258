"""`marble compare` behind its options."""

import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from actors.run_config import RunConfig
from deploy.compare import render
from deploy.compare.methods import SUITES
from deploy.compare.order import Asked
from deploy.compare.runners import Jobs, Processes, Runner, StoppedError
from deploy.compare.session import TABLES, Session
from deploy.errors import EXIT_INTERRUPTED
from deploy.files import to_json
from deploy.paths import ROOT
from deploy.recipe import load_recipe
from deploy.rundir import expanded, runs_root
from learner.errors import UserError

DEFAULT_MINUTES = 10.0
DEFAULT_TUNING = 6
"""Iterations: after the first one, a whole window between solves of the tiny recipe."""
NUM_SEEDS = 3
STDERR = 2
"""File descriptor; with --json nothing but the tables may come on standard output."""

T = TypeVar("T")


def asked(
    recipe: Path,
    *,
    methods: str | None,
    suite: str,
    seeds: str | None,
    minutes: float | None,
    iterations: int | None,
    sweep: Sequence[str],
    more: Sequence[str],
    sets: Sequence[str],
    tuning_iterations: int | None,
    lr_factors: str,
    probe_every: int,
) -> Asked:
    """The options as settings.

    Raises:
        UserError: some that exclude each other, or lists that are none.
    """
    if more:
        raise UserError(f"{more[0]}: unexpected; axes of a sweep stand behind --sweep, methods behind --methods")
    if suite not in SUITES:
        raise UserError(f"--suite {suite}: there are {', '.join(SUITES)}")
    _refuse_contradictions(methods, sweep, minutes, iterations)
    # A sweep shows what its keys do at one learning rate; the number of iterations is the recipe's.
    config = load_recipe(recipe, sets).config
    window = 1 + tuning_window(config)
    tuned = max(DEFAULT_TUNING, window) if not sweep else 0
    chosen = tuning_iterations if tuning_iterations is not None else tuned
    if minutes is None and iterations is None and chosen and not sweep:
        minutes = DEFAULT_MINUTES
    if minutes and chosen < window:
        raise UserError(
            f"--minutes needs tuning runs of {window} iterations at least, to tell how long one takes with its share "
            "of solves; give more of them, or --iterations"
        )
    first = config.run.seed
    return Asked(
        recipe=_from_root(recipe.resolve()),
        sets=tuple(sets),
        methods=() if sweep else _named(methods) if methods else SUITES[suite],
        seeds=_listed("--seeds", seeds, int) if seeds else tuple(range(first, first + NUM_SEEDS)),
        minutes=minutes,
        iterations=iterations,
        tuning_iterations=chosen,
        lr_factors=_listed("--lr-factors", lr_factors, _positive),
        probe_every=0 if sweep else probe_every,  # no table of a sweep shows conflicts
        sweep=tuple(sweep),
    )


def tuning_window(config: RunConfig) -> int:
    """Iterations of whole windows between solves."""
    refresh, per_iteration = config.harmonizer.refresh, config.learner.updates_per_iteration
    return math.lcm(per_iteration, refresh.n) // per_iteration if refresh.policy == "every_n" else 1


def _refuse_contradictions(
    methods: str | None, sweep: Sequence[str], minutes: float | None, iterations: int | None
) -> None:
    """
    Raises:
        UserError: options that exclude each other, or minutes that are none.
    """
    if methods and sweep:
        raise UserError("--sweep and --methods exclude each other: a sweep varies keys of the recipe itself")
    if minutes and iterations:
        raise UserError("--minutes and --iterations exclude each other: both are budgets")
    if minutes is not None and not math.isfinite(minutes):
        raise UserError(f"--minutes {minutes}: wants a number of minutes")


def _named(methods: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in methods.split(","))


def _from_root(path: Path) -> str:
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def _listed(option: str, text: str, kind: Callable[[str], T]) -> tuple[T, ...]:
    try:
        found = tuple(kind(part) for part in text.split(","))
    except ValueError as error:
        raise UserError(f"{option} {text}: wants numbers with commas between them ({error})") from error
    if len(set(found)) != len(found):
        raise UserError(f"{option} {text}: a number stands twice")
    return found


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError(f"{text} is not above 0")
    return value


def run(wanted: Asked, directory: Path | None, address: str | None, jobs: int, tables_only: bool, as_json: bool) -> int:
    """Compare, print the tables; returns the exit code."""
    stream = sys.stderr if as_json else sys.stdout

    def say(text: str) -> None:
        print(text, file=stream, flush=True)

    kind = "sweep" if wanted.sweep else "compare"
    place = expanded(directory, "--dir") if directory else runs_root() / f"{kind}-{Path(wanted.recipe).stem}"
    session = Session(wanted, place.absolute(), _runner(address, jobs, say, as_json), say)
    try:
        made = session.tables_of() if tables_only else session.run()
    except (StoppedError, KeyboardInterrupt) as stopped:  # between two runs it is Python's own
        print(f"stopped; the same command goes on ({session.folder})", file=sys.stderr)
        return stopped.code if isinstance(stopped, StoppedError) else EXIT_INTERRUPTED
    if not made:
        raise UserError(f"{session.folder} has no finished run yet")
    print(to_json({"dir": str(session.folder), "tables": render.data(made)}) if as_json else render.markdown(made))
    say(f"tables   {session.folder / TABLES}")
    return 0


def _runner(address: str | None, jobs: int, say: Callable[[str], None], as_json: bool) -> Runner:
    if address is None:
        if jobs > 1:
            raise UserError("--jobs is for runs as jobs of a Ray cluster; name its dashboard with --address")
        return Processes(say, STDERR if as_json else None)
    # Not at the top: it loads ray.
    from ray.job_submission import JobSubmissionClient

    try:
        client = JobSubmissionClient(address)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UserError(f"--address {address}: {' '.join(str(error).split())[:200]}") from error
    return Jobs(client, jobs, say, time.sleep)
