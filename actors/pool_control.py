"""What happens to pools while a run goes on: requests of `marble scale`, autoscaling, and the figures of `status`.

A party of every pump (actors.pump) that has no calls of its own: whoever is waited for, this moves on.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from actors.autoscaler import Autoscaler
from actors.crew import Outcome
from actors.pool import RewardPool
from actors.pool_stats import write_pools
from actors.remote import Ref, Remote
from actors.scaling import Requests, Resized, check_size

LOOK_EVERY_S = 0.5
"""Between two looks for requests, and at the queues."""
WRITE_EVERY_S = 2.0
"""Between two writes of the figures."""


class PoolControl:
    """Resizes pools, and says how they are doing."""

    role = "pools"

    def __init__(
        self,
        run_dir: Path,
        requests: Requests,
        remote: Remote,
        pools: Mapping[str, RewardPool],
        on_resized: Callable[[Resized, str], None],
    ) -> None:
        """`on_resized` gets each change, and whether it came by `request` or `autoscale`."""
        self._run_dir, self._remote, self._pools, self._on_resized = run_dir, remote, pools, on_resized
        self._requests = requests
        self._autoscalers = {name: Autoscaler(pool.role) for name, pool in pools.items() if pool.role.autoscale}
        self._failed_starts = {name: pool.crew.failed_starts for name, pool in pools.items()}
        self._look_at_s = self._write_at_s = remote.now_s()

    def refs(self) -> list[Ref]:
        """Nothing is waited for."""
        return []

    def handle(self, ref: Ref) -> list[Outcome]:
        """No call is made."""
        return []

    def expire(self) -> list[Outcome]:
        """Does what is due by the clock."""
        now_s = self._remote.now_s()
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + LOOK_EVERY_S
            self._requests.serve(self.resize)
            self._autoscale(now_s)
        if now_s >= self._write_at_s:
            self._write_at_s = now_s + WRITE_EVERY_S
            self.write()
        return []

    def write(self) -> None:
        """The figures as of now, into the run directory; for eyes only, so a full disk is not met here first."""
        with suppress(OSError):
            write_pools(self._run_dir, {name: pool.state() for name, pool in self._pools.items()})

    def resize(self, sizes: Mapping[str, int]) -> list[Resized]:
        """Gives pools the sizes asked for.

        Raises:
            UserError: one of them is not allowed; none is changed then.
        """
        for name, size in sizes.items():
            check_size(name, size, {name: pool.role for name, pool in self._pools.items()})
        return [self._resize(name, size, "request") for name, size in sizes.items()]

    def _resize(self, name: str, size: int, why: str) -> Resized:
        crew = self._pools[name].crew
        change = Resized(name, crew.size, size)
        crew.resize(size)
        if change.before != change.after:
            self._on_resized(change, why)
        return change

    def _autoscale(self, now_s: float) -> None:
        for name, scaler in self._autoscalers.items():
            crew = self._pools[name].crew
            if crew.failed_starts > self._failed_starts[name]:
                self._failed_starts[name] = crew.failed_starts
                scaler.pause(now_s)
            size = scaler.decide(now_s, crew.size, crew.num_outstanding)
            if size != crew.size:
                self._resize(name, size, "autoscale")
