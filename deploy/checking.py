"""What `marble check` looks at: recipe, files, cluster, and every actor's start with one image through each reward."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from actors.preflight import Asked, asked_by_role, check_cluster, check_files
from actors.results import ActorVitals
from actors.run_config import RunConfig
from deploy.errors import EXIT_USER, user_lines
from deploy.recipe import load_recipe
from learner.errors import UserError


def check_recipe(path: Path, sets: Sequence[str], address: str | None, as_json: bool) -> int:
    """Print what was found; returns the exit code."""
    try:
        config = load_recipe(path, sets).config
    except UserError as error:
        return _tell(path, list(user_lines(error) or ()), (), (), as_json)
    problems, vitals = look(config, address)
    return _tell(path, problems, asked_by_role(config), vitals, as_json)


def look(config: RunConfig, address: str | None) -> tuple[list[str], tuple[ActorVitals, ...]]:
    """Every problem of a valid recipe, and what the actors said when they were up."""
    # Not at the top: a recipe that does not load is told without waiting for ray.
    from actors.local_ray import connected

    problems: list[str] = []
    _collect(problems, lambda: check_files(config))
    vitals: tuple[ActorVitals, ...] = ()
    try:
        with connected(config, address):
            fits = _collect(problems, lambda: check_cluster(config))
            # A base model that is known to be broken would only be told again, by every actor.
            if fits and not any(line.startswith("policy.") for line in problems):
                vitals = _start(config, problems)
    except UserError as error:
        problems += user_lines(error) or ()
    return list(dict.fromkeys(problems)), vitals


def _collect(problems: list[str], check: Any) -> bool:
    """Run one check; its problems join the others. Returns whether there were none."""
    try:
        check()
    except UserError as error:
        problems += user_lines(error) or ()
        return False
    return True


def _start(config: RunConfig, problems: list[str]) -> tuple[ActorVitals, ...]:
    """Start every actor as a run would: the base is loaded, each scorer scores one known image."""
    from actors.local_ray import new_identity
    from actors.remote import RayRemote
    from actors.team import Team, ray_spawn

    team = Team(config, RayRemote(), ray_spawn(new_identity(config.run.name)), problems.append)
    try:
        started = _collect(problems, lambda: team.start(_go_on, _say))
        return team.start_vitals() if started else ()
    finally:
        team.close()


def _go_on() -> None:
    """Nobody asks a check to stop but Ctrl-C."""


def _say(detail: str) -> None:
    # Only for eyes: whoever reads standard error by lines gets the problems and nothing else.
    if sys.stderr.isatty():
        print(f"\x1b[2Kstarting actors: {detail}", file=sys.stderr, end="\r", flush=True)


def _tell(path: Path, problems: list[str], asked: Sequence[Asked], vitals: Sequence[ActorVitals], as_json: bool) -> int:
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    if as_json:
        print(json.dumps(_data(path, problems, asked, vitals), indent=2, ensure_ascii=False))
    elif not problems:
        _print_actors(vitals)
        print(f"{path}: no problems found")
    return EXIT_USER if problems else 0


def _data(path: Path, problems: list[str], asked: Sequence[Asked], vitals: Sequence[ActorVitals]) -> dict[str, Any]:
    return {
        "recipe": str(path),
        "ok": not problems,
        "problems": problems,
        "asked": [{"role": a.role, "replicas": a.replicas, "each": dict(a.each)} for a in asked],
        "actors": [{"name": v.name, "start_s": v.start_s, "peak_memory_gib": v.peak_memory_gib} for v in vitals],
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
