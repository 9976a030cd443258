"""Which steps solve."""

from collections.abc import Mapping
from typing import Any, Protocol

from harmonizer.adaptive import Adaptive
from harmonizer.arrays import Bools
from harmonizer.config import RefreshConfig
from harmonizer.report import Signals


def is_due(step: int, config: RefreshConfig) -> bool:
    """Whether optimizer step `step` (from 0) solves: the first `warmup`, then every n-th after the last of these."""
    if config.policy == "never":
        return False
    if config.policy == "every_step" or step < config.warmup:
        return True
    return (step - (config.warmup - 1)) % config.n == 0


class RefreshPolicy(Protocol):
    """Decides before each step, and is told of each solve."""

    def due(self, step: int, active_K: Bools, signals: Signals | None) -> str:
        """Why step `step` solves; empty when it does not."""
        ...

    def solved(self, step: int, active_K: Bools, cosine: float) -> None:
        """Step `step` solved, and `cosine` is that of the direction cached weights would have taken with its own."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What it remembers, JSON-able."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Remember what `state_dict` gave.

        Raises:
            ValueError: a state of another policy; nothing is loaded then.
        """
        ...

    def reset(self) -> None:
        """Forget everything."""
        ...


class BySteps:
    """`every_n`, `every_step` and `never`: the step's number says it all."""

    def __init__(self, config: RefreshConfig) -> None:
        self._config = config

    def due(self, step: int, active_K: Bools, signals: Signals | None) -> str:
        """See :func:`is_due`."""
        return self._config.policy if is_due(step, self._config) else ""

    def solved(self, step: int, active_K: Bools, cosine: float) -> None:
        """Changes nothing."""

    def state_dict(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """There is nothing to load.

        Raises:
            ValueError: a state of another policy.
        """
        if state:
            raise ValueError(f"refresh policy {self._config.policy} remembers nothing, got a state of {list(state)}")

    def reset(self) -> None:
        """Nothing to forget."""


def build_policy(config: RefreshConfig) -> RefreshPolicy:
    """The policy a recipe names."""
    return Adaptive(config) if config.policy == "adaptive" else BySteps(config)
