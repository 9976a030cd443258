"""Who makes the runs: processes of this machine, one after the other, or jobs of a Ray cluster."""

import hashlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from deploy.compare.runs import RunSpec, holder, opening, standing
from deploy.errors import EXIT_INTERRUPTED, EXIT_TERMINATED
from deploy.paths import ROOT
from learner.errors import UserError

POLL_S = 5.0
"""Between looks at runs that are not children of this process."""
STOPPED = (EXIT_INTERRUPTED, EXIT_TERMINATED)


class StoppedError(Exception):
    """Somebody asked to stop; what was under way is kept."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Runner(Protocol):
    """Makes runs."""

    def make(self, specs: Sequence[RunSpec], made: Callable[[RunSpec], None], alone: bool = False) -> None:
        """Bring every run to its end; `made` is told of each that is.

        Args:
            alone: one after the other, so that none takes another's time.

        Raises:
            UserError: a run failed.
            StoppedError: asked to stop.
        """
        ...


class Processes:
    """One after the other, as a user would type them; each is resumed where it was stopped."""

    def __init__(self, say: Callable[[str], None], output: int | None = None) -> None:
        """
        Args:
            output: file descriptor for what runs print on standard output; None: the same as ours.
        """
        self._say, self._output = say, output

    def make(self, specs: Sequence[RunSpec], made: Callable[[RunSpec], None], alone: bool = False) -> None:
        """See :class:`Runner`; they always are."""
        for spec in specs:
            self._make(spec)
            made(spec)

    def _make(self, spec: RunSpec) -> None:
        if standing(spec) == "alive":
            # Left by a comparison that was killed: it is the same run, and nearer to its end than a new one.
            self._say(f"{spec.name} is being trained by {holder(spec)}; waiting for it")
            while standing(spec) == "alive":
                time.sleep(POLL_S)
        now = standing(spec)
        if now == "done":
            return
        self._say(f"{spec.name}: {'going on' if now == 'stopped' else 'starting'}")
        code = run_process(opening(spec), self._output)
        if code in STOPPED:
            raise StoppedError(code)
        if code or standing(spec) != "done":
            raise UserError(f"run {spec.name} ended with exit code {code}; what it said stands above")


def run_process(arguments: Sequence[str], output: int | None = None) -> int:
    """Run `marble` in a process of its own, and hand on to it what this one is asked; returns the exit code.

    It has a session of its own, so that Ctrl-C reaches it once and through us.

    Raises:
        StoppedError: asked to stop when the run was as good as over and ended well.
    """
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")]))}
    command = [sys.executable, "-m", "deploy.cli", *arguments]
    with (
        subprocess.Popen(command, cwd=ROOT, env=env, stdout=output, start_new_session=True) as process,
        _handed_on(process) as asked,
    ):
        code = _as_shell(process.wait())
    if asked and not code:
        raise StoppedError(EXIT_INTERRUPTED if asked[0] == signal.SIGINT else EXIT_TERMINATED)
    return code


def _as_shell(code: int) -> int:
    return 128 - code if code < 0 else code


@contextmanager
def _handed_on(process: "subprocess.Popen[bytes]") -> Iterator[list[int]]:
    """Signals go to the process; gives those that came."""
    came: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        came.append(number)
        process.send_signal(number)

    former = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


class Jobs:
    """Jobs of a Ray cluster whose nodes see the comparison's directory at the same path."""

    def __init__(self, client: Any, parallel: int, say: Callable[[str], None], sleep: Callable[[float], None]) -> None:
        """
        Args:
            client: ray.job_submission.JobSubmissionClient.
            parallel: jobs at once.
        """
        self._client, self._parallel, self._say, self._sleep = client, parallel, say, sleep

    def make(self, specs: Sequence[RunSpec], made: Callable[[RunSpec], None], alone: bool = False) -> None:
        """See :class:`Runner`."""
        waiting, running = list(specs), dict[str, RunSpec]()
        parallel = 1 if alone else self._parallel
        try:
            while waiting or running:
                while waiting and len(running) < parallel:
                    spec = waiting.pop(0)
                    if standing(spec) == "done":
                        made(spec)
                    else:
                        running[self._submit(spec)] = spec
                self._look(running, made)
        except KeyboardInterrupt:
            for job in running:
                self._client.stop_job(job)
            raise StoppedError(EXIT_INTERRUPTED) from None

    def _submit(self, spec: RunSpec) -> str:
        """The job of a run: one that an earlier comparison submitted and that still works, or a new one."""
        known = {str(job.submission_id): job.status for job in self._client.list_jobs()}
        prefix = f"marble-{hashlib.sha256(str(spec.run_dir.path).encode()).hexdigest()[:16]}-"
        # Ray gives no id twice: the number of the try stands behind. Whatever else is in the list is somebody's own.
        ours = [job for job in known if job.startswith(prefix) and job.removeprefix(prefix).isdecimal()]
        for job in ours:
            if not _over(known[job]):
                self._say(f"{spec.name}: job {job} goes on")
                return job
        if standing(spec) == "alive":
            raise UserError(f"{spec.name} is being trained by {holder(spec)}, which is no job of this cluster")
        entrypoint = shlex.join(["python", "-m", "deploy.cli", *opening(spec)])
        tries = max((int(job.removeprefix(prefix)) for job in ours), default=0)
        job = self._client.submit_job(
            entrypoint=entrypoint,
            submission_id=f"{prefix}{tries + 1}",
            runtime_env={"working_dir": str(ROOT)},
        )
        self._say(f"{spec.name}: job {job}")
        return str(job)

    def _look(self, running: dict[str, RunSpec], made: Callable[[RunSpec], None]) -> None:
        over = [job for job in running if _over(self._client.get_job_status(job))]
        for job in over:
            spec = running.pop(job)
            if standing(spec) != "done":
                lines = str(self._client.get_job_logs(job)).splitlines()[-3:]
                raise UserError(f"run {spec.name}, job {job}, did not end well: {' | '.join(lines)}")
            made(spec)
        if running and not over:
            self._sleep(POLL_S)


def _over(status: Any) -> bool:
    return str(getattr(status, "value", status)).upper() in ("SUCCEEDED", "FAILED", "STOPPED")
