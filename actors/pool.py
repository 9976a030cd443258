"""One reward's pool: replicas of its scorer, and the bookkeeping that turns their answers into cells.

Each call scores one slice of one rollout task, never samples of two tasks together: batch shapes, and with them the
last bit of the scores, depend neither on who draws what nor on how many replicas there are. Which prompts a reward
applies to is decided here, before anything is sent; a slice without any such prompt costs no call. What becomes of a
slice whose call fails, dies or hangs: actors.slices.

Letters: N samples of one call.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from actors.config import PoolConfig
from actors.crew import Crew, Outcome, Work
from actors.pool_stats import PoolMeter, PoolState
from actors.process import Started
from actors.prompts import Prompt
from actors.remote import CallFailedError, Ref
from actors.results import ActorVitals
from actors.slices import Ask, Cells, ScoreRequest, Slice
from rewards.config import ARGS_OF_BUILT_IN, RewardConfig
from rewards.contract import RewardResult, State
from rewards.registry import applicable, build_scorer, self_test
from rewards.safe import score_safely

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
            config = with_threads(self._spec.config, self._spec.role.threads)
            self._scorer = build_scorer(self._spec.reward, config)
            self_test(self._scorer, max(MIN_TEST_SIDE, self._spec.resolution))
        return self._started.vitals

    def score(self, images_NHWC: NDArray[np.uint8], request: ScoreRequest) -> RewardResult:
        """Cells of the request's samples.

        Args:
            images_NHWC: of the whole task.
        """
        images = rows_of(images_NHWC, request.rows_N)
        everywhere = np.ones(len(request.prompts), dtype=np.bool_)
        asked = (images, request.prompts, request.metadata, everywhere)
        return score_safely(self._scorer, *asked, evaluation=request.evaluation)

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


def rows_of(images_NHWC: NDArray[np.uint8], rows_N: NDArray[np.intp]) -> NDArray[np.uint8]:
    """Some of the images; no copy where they stand side by side."""
    first, last = int(rows_N[0]), int(rows_N[-1])
    together = np.array_equal(rows_N, np.arange(first, last + 1))
    return images_NHWC[first : last + 1] if together else images_NHWC[rows_N]


class RewardPool:
    """The controller's side of one reward."""

    def __init__(self, name: str, config: RewardConfig, role: PoolConfig, crew: Crew) -> None:
        """`crew` tries nothing again on its own: what is lost is taken apart here."""
        self.name, self.role, self.crew = name, role, crew
        self._config = config
        self._meter = PoolMeter()

    def submit(
        self, task: int, images: Ref, prompts: Sequence[Prompt], evaluation: bool, asked: bool = True
    ) -> Iterator[Cells]:
        """Has a task's images scored; yields at once the cells of slices that need no call.

        Args:
            prompts: one for each image of the task.
            asked: whether the reward takes part in this draw; else it applies to none of it.
        """
        if asked:
            self._meter.began(self.crew.now_s)
        for start in range(0, len(prompts), self.role.batch_size):
            part = prompts[start : start + self.role.batch_size]
            whole = Slice(task, start, images, part, [asked and self.applies(p) for p in part])
            self.crew.submit(*self._works(whole, whole.begin(), evaluation))
            if whole.done:
                yield whole.cells

    def applies(self, prompt: Prompt) -> bool:
        """Whether this reward applies to a prompt."""
        return applicable(self._config, prompt.source, prompt.text, prompt.metadata)

    def accept(self, outcome: Outcome) -> Cells | None:
        """Takes one call's end; None where more calls on its slice are to come."""
        call: _Call = outcome.key  # type: ignore[assignment]  # the keys of this crew are what _works made
        whole, reason, retries = call.whole, f"{self.name}: {outcome.error}", self.role.retries
        if not outcome.error:
            self._meter.call(outcome.seconds)
            asks = whole.answered(call.ask, outcome.value, retries)
        elif isinstance(outcome.cause, CallFailedError):
            asks = whole.raised(call.ask, reason, retries)
        else:
            asks = whole.lost(call.ask, reason, retries)
        # What cost a process goes before what came later: it takes longest, and its images lie in the store so long.
        self.crew.submit(*self._works(whole, asks, call.evaluation), first=bool(outcome.error))
        if not whole.done:
            return None
        cells = whole.cells
        self._count(cells.result)
        return cells

    def state(self) -> PoolState:
        """As of now."""
        crew, meter = self.crew, self._meter
        return PoolState(
            replicas=crew.num_up,
            wanted=crew.size,
            queue=crew.num_queued,
            running=crew.num_outstanding - crew.num_queued,
            images=meter.images,
            images_per_s=meter.images_per_s(crew.now_s),
            failed=meter.failed,
            lost=crew.losses,
            p50_s=meter.percentile(0.5),
            p95_s=meter.percentile(0.95),
        )

    def _works(self, whole: Slice, asks: Sequence[Ask], evaluation: bool) -> list[Work]:
        return [
            Work(
                _Call(whole, ask, evaluation),
                "score",
                (whole.images, whole.request(ask, evaluation)),
                suspect=len(ask.members) == 1,
            )
            for ask in asks
        ]

    def _count(self, result: RewardResult) -> None:
        applicable = int((result.states != State.NOT_APPLICABLE).sum())
        self._meter.settled(self.crew.now_s, applicable, int((result.states == State.FAILED).sum()))


@dataclass(frozen=True, eq=False)
class _Call:
    """A call under way: identity is its key."""

    whole: Slice
    ask: Ask
    evaluation: bool
