"""Asking a running run for another number of replicas: small files in its run directory.

`marble scale` puts a request there, the controller takes it up between two looks at its calls and leaves an answer.
Whoever sees the run directory can ask, from whatever machine; each file appears by a rename, so nobody reads half of
one. Imports neither torch nor ray.
"""

import json
import os
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.config import PoolConfig
from actors.files import write_atomically
from learner import json_text
from learner.errors import UserError
from rewards.dotted import nearest

FOLDER = "scale"
REQUEST, TAKEN, ANSWER = ".request.json", ".taken.json", ".answer.json"
ASK_AGAIN_S = 0.1
TAKEN_PATIENCE_S = 10.0
"""For the answer to a request that was taken up: applying it takes milliseconds."""


@dataclass(frozen=True)
class Resized:
    """One pool's change."""

    reward: str
    before: int
    after: int


Apply = Callable[[Mapping[str, int]], list[Resized]]
"""Gives pools (by reward) the sizes asked for; raises UserError, and changes nothing, where one is not allowed."""


def check_size(reward: str, size: int, pools: Mapping[str, PoolConfig]) -> None:
    """
    Raises:
        UserError: no such pool, or not so many replicas.
    """
    if reward not in pools:
        raise UserError(f"reward.{reward}: the run's rewards are {', '.join(pools)}{nearest(reward, list(pools))}")
    if not pools[reward].allows(size):
        raise UserError(f"reward.{reward}={size}: actors.pools.{reward} allows {pools[reward].range_text} replicas")


# -- asking -----------------------------------------------------------------------------------------------------------


def ask(
    run_dir: Path, sizes: Mapping[str, int], patience_s: float, running: Callable[[], bool] = lambda: True
) -> list[Resized]:
    """Leaves a request and waits for the answer.

    Args:
        running: whether the run still goes on; one that has ended is not waited for.

    Raises:
        UserError: it was refused, nobody took it up (it is withdrawn then), or it was taken up and not answered.
    """
    folder = run_dir / FOLDER
    folder.mkdir(exist_ok=True)
    name = secrets.token_hex(8)
    request, answer = folder / (name + REQUEST), folder / (name + ANSWER)
    _write(request, {"sizes": dict(sizes)})
    try:
        answered = _wait(answer, patience_s, running)
    except BaseException:  # Ctrl-C above all: nobody waits for the answer any more
        _withdrawn(request)
        raise
    if not answered and _withdrawn(request):
        why = f"did not take up the request within {patience_s:g} s" if running() else "has ended meanwhile"
        raise UserError(f"{run_dir} {why}; nothing was changed")
    if not answered and not _wait(answer, TAKEN_PATIENCE_S, lambda: True):
        raise UserError(f"{run_dir} took up the request and gave no answer; its status says what became of it")
    data = json_text.parse(answer.read_bytes())
    answer.unlink()
    if data["refused"]:
        raise UserError(data["refused"])
    return [Resized(**change) for change in data["resized"]]


def _wait(path: Path, patience_s: float, running: Callable[[], bool]) -> bool:
    deadline_s = time.monotonic() + patience_s
    while not path.exists():
        if time.monotonic() > deadline_s or not running():
            return path.exists()  # the last thing a run does may be to answer
        # A listing makes network file systems look again.
        os.listdir(path.parent)
        time.sleep(ASK_AGAIN_S)
    return True


def _withdrawn(request: Path) -> bool:
    """Whether the request could be taken back; not so where the run has it by now."""
    try:
        request.unlink()
    except FileNotFoundError:
        return False
    return True


# -- answering --------------------------------------------------------------------------------------------------------


class Requests:
    """The controller's side."""

    def __init__(self, run_dir: Path) -> None:
        """What an earlier life of the run left behind is dropped; from here on requests wait to be served."""
        self._folder = run_dir / FOLDER
        for path in self._files(REQUEST, TAKEN, ANSWER):
            with suppress(OSError):
                path.unlink()

    def serve(self, apply: Apply) -> None:
        """Takes up every request that is there, the oldest first, and answers it.

        The folder is open to others, perhaps other users: whatever they put there must not end the run.
        """
        for request in self._files(REQUEST):
            taken = request.with_name(request.name.removesuffix(REQUEST) + TAKEN)
            try:
                request.rename(taken)
            except OSError:
                continue  # withdrawn at this moment, or not ours to take
            answer = _answer(taken, apply)
            with suppress(OSError):
                _write(request.with_name(request.name.removesuffix(REQUEST) + ANSWER), answer)
                taken.unlink()

    def _files(self, *kinds: str) -> list[Path]:
        """The oldest first."""
        try:
            found = [path for path in self._folder.iterdir() if path.name.endswith(kinds)]
            return sorted(found, key=lambda path: path.stat().st_mtime)
        except OSError:
            return []


def _answer(taken: Path, apply: Apply) -> dict[str, Any]:
    try:
        resized = apply(_sizes(taken))
    except UserError as error:
        return {"refused": str(error), "resized": []}
    return {"refused": "", "resized": [vars(change) for change in resized]}


def _sizes(taken: Path) -> dict[str, int]:
    """
    Raises:
        UserError: not what :func:`ask` writes.
    """
    try:
        sizes: dict[str, int] = json_text.parse(taken.read_bytes())["sizes"]
        wrong = [size for size in sizes.values() if type(size) is not int]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{taken.name} is no request: {error}") from error
    if wrong:
        raise UserError(f"{taken.name} is no request: {wrong[0]!r} is no number of replicas")
    return sizes


def _write(path: Path, data: Mapping[str, Any]) -> None:
    text = json.dumps(data)
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
