"""Reward pools: what is sent, what is tried again, how cells come together. Rows 8, 9 and 14 of the faults table."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from actors.config import PoolConfig
from actors.crew import Crew, Outcome
from actors.pool import RewardPool, ScorerActor, ScorerSpec, with_threads
from actors.prompts import Prompt
from actors.pump import no_outcome, pump
from actors.slices import Cells
from rewards.config import RewardConfig
from rewards.contract import RewardResult, State
from tests.unit.actors.in_process import Handle, InProcess
from tests.unit.actors.stand_in_scorer import Scripted

SCORED, NOT_APPLICABLE, FAILED = State.SCORED, State.NOT_APPLICABLE, State.FAILED


class Stage:
    """One pool over in-process scorers."""

    def __init__(self, reward: RewardConfig | None = None, **role: Any) -> None:
        Scripted.calls, Scripted.failures_left = [], 0
        self.remote = InProcess()
        self.role = PoolConfig(**{"replicas": 2, "retries": 1, "batch_size": 4, **role})
        self.config = reward or RewardConfig(scorer="tests.unit.actors.stand_in_scorer:Scripted")
        crew = Crew(
            "reward.ink",
            self.remote,
            self._spawn,
            size=self.role.replicas,
            call_timeout_s=self.role.timeout_s,
            start_timeout_s=60.0,
            retries=0,
            warn=lambda text: None,
            ahead=True,
        )
        self.pool = RewardPool("ink", self.config, self.role, crew)
        crew.start()
        pump(self.remote, [crew], lambda: crew.settled, no_outcome, lambda: None)
        Scripted.calls.clear()

    def _spawn(self, name: str, index: int) -> Handle:
        return self.remote.add(name, ScorerActor(ScorerSpec(name, "ink", self.role, self.config, 32)))

    def score(self, prompts: Sequence[Prompt], task: int = 0, evaluation: bool = False) -> RewardResult:
        """All cells of one task; image i is filled with i."""
        values = np.arange(len(prompts), dtype=np.uint8)[:, None, None, None]
        images = self.remote.put(np.ascontiguousarray(np.broadcast_to(values, (len(prompts), 32, 32, 3))))
        parts = list(self.pool.submit(task, images, prompts, evaluation))

        def take(party: object, outcome: Outcome) -> None:
            cells = self.pool.accept(outcome)
            if cells is not None:
                parts.append(cells)

        pump(self.remote, [self.pool.crew], lambda: _size(parts) == len(prompts), take, lambda: None)
        parts.sort(key=lambda cells: cells.start)
        return RewardResult(
            np.concatenate([cells.result.scores for cells in parts]),
            np.concatenate([cells.result.states for cells in parts]),
            tuple(reason for cells in parts for reason in cells.result.reasons),
        )


def _size(parts: Sequence[Cells]) -> int:
    return sum(len(cells.result.states) for cells in parts)


def prompts_of(*texts: str, source: str = "plain") -> list[Prompt]:
    return [Prompt(f"{source}/{i}", source, text) for i, text in enumerate(texts)]


def test_row_11_result_i_belongs_to_image_i_over_all_slices() -> None:
    stage = Stage(batch_size=3)
    result = stage.score(prompts_of(*"abcdefgh"))
    assert result.scores.tolist() == list(range(8))
    assert sorted(num for _, num in Scripted.calls) == [2, 3, 3]


def test_a_task_without_any_prompt_it_applies_to_costs_no_call() -> None:
    stage = Stage(RewardConfig(scorer="tests.unit.actors.stand_in_scorer:Scripted", applies=("signs",)))
    result = stage.score(prompts_of("a", "b"))
    assert result.states.tolist() == [NOT_APPLICABLE] * 2
    assert np.isnan(result.scores).all()
    assert Scripted.calls == []


def test_row_9_prompts_without_a_quoted_text_do_not_reach_the_scorer_and_the_others_are_scored() -> None:
    stage = Stage(RewardConfig(scorer="tests.unit.actors.stand_in_scorer:Scripted", when="quoted"))
    result = stage.score(prompts_of('a "X"', "plain", 'b "Y"'))
    assert result.states.tolist() == [SCORED, NOT_APPLICABLE, SCORED]
    assert result.scores[[0, 2]].tolist() == [0.0, 2.0]
    assert [texts for texts, _ in Scripted.calls] == [['a "X"', 'b "Y"']]


def test_row_8_failed_cells_are_tried_again_alone_and_keep_their_reason() -> None:
    stage = Stage(retries=2)
    Scripted.failures_left = 99
    result = stage.score(prompts_of("a", "bad", "c"))
    assert result.states.tolist() == [SCORED, FAILED, SCORED]
    assert result.reasons[1] == "no ink"
    assert result.scores[[0, 2]].tolist() == [0.0, 2.0]
    assert [texts for texts, _ in Scripted.calls] == [["a", "bad", "c"], ["bad"], ["bad"]]


def test_a_cell_that_fails_once_is_scored_by_the_next_try() -> None:
    stage = Stage(retries=1)
    Scripted.failures_left = 1
    result = stage.score(prompts_of("a", "bad"))
    assert result.states.tolist() == [SCORED, SCORED]
    assert result.scores.tolist() == [0.0, 1.0]
    assert result.reasons == ("", "")


@pytest.mark.parametrize("fault", ["exit", "hang"])
def test_row_14_a_sample_that_ends_or_hangs_its_process_fails_alone_with_replica_and_reason(fault: str) -> None:
    stage = Stage(retries=1, timeout_s=5.0)
    result = stage.score(prompts_of("a", fault, "c", "d"))
    assert result.states.tolist() == [SCORED, FAILED, SCORED, SCORED]
    assert result.scores[[0, 2, 3]].tolist() == [0.0, 2.0, 3.0]
    assert result.reasons[1].startswith("ink: reward.ink-")
    assert "died" in result.reasons[1] or "no answer within 5 s" in result.reasons[1]
    assert stage.pool.crew.losses == 2, "once in its batch, once alone"
    assert Scripted.calls[-1] == (["a", "a", "c", "d"], 4), "the others once more, in a batch of the same shape"
    assert stage.score(prompts_of("a", "b"), task=1).states.tolist() == [SCORED] * 2


@pytest.mark.parametrize("fault", ["die", "hang"])
def test_row_14_a_process_killed_from_outside_costs_no_cell(fault: Any) -> None:
    stage = Stage(replicas=1, retries=0, timeout_s=5.0)
    stage.remote.faults["reward.ink-0", "score"] = [fault]
    assert stage.score(prompts_of("a", "b")).scores.tolist() == [0.0, 1.0]
    assert stage.remote.alive() == ["reward.ink-0.1"]


def test_many_culprits_in_a_row_do_not_make_the_place_look_broken() -> None:
    """Four losses in a row without one finished call would stop the run, were they not the samples' own."""
    stage = Stage(replicas=1, retries=2, batch_size=8)
    result = stage.score(prompts_of(*["exit"] * 6, "g", "h"))
    assert result.states.tolist() == [FAILED] * 6 + [SCORED] * 2
    assert stage.pool.crew.losses == 1 + 2 * 6


def test_the_search_for_a_sample_that_raises_is_logarithmic() -> None:
    stage = Stage(replicas=1, retries=2, batch_size=64)
    texts = [str(i) for i in range(64)]
    texts[37] = "raise"
    result = stage.score(prompts_of(*texts))
    assert [i for i in range(64) if result.states[i] == FAILED] == [37]
    # The whole, two halves at each of six levels, the whole with a stand-in, and two further tries of one sample.
    assert len(Scripted.calls) == 1 + 2 * 6 + 1 + 2
    assert stage.pool.crew.losses == 0


def test_a_try_that_dies_leaves_the_cells_of_the_earlier_try() -> None:
    stage = Stage(replicas=1, retries=1)
    Scripted.failures_left = 1
    stage.remote.faults["reward.ink-0", "score"] = [None, "die"]
    stage.remote.faults["reward.ink-0.1", "score"] = ["die"]
    result = stage.score(prompts_of("a", "bad"))
    assert result.states.tolist() == [SCORED, FAILED]
    assert result.scores[0] == 0.0
    assert "died" in result.reasons[1]


def test_a_pool_says_how_it_is_doing() -> None:
    stage = Stage(RewardConfig(scorer="tests.unit.actors.stand_in_scorer:Scripted", when="quoted"), retries=0)
    stage.score(prompts_of('a "X"', 'bad "Y"', "plain", 'exit "Z"'))
    state = stage.pool.state()
    assert (state.replicas, state.wanted, state.queue, state.running) == (2, 2, 0, 0)
    assert (state.images, state.failed, state.lost) == (3, 1, 2)
    assert state.p50_s == state.p95_s == 0.0, "on a clock that stands still"


def test_resizing_under_load_loses_and_doubles_no_sample_and_changes_no_score() -> None:
    stages = [Stage(replicas=1, batch_size=2) for _ in range(2)]
    stages[1].pool.crew.resize(4)
    results = []
    for stage in stages:
        parts: list[RewardResult] = []
        for task in range(6):
            parts.append(stage.score(prompts_of(*map(str, range(9))), task=task))
            stage.pool.crew.resize((1, 3, 2, 4, 1, 2)[task] if stage is stages[1] else 1)
        results.append([part.scores.tolist() for part in parts])
    assert results[0] == results[1] == [list(range(9))] * 6
    assert stages[1].remote.alive() == ["reward.ink-0", "reward.ink-8"]


def test_a_pool_asks_for_its_threads_where_the_scorer_runs_sessions_of_its_own() -> None:
    ocr = RewardConfig(scorer="ocr", args={"match": "strict"})
    assert with_threads(ocr, 3).args["num_threads"] == 3
    assert with_threads(RewardConfig(scorer="ocr", args={"num_threads": 4}), 1).args["num_threads"] == 4
    other = RewardConfig(scorer="module:Scorer")
    assert with_threads(other, 3) is other
