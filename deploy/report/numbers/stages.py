"""Stages of a run that trains some of its rewards at a time, and what each of them left of every reward."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deploy.report.numbers.curves import Curve


@dataclass(frozen=True)
class Stage:
    """A stretch of iterations."""

    rewards: tuple[str, ...]
    """Those it trains."""
    begin: int
    """Iterations done before it."""
    end: int
    """Iterations done after it."""


def stages_of(config: Mapping[str, Any]) -> tuple[Stage, ...]:
    """A recipe's stages; none where it has none, or where they are not what stages are."""
    learner = config.get("learner")
    listed = learner.get("stages") if isinstance(learner, Mapping) else None
    found: list[Stage] = []
    for one in listed if isinstance(listed, list) else ():
        rewards, iterations = (one.get("rewards"), one.get("iterations")) if isinstance(one, Mapping) else (None, None)
        if not isinstance(rewards, list) or type(iterations) is not int or iterations < 1:
            return ()
        begin = found[-1].end if found else 0
        found.append(Stage(tuple(map(str, rewards)), begin, begin + iterations))
    return tuple(found)


def at(curve: Curve | None, done: int) -> float:
    """A held-out mean after so many iterations; NaN where no evaluation was made then."""
    values = [] if curve is None else curve.mean[curve.x == done].tolist()
    return float(values[0]) if values else math.nan


def changes(stages: Sequence[Stage]) -> tuple[int, ...]:
    """Iterations done where one stage ends and another begins."""
    return tuple(stage.end for stage in stages[:-1])
