"""What runs there are and what they are doing, read off their directories. Imports neither torch nor ray."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, ValidationError
from pydantic.dataclasses import dataclass
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from actors.lock import owner_of
from actors.pool_stats import PoolState, read_pools
from deploy import strict_yaml
from deploy.errors import loading, one_line
from deploy.files import to_json
from deploy.progress.view import WINDOW, duration, mean, number
from deploy.rundir import JOB_RUNS, RunDir, runs_root
from learner import json_text
from learner.errors import UserError

MANIFEST = "manifest.json"
"""The file of a checkpoint that is written last."""
STATE_STYLES = {"running": "green", "finished": "bold", "stopped": "yellow", "unreadable": "red"}


@dataclass(frozen=True, config=ConfigDict(strict=True))
class RewardState:
    """One reward of a run: training score at start and now, held-out mean of the base and of the last evaluation."""

    start: float | None = None
    now: float | None = None
    heldout_before: float | None = None
    heldout_last: float | None = None
    alpha: float | None = None


@dataclass(frozen=True, config=ConfigDict(strict=True))
class RunState:
    """One run directory. Types are checked, so that what stands in broken files cannot fail later, in the display."""

    name: str
    path: str
    state: str
    """running, finished, stopped, unknown (held by another machine) or unreadable."""
    detail: str = ""
    done: int = 0
    iterations: int = 0
    rewards: Mapping[str, RewardState] = field(default_factory=dict)
    pools: Mapping[str, PoolState] = field(default_factory=dict)
    """By reward, as the run wrote them last; empty before its actors are up."""
    last_checkpoint: str | None = None
    images_per_s: float | None = None
    seconds_since_event: float | None = None


def print_status(where: Path | None, as_json: bool) -> None:
    """Print the state of one run, of a folder of runs, or of all runs.

    Raises:
        UserError: what was named is neither a run nor a folder of runs.
    """
    with loading():
        runs = [read_run(run_dir) for run_dir in find_runs(where)]
    if as_json:
        print(to_json([asdict(run) for run in runs]))
    elif not runs:
        print(f"no runs in {where or runs_root()}")
    else:
        Console().print(Group(*(_shown(run) for run in runs)))


def find_runs(where: Path | None) -> list[RunDir]:
    """Run directories, oldest first.

    Raises:
        UserError: `where` is neither one of them nor holds any.
    """
    if where is None:
        folders = list(dict.fromkeys([runs_root(), JOB_RUNS.expanduser()]))
        return [run for folder in folders for run in _runs_in(folder)]
    named = where if where.exists() else runs_root() / where
    if _is_run(RunDir(named)):
        return [RunDir(named.absolute())]
    runs = _runs_in(named)
    if not runs:
        raise UserError(f"{where} is neither a run directory nor a folder of runs")
    return runs


def _runs_in(folder: Path) -> list[RunDir]:
    if not folder.is_dir():
        return []
    runs = [RunDir(path.absolute()) for path in folder.iterdir() if _is_run(RunDir(path))]
    return sorted(runs, key=_written)


def _is_run(run_dir: RunDir) -> bool:
    """A folder that may not be looked into may be a run; reading it will say what is wrong."""
    try:
        return run_dir.config.is_file()
    except PermissionError:
        return True


def _written(run_dir: RunDir) -> float:
    try:
        return run_dir.config.stat().st_mtime
    except OSError:
        return 0.0


def read_run(run_dir: RunDir) -> RunState:
    """The state of one run directory; a broken one says why instead of hiding the others."""
    what = "config.yaml"
    try:
        config = strict_yaml.load(run_dir.config)
        iterations = int(config["run"]["iterations"])
        names = [*config["rewards"], *(config.get("heldout_rewards") or {})]
        what = run_dir.metrics.name
        return _read(run_dir, config, iterations, names)
    # Files of a run are anyone's to write, and there are more ways to break one than types of errors to list.
    except Exception as error:  # noqa: BLE001
        said = str(error) if isinstance(error, UserError) else f"{what}: {_reason(error)}"
        return RunState(run_dir.path.name, str(run_dir.path), "unreadable", said)


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{error.args[0]} is missing"
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}, got {str(first['input'])[:40]}"
    return f"{type(error).__name__}: {one_line(str(error))}"


def _read(run_dir: RunDir, config: Mapping[str, Any], iterations: int, names: Sequence[str]) -> RunState:
    """
    Raises:
        Exception: whatever comes of values that are missing or of another type.
    """
    events = read_events(run_dir.metrics)
    trained = [event for event in events if event.get("event") == "iteration"]
    done = int(trained[-1]["done"]) if trained else 0
    state, detail = _state(run_dir, done >= iterations or _stopped_early(run_dir, done))
    return RunState(
        name=str(config["run"].get("name", run_dir.path.name)),
        path=str(run_dir.path),
        state=state,
        detail=detail,
        done=done,
        iterations=iterations,
        rewards={name: _reward(name, trained, events) for name in names},
        pools=read_pools(run_dir.path),
        last_checkpoint=_last_checkpoint(run_dir.checkpoints),
        images_per_s=trained[-1].get("images_per_s") if trained else None,
        seconds_since_event=time.time() - events[-1]["time"] if events and "time" in events[-1] else None,
    )


def read_events(path: Path) -> list[dict[str, Any]]:
    """Lines of metrics.jsonl; the last one may be half written while we read."""
    if not path.is_file():
        return []
    events = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            event = json_text.parse(line)
        except ValueError:
            break
        if isinstance(event, dict):
            events.append(event)
    return events


def _stopped_early(run_dir: RunDir, done: int) -> bool:
    """Whether the last end of a run was an early stop, and nothing was done since."""
    try:
        summary = json_text.parse(run_dir.summary.read_bytes())
        return bool(summary["stopped_early"]) and summary["iterations"] == done
    except (OSError, ValueError, LookupError, TypeError):
        return False


def _state(run_dir: RunDir, complete: bool) -> tuple[str, str]:
    owner = owner_of(run_dir.path)
    if owner is not None and owner.alive is None:
        return "unknown", f"held by process {owner.pid} on {owner.host}"
    if owner is not None and owner.alive:
        return "running", f"process {owner.pid}"
    if run_dir.summary.is_file() and complete:
        return "finished", ""
    return "stopped", f"process {owner.pid} died" if owner is not None else ""


def _reward(name: str, trained: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]) -> RewardState:
    scores = [e["rewards"][name] for e in trained if e.get("rewards", {}).get(name) is not None]
    heldout = [e for e in events if e.get("event") == "evaluation"]
    before = [e["means"].get(name) for e in heldout if e.get("which") == "before"]
    later = [e["means"].get(name) for e in heldout if e.get("which") != "before"]
    return RewardState(
        start=mean(scores[:WINDOW]) if scores else None,
        now=mean(scores[-WINDOW:]) if scores else None,
        heldout_before=before[-1] if before else None,
        heldout_last=later[-1] if later else None,
        alpha=trained[-1].get("alpha", {}).get(name) if trained else None,
    )


def _last_checkpoint(folder: Path) -> str | None:
    """Newest checkpoint that has its manifest; whether every file is whole is seen when it is loaded."""
    whole = [path for path in folder.glob("*") if path.name.isdigit() and (path / MANIFEST).is_file()]
    return str(max(whole, key=lambda path: int(path.name))) if whole else None


def _shown(run: RunState) -> RenderableType:
    head = Text.assemble(
        (run.name, "bold"),
        "  ",
        (run.state, STATE_STYLES.get(run.state, "cyan")),
        f" ({run.detail})" if run.detail else "",
        f"  iteration {run.done}/{run.iterations}" if run.iterations else "",
        f"  {number(run.images_per_s, 1)} images/s" if run.state == "running" and run.images_per_s else "",
        f"  last event {duration(run.seconds_since_event)} ago" if run.seconds_since_event is not None else "",
        (f"\n  {run.path}", "dim"),
        (f"\n  last checkpoint {Path(run.last_checkpoint).name}" if run.last_checkpoint else "", "dim"),
    )
    parts: list[RenderableType] = [head]
    if run.rewards:
        parts += [_rewards(run.rewards), ""]
    # Of a run that is over nobody waits in a queue.
    if run.pools and run.state in ("running", "unknown"):
        parts += [_pools(run.pools), ""]
    return Group(*parts)


def _rewards(rewards: Mapping[str, RewardState]) -> Table:
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for title in ("reward", "at start", "now", "change", "base, held out", "last, held out", "α"):
        table.add_column(title, justify="left" if title == "reward" else "right")
    for name, r in rewards.items():
        change = None if r.start is None or r.now is None else r.now - r.start
        values = [_known(r.start), _known(r.now), _known(change, sign=True), _known(r.heldout_before)]
        table.add_row(name, *values, _known(r.heldout_last), _known(r.alpha))
    return table


def _pools(pools: Mapping[str, PoolState]) -> Table:
    # Narrower than the table of rewards: nine columns should fit on eighty characters.
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for title in ("pool", "replicas", "queue", "running", "images/s", "failed", "lost", "p50 s", "p95 s"):
        table.add_column(title, justify="left" if title == "pool" else "right")
    for name, p in pools.items():
        replicas = f"{p.replicas}" if p.replicas == p.wanted else f"{p.replicas} of {p.wanted}"
        counts = [f"{p.queue}", f"{p.running}", number(p.images_per_s, 1), f"{p.failed}/{p.images}", f"{p.lost}"]
        table.add_row(name, replicas, *counts, _known(p.p50_s), _known(p.p95_s))
    return table


def _known(value: float | None, sign: bool = False) -> str:
    return "-" if value is None else number(value, sign=sign)
