"""How a reward's pool is doing, for `marble status`: counted by the controller, kept in `<run>/pools.json`.

Imports neither torch nor ray: whoever looks at a run reads the file.
"""

import json
import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import BaseModel, ValidationError

from actors.files import write_atomically

NAME = "pools.json"
RATE_WINDOW_S = 60.0
"""Images per second are counted over so long: an iteration or two of the tiny world."""
MAX_CALLS = 2000
"""Latest calls over which the percentiles are taken."""


@dataclass(frozen=True)
class PoolState:
    """One pool as of now."""

    replicas: int
    """That are up."""
    wanted: int
    """Those that still load included, those that leave not."""
    queue: int
    """Calls that wait for a replica."""
    running: int
    images: int
    """Whose cells are settled, in this life of the run; prompts the reward does not apply to do not count."""
    images_per_s: float
    """Over the last minute."""
    failed: int
    """Of `images`, for good."""
    lost: int
    """Processes that died or hung and were replaced."""
    p50_s: float | None
    """Seconds of a call on one batch, as the controller sees it; None before the first."""
    p95_s: float | None


class PoolMeter:
    """Counts what one pool does. Times are the remote's clock."""

    def __init__(self) -> None:
        self.images, self.failed = 0, 0
        self._calls: deque[float] = deque(maxlen=MAX_CALLS)
        self._settled: deque[tuple[float, int]] = deque()
        self._began_s: float | None = None

    def began(self, now_s: float) -> None:
        """Work came in; the first time starts the clock."""
        self._began_s = now_s if self._began_s is None else self._began_s

    def call(self, seconds: float) -> None:
        """A call came back."""
        self._calls.append(seconds)

    def settled(self, now_s: float, images: int, failed: int) -> None:
        """Cells that the reward applies to are done."""
        self.images += images
        self.failed += failed
        self._settled.append((now_s, images))
        self._forget(now_s)

    def images_per_s(self, now_s: float) -> float:
        """Over the last RATE_WINDOW_S, or since the first work came in."""
        self._forget(now_s)
        window_s = min(RATE_WINDOW_S, now_s - (now_s if self._began_s is None else self._began_s))
        return sum(images for _, images in self._settled) / window_s if window_s > 0 else 0.0

    def percentile(self, share: float) -> float | None:
        """Of the latest calls' seconds: the smallest that at least this share of them does not exceed."""
        return percentile(self._calls, share)

    def _forget(self, now_s: float) -> None:
        while self._settled and self._settled[0][0] <= now_s - RATE_WINDOW_S:
            self._settled.popleft()


def percentile(values: Sequence[float] | deque[float], share: float) -> float | None:
    """The smallest value that at least this share of all does not exceed; None where there is none."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else None


def write_pools(run_dir: Path, pools: Mapping[str, PoolState]) -> None:
    """Puts the state of all pools into the run directory."""
    text = json.dumps({"time": time.time(), "pools": {name: asdict(state) for name, state in pools.items()}})
    write_atomically(run_dir / NAME, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def read_pools(run_dir: Path) -> dict[str, PoolState]:
    """What :func:`write_pools` wrote last; empty where there is nothing that can be read."""
    try:
        return _PoolsFile.model_validate_json((run_dir / NAME).read_bytes(), strict=True).pools
    except (OSError, ValidationError):
        return {}


def drop_pools(run_dir: Path) -> None:
    """Of an earlier life of the run, whose figures would be taken for those of this one until it writes its own."""
    (run_dir / NAME).unlink(missing_ok=True)


class _PoolsFile(BaseModel):
    """Of what is in the file, what is read."""

    pools: dict[str, PoolState]
