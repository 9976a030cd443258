"""What `marble scale` does: checks the request against the run's recipe, and hands it to the run."""

import re
from collections.abc import Sequence
from pathlib import Path

from actors.lock import owner_of
from actors.run_config import RunConfig
from actors.scaling import ask, check_size
from deploy.errors import ProblemsError, loading, user_lines
from deploy.files import to_json
from deploy.rundir import RunDir, load_run, runs_root
from learner.errors import UserError

PATIENCE_S = 60.0
"""For a run to take the request up; it looks twice a second, but not while its actors start."""
_SIZE = re.compile(r"^reward\.([^=]+)=([0-9]{1,9})$")


def scale_run(run: Path, texts: Sequence[str], as_json: bool) -> None:
    """Resize pools of a running run and print what changed.

    Raises:
        UserError: no such run, it is not running, a size is not allowed, or the run did not answer.
    """
    run_dir, recipe = load_run(run if run.exists() else runs_root() / run)
    sizes = parse(texts, recipe.config)
    if not _is_running(run_dir):
        raise UserError(f"{run_dir.path} is not running; its recipe says with how many replicas it starts")
    with loading(str(run_dir.path)):
        resized = ask(run_dir.path, sizes, PATIENCE_S, lambda: _is_running(run_dir))
    if as_json:
        print(to_json([vars(change) for change in resized]))
        return
    for change in resized:
        print(f"reward.{change.reward}: {change.before} -> {change.after} replicas")


def parse(texts: Sequence[str], config: RunConfig) -> dict[str, int]:
    """`reward.ocr=4` and the like, by reward.

    Raises:
        UserError: every one that is wrong, a line each.
    """
    sizes: dict[str, int] = {}
    problems: list[str] = []
    for text in texts:
        match = _SIZE.match(text)
        if match is None:
            problems.append(f"{text}: wants reward.NAME=N, e.g. reward.{config.reward_names[0]}=4")
            continue
        name, size = match[1], int(match[2])
        if name in sizes:
            problems.append(f"{text}: reward.{name} is named twice")
        sizes[name] = size
        try:
            check_size(name, size, {reward: config.pool(reward) for reward in config.judge_names})
        except UserError as error:
            problems += user_lines(error) or ()
    if problems:
        raise ProblemsError(problems)
    return sizes


def _is_running(run_dir: RunDir) -> bool:
    """Whether somebody holds the run who is not known to be dead: one on another machine is given the chance."""
    owner = owner_of(run_dir.path)
    return owner is not None and owner.alive is not False
