"""What `marble check` looks at: recipe, files, cluster, and every actor's start with one image through each reward."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from actors.preflight import Asked, asked_by_role, check_cluster, check_files
from actors.results import ActorVitals
from actors.run_config import RunConfig
from deploy.errors import EXIT_USER, problems_of, tell
from deploy.files import to_json
from deploy.recipe import Examined, examine
from learner.errors import Problem, UserError

DRAWS_AND_LEARNS = ("rollout", "learner")
"""Roles that load the base model."""


def check_recipe(path: Path, sets: Sequence[str], address: str | None, as_json: bool) -> int:
    """Print what was found; returns the exit code."""
    examined = examine(path, sets)
    found = Found(list(examined.problems))
    config = examined.remnant
    if config is not None:
        look(config, address, found, examined)
    _tell(path, found, asked_by_role(config) if config is not None else (), as_json)
    return EXIT_USER if found.problems else 0


@dataclass
class Found:
    """What a check has seen so far."""

    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    vitals: tuple[ActorVitals, ...] = ()

    def collect(self, check: Callable[[], None], code: str) -> bool:
        """Run one check; its problems join the others. Returns whether there were none."""
        try:
            check()
        except UserError as error:
            self.problems += problems_of(error, code)
            return False
        return True


def look(config: RunConfig, address: str | None, found: Found, examined: Examined) -> None:
    """Every problem beyond the recipe's own: files, cluster, and every actor's start.

    What is left of a recipe that does not load is looked at too, as far as no default stands in for what is wrong.
    """
    # Not at the top: a recipe of which nothing is left is told without waiting for ray.
    from actors.local_ray import connected

    def files() -> None:
        found.warnings += check_files(config).warnings

    before = len(found.problems)
    found.collect(files, "files")
    told = [problem for problem in found.problems[before:] if _is_news(problem, examined)]
    found.problems[before:] = told
    if not examined.exact:
        return

    def cluster() -> None:
        with connected(config, address):
            fits = found.collect(lambda: check_cluster(config), "cluster.resources")
            if fits:
                _start(config, found, _known_broken(config, found.problems, examined.recipe is None))

    found.collect(cluster, "cluster.unreachable")
    found.problems[:] = dict.fromkeys(found.problems)


def _is_news(problem: Problem, examined: Examined) -> bool:
    """Whether a problem of the files is one that the recipe's own faults do not explain."""
    if any(f": {Path(value)} " in problem.text or f": {value} " in problem.text for value in examined.not_found):
        return False
    settled = examined.exact and not any(known.code == "recipe.combination" for known in examined.problems)
    return settled or problem.code not in ("prompts.too_few", "rewards.no_prompts")


def _known_broken(config: RunConfig, problems: Sequence[Problem], does_not_load: bool) -> set[str]:
    """Roles of which something has been told already: starting them would only tell it again, less clearly.

    A problem names the keys it is about. Of a recipe that does not load only scorers are started, each by itself: the
    others have a hand in most combinations.
    """
    sections = {f"reward.{name}": (f"{key}.", f"actors.pools.{name}.") for key, name, _ in config.judges()}
    told = [problem.text for problem in problems]
    broken = {role for role, keys in sections.items() if any(key in text for key in keys for text in told)}
    no_base = does_not_load or any(problem.code == "model.files" for problem in problems)
    return broken.union(DRAWS_AND_LEARNS if no_base else ())


def _start(config: RunConfig, found: Found, without: set[str]) -> None:
    """Start actors as a run would: the base is loaded, each scorer scores one known image."""
    from actors.local_ray import new_identity
    from actors.remote import RayRemote
    from actors.team import Team, ray_spawn

    def warn(text: str) -> None:
        # A process that was replaced by one that came up stops nothing; one that does not come up is a problem then.
        found.warnings.append(Problem("actors.start", text))

    team = Team(config, RayRemote(), ray_spawn(new_identity(config.run.name)), warn)
    try:
        if found.collect(lambda: team.start(_go_on, _say, without), "actors.start"):
            found.vitals = team.start_vitals()
        else:
            found.problems[:] = map(_named_by_role, found.problems)
    finally:
        team.close()


def _named_by_role(problem: Problem) -> Problem:
    """A scorer that cannot start or score is a problem of the rewards."""
    of_reward = problem.code == "actors.start" and problem.text.startswith("reward.")
    return Problem("rewards.start", problem.text) if of_reward else problem


def _go_on() -> None:
    """Nobody asks a check to stop but Ctrl-C."""


def _say(detail: str) -> None:
    # Only for eyes: whoever reads standard error by lines gets the problems and nothing else.
    if sys.stderr.isatty():
        print(f"\x1b[2Kstarting actors: {detail}", file=sys.stderr, end="\r", flush=True)


def _tell(path: Path, found: Found, asked: Sequence[Asked], as_json: bool) -> None:
    tell([problem.text for problem in found.problems], [warning.text for warning in found.warnings])
    if as_json:
        print(to_json(_data(path, found, asked)))
    elif not found.problems:
        _print_actors(found.vitals)
        print(f"{path}: no problems found")


def _data(path: Path, found: Found, asked: Sequence[Asked]) -> dict[str, Any]:
    return {
        "recipe": str(path),
        "ok": not found.problems,
        "problems": [asdict(problem) for problem in found.problems],
        "warnings": [asdict(warning) for warning in found.warnings],
        "asked": [{"role": a.role, "replicas": a.replicas, "each": dict(a.each)} for a in asked],
        "actors": [{"name": v.name, "start_s": v.start_s, "peak_memory_gib": v.peak_memory_gib} for v in found.vitals],
    }


def _print_actors(vitals: Sequence[ActorVitals]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, 2), header_style="dim")
    for title in ("actor", "threads", "start", "peak memory"):
        table.add_column(title, justify="left" if title == "actor" else "right")
    for v in vitals:
        table.add_row(v.name, str(v.threads), f"{v.start_s:.1f} s", f"{v.peak_memory_gib:.2f} GiB")
    Console().print(table)
