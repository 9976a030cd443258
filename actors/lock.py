"""The lock of a run directory: two learners never share one.

A lock names the process that holds it. One whose process is dead is taken over; the caller warns of it.
"""

import json
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

from learner import json_text
from learner.errors import UserError

NAME = "run.lock"
MAX_PID = 2**31 - 1
"""The kernel's own type."""


@dataclass(frozen=True)
class Owner:
    """Who holds a run directory."""

    pid: int
    host: str
    started: str
    """When the process started, in the kernel's own count, which tells it from a later one with the same number."""

    @property
    def alive(self) -> bool | None:
        """Whether the process still runs; None where it is another machine's and cannot be asked."""
        if self.host != socket.gethostname():
            return None
        return _start_of(self.pid) == self.started


class RunLock:
    """Holds a run directory from :meth:`acquire` to :meth:`release`."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / NAME
        self._held = False

    def acquire(self) -> str:
        """Takes the lock; returns a warning where a dead process had left it, else "".

        Raises:
            UserError: another process holds it, or one on another machine may.
        """
        warning = ""
        for _ in range(2):
            try:
                self._create()
            except FileExistsError:
                warning = self._clear_stale()
            else:
                self._held = True
                return warning
        raise UserError(f"{self._path.parent} was taken by another run at this moment")

    def release(self) -> None:
        """Gives the lock back, if it is held."""
        if self._held:
            self._path.unlink(missing_ok=True)
            self._held = False

    def _create(self) -> None:
        pid = os.getpid()
        text = json.dumps(asdict(Owner(pid, socket.gethostname(), _start_of(pid))))
        # Made aside and linked: the lock is there with its content, or not there.
        draft = self._path.with_name(f".{NAME}.{pid}")
        draft.write_text(text, encoding="utf-8")
        try:
            os.link(draft, self._path)
        finally:
            draft.unlink()

    def _clear_stale(self) -> str:
        owner = owner_of(self._path.parent)
        if owner is None:
            self._path.unlink(missing_ok=True)
            return f"{self._path} was unreadable and has been taken over"
        if owner.alive is None:
            raise UserError(
                f"{self._path.parent} is held by process {owner.pid} on {owner.host}; "
                f"if that run is over, remove {NAME}"
            )
        if owner.alive:
            raise UserError(f"{self._path.parent} is in use by process {owner.pid}")
        self._path.unlink(missing_ok=True)
        return f"process {owner.pid}, which held {self._path.parent}, is dead; its lock has been taken over"


def owner_of(run_dir: Path) -> Owner | None:
    """Who holds a run directory; None where nobody does."""
    try:
        owner = Owner(**json_text.parse((run_dir / NAME).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    sound = type(owner.pid) is int and 0 < owner.pid <= MAX_PID
    return owner if sound and isinstance(owner.host, str) and isinstance(owner.started, str) else None


def _start_of(pid: int) -> str:
    """Start time of a process in clock ticks since boot; empty where there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return _probe(pid)
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]


def _probe(pid: int) -> str:
    """Where there is no /proc: a living process of that number is taken for the same one."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        return "alive"
    return "alive"
