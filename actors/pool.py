"""One reward's pool: replicas of its scorer, and the bookkeeping that turns their answers into cells.

Each call scores one slice of one rollout task, never samples of two tasks together: batch shapes, and with them the
last bit of the scores, do not depend on who draws what. Which prompts a reward applies to is decided here, before
anything is sent; a slice without any such prompt costs no call.

Letters: N samples of one call.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from actors.config import PoolConfig
from actors.crew import Crew, Outcome, Work
from actors.process import Started
from actors.prompts import Prompt
from actors.remote import Ref
from actors.results import ActorVitals
from rewards.config import ARGS_OF_BUILT_IN, RewardConfig
from rewards.contract import Metadata, RewardResult, State
from rewards.registry import applicable
from rewards.safe import NOT_APPLICABLE_REASON

MIN_TEST_SIDE = 32
"""Pixels; the self-test's known image is not legible below."""


@dataclass(frozen=True)
class ScorerSpec:
    """What one scorer actor is made from."""

    name: str
    reward: str
    role: PoolConfig
    config: RewardConfig
    resolution: int
    """Pixels per side of the images to come; the self-test uses the same."""


@dataclass(frozen=True)
class ScoreRequest:
    """One slice of one rollout task for one reward."""

    task: int
    start: int
    """First row of the slice within the task."""
    prompts: tuple[str, ...]
    """[N]"""
    metadata: tuple[Metadata, ...]
    """[N]"""
    applicable_N: NDArray[np.bool_]
    evaluation: bool
    """Ask for the reported figure in place of the training score."""
    tries: int = 1


@dataclass(frozen=True)
class Cells:
    """Finished cells: rows `start` to `start + N` of one task."""

    task: int
    start: int
    result: RewardResult


class ScorerActor:
    """One scorer in a process of its own; Ray gives it one call at a time."""

    def __init__(self, spec: ScorerSpec) -> None:
        self._spec = spec
        self._started = Started(f"reward {spec.reward}", spec.name, spec.role.threads)
        self._scorer: Any = None

    def start(self) -> ActorVitals:
        """Loads the scorer and has it score one known image.

        Raises:
            Exception: whatever the scorer raises when it cannot start or cannot score.
        """
        with self._started:
            from rewards import registry

            config = with_threads(self._spec.config, self._spec.role.threads)
            self._scorer = registry.build_scorer(self._spec.reward, config)
            registry.self_test(self._scorer, max(MIN_TEST_SIDE, self._spec.resolution))
        return self._started.vitals

    def score(self, images_NHWC: NDArray[np.uint8], request: ScoreRequest) -> RewardResult:
        """Cells of one slice of the task's images."""
        from rewards.safe import score_safely

        rows = slice(request.start, request.start + len(request.prompts))
        return score_safely(
            self._scorer,
            images_NHWC[rows],
            request.prompts,
            request.metadata,
            request.applicable_N,
            evaluation=request.evaluation,
        )

    def vitals(self) -> ActorVitals:
        """As of now."""
        return self._started.vitals


def with_threads(config: RewardConfig, threads: int) -> RewardConfig:
    """The configuration with the pool's threads, where the scorer runs sessions of its own and asks for fewer."""
    model = ARGS_OF_BUILT_IN.get(config.scorer)
    if model is None or "num_threads" not in model.model_fields:
        return config
    asked = config.args.get("num_threads", 1)
    return config.model_copy(update={"args": {**config.args, "num_threads": max(asked, threads)}})


class RewardPool:
    """The controller's side of one reward."""

    def __init__(self, name: str, config: RewardConfig, role: PoolConfig, crew: Crew) -> None:
        self.name, self.crew = name, crew
        self._config, self._role = config, role

    def submit(self, task: int, images: Ref, prompts: Sequence[Prompt], evaluation: bool) -> Iterator[Cells]:
        """Has a task's images scored; yields at once the cells of slices that need no call.

        Args:
            prompts: one for each image of the task.
        """
        for start in range(0, len(prompts), self._role.batch_size):
            part = prompts[start : start + self._role.batch_size]
            request = ScoreRequest(
                task,
                start,
                tuple(prompt.text for prompt in part),
                tuple(prompt.metadata for prompt in part),
                np.array([self.applies(prompt) for prompt in part], dtype=np.bool_),
                evaluation,
            )
            if request.applicable_N.any():
                self._send(images, request)
            else:
                yield Cells(task, start, _unscored(request, NOT_APPLICABLE_REASON))

    def applies(self, prompt: Prompt) -> bool:
        """Whether this reward applies to a prompt."""
        return applicable(self._config, prompt.source, prompt.text, prompt.metadata)

    def accept(self, outcome: Outcome) -> Cells | None:
        """Takes one call's end; None where failed cells are tried again first."""
        call: _Call = outcome.key  # type: ignore[assignment]  # the keys of this crew are what _send made
        request = call.request
        if outcome.error:
            # The crew has used up the tries; the cells fail with the last reason.
            result = _unscored(request, f"{self.name}: {outcome.error}")
        else:
            result = outcome.value
            failed_N = result.states == State.FAILED
            if failed_N.any() and request.tries <= self._role.retries:
                again = replace(request, applicable_N=failed_N, tries=request.tries + 1)
                self._send(call.images, again, _merge(call.earlier, result))
                return None
        return Cells(request.task, request.start, _merge(call.earlier, result))

    def _send(self, images: Ref, request: ScoreRequest, earlier: RewardResult | None = None) -> None:
        self.crew.submit(Work(_Call(images, request, earlier), "score", (images, request)))


@dataclass(frozen=True, eq=False)
class _Call:
    """A call under way: identity is its key."""

    images: Ref
    request: ScoreRequest
    earlier: RewardResult | None
    """Cells of the tries before this one."""


def _unscored(request: ScoreRequest, reason: str) -> RewardResult:
    """Applicable cells failed for one reason, the others not applicable."""
    states = np.where(request.applicable_N, State.FAILED, State.NOT_APPLICABLE).astype(np.uint8)
    reasons = tuple(reason if applies else NOT_APPLICABLE_REASON for applies in request.applicable_N)
    return RewardResult(np.full(len(states), np.nan, dtype=np.float32), states, reasons)


def _merge(earlier: RewardResult | None, later: RewardResult) -> RewardResult:
    """The earlier cells, and the later ones where the earlier failed."""
    if earlier is None:
        return later
    failed_N = earlier.states == State.FAILED
    reasons = zip(failed_N, earlier.reasons, later.reasons, strict=True)
    return RewardResult(
        np.where(failed_N, later.scores, earlier.scores),
        np.where(failed_N, later.states, earlier.states),
        tuple(new if failed else old for failed, old, new in reasons),
    )
