"""Toy actors for real Ray, and looks at what Ray knows. A module of its own: workers import it by this name."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from actors.process import Started
from actors.results import ActorVitals
from actors.team import Identity


class Toy:
    """Says who it is; can be asked to die or to hang."""

    def __init__(self, name: str) -> None:
        self._started = Started("toy", name, 1)
        self._adapter = ""

    def start(self) -> ActorVitals:
        with self._started:
            return self._started.vitals

    def load(self, adapter: str) -> str:
        self._adapter = adapter
        return adapter

    def work(self, what: str, marker: str) -> tuple[NDArray[np.uint8], tuple[int, str, str]]:
        """Does what it is asked to, the first time."""
        path = Path(marker)
        if what != "work" and not path.exists():
            path.touch()
            if what == "die":
                os._exit(1)
            time.sleep(3600)
        return np.zeros(50_000, np.uint8), (os.getpid(), self._adapter, os.environ["OMP_NUM_THREADS"])


class Rank:
    """A member of a collective."""

    def train(self, dies: bool) -> int:
        if dies:
            os._exit(1)
        time.sleep(3600)
        return 0


def names_in(identity: Identity) -> list[str]:
    """Actors that Ray knows in a run's namespace."""
    import ray.util

    util: Any = ray.util
    found = util.list_named_actors(all_namespaces=True)
    return [actor["name"] for actor in found if actor["namespace"] == identity.namespace]


def wait_until(holds: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline_s, "it did not come true in time"
        time.sleep(0.1)
