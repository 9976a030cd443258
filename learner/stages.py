"""Which iterations belong to which stage, and which of them measure conflicts: functions of the recipe alone.

An iteration's number counts from 0. Imports no torch.
"""

from collections.abc import Sequence
from itertools import accumulate

from learner.config import LearnerConfig, StageConfig


def ends(stages: tuple[StageConfig, ...]) -> tuple[int, ...]:
    """Iterations done at the end of each stage."""
    return tuple(accumulate(stage.iterations for stage in stages))


def stage_of(stages: tuple[StageConfig, ...], iteration: int) -> StageConfig | None:
    """The stage of an iteration, the last one beyond all ends; None where there are no stages."""
    if not stages:
        return None
    return next((stage for stage, end in zip(stages, ends(stages), strict=True) if iteration < end), stages[-1])


def begins(stages: tuple[StageConfig, ...], iteration: int) -> bool:
    """Whether an iteration is the first of a stage that another one went before."""
    return iteration in ends(stages)[:-1]


def trained_until(config: LearnerConfig, reward_names: Sequence[str], iterations_done: int) -> tuple[str, ...]:
    """The rewards that some iteration so far has trained."""
    starts = (0, *ends(config.stages)[:-1])
    begun = [stage for stage, start in zip(config.stages, starts, strict=False) if start < iterations_done]
    names = {name for stage in begun for name in stage.rewards} if config.stages else set(reward_names)
    weights = config.weights
    return tuple(n for n in reward_names if n in names and (weights is None or weights[n] > 0))


def probed_updates(config: LearnerConfig, iteration: int) -> frozenset[int]:
    """Which optimizer steps of an iteration are measured against their own batch, counted from 0 within it.

    Counted by iterations and not by steps applied, so that it is known before the batch is drawn.
    """
    if not config.probe_every or iteration < 0:
        return frozenset()
    first = iteration * config.updates_per_iteration
    return frozenset(i for i in range(config.updates_per_iteration) if (first + i) % config.probe_every == 0)


def measures(config: LearnerConfig, iteration: int) -> bool:
    """Whether an iteration measures: steps of its own, or those of the one before against its batch."""
    return bool(probed_updates(config, iteration) or probed_updates(config, iteration - 1))
