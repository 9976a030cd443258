"""Stages in a run's configuration: what is balanced, what scores, and how a draw leaves rewards out."""

from typing import Any

import numpy as np
import pytest

from actors import tally
from actors.harmonizer_actor import RemoteHarmonizer
from actors.harvest import Draw
from learner.config import SamplingConfig
from tests.unit.actors.in_process import InProcess
from tests.unit.actors.stand_ins import recipe

STAGES = [{"rewards": ["a", "text"], "iterations": 3}, {"rewards": ["b"], "iterations": 1}]
SUM: dict[str, Any] = {"harmonizer": {"method": "weighted_gradients", "refresh": {"policy": "never"}}}


def test_what_is_balanced_is_the_sum_where_rewards_are_added_up() -> None:
    assert recipe().gradient_names == ("a", "b", "text")
    summed = recipe(learner={"objective": "weighted_sum"}, **SUM)
    assert summed.gradient_names == ("weighted_sum",)
    assert summed.reward_names == ("a", "b", "text")


@pytest.mark.parametrize(
    ("probe_every", "scored"),
    [
        (0, ["a text", "a text", "a text", "b"]),
        # Steps 0 and 3 are measured, step 0 on iteration 1's batch as well.
        (3, ["a b text", "a b text", "a text", "a b text"]),
    ],
)
def test_rewards_score_in_their_stage_and_where_conflicts_are_measured(probe_every: int, scored: list[str]) -> None:
    config = recipe(learner={"stages": STAGES, "probe_every": probe_every})
    assert [" ".join(sorted(config.scored_in(i))) for i in range(4)] == scored
    assert recipe().scored_in(2) == {"a", "b", "text"}


def test_stages_must_fill_the_run() -> None:
    with pytest.raises(ValueError, match=r"learner\.stages take 3 \+ 1 = 4 iterations, but run\.iterations is 5"):
        recipe(run={"iterations": 5}, learner={"stages": STAGES})


def test_an_early_stop_would_end_a_run_within_a_stage() -> None:
    """With one stage there is nothing to leave out."""
    stop = {"every": 1, "early_stop": {"by": "a"}}
    with pytest.raises(ValueError, match=r"eval\.early_stop would end a run of several learner\.stages within one"):
        recipe(learner={"stages": STAGES}, eval=stop)
    one = [{"rewards": ["a"], "iterations": 4}]
    assert recipe(learner={"stages": one}, eval=stop).eval.early_stop is not None


def test_a_draw_names_who_scores_it() -> None:
    draw = Draw((), (), "old", SamplingConfig(), False, rewards=frozenset({"a"}))
    assert (draw.scored_by("a"), draw.scored_by("b")) == (True, False)
    assert Draw((), (), None, SamplingConfig(), True).scored_by("b"), "evaluations are scored by all"


def test_measurements_are_no_time_of_the_learner() -> None:
    remote = InProcess()
    watch = tally.Stopwatch(remote, 0.0)
    with watch.stage("learner"):
        remote.idle(5.0)
    watch.move("learner", "probe", 2.0)
    watch.move("learner", "probe", 0.0)
    remote.idle(1.0)
    timings_s = watch.finish()
    assert timings_s == {"learner": 3.0, "probe": 2.0, "other": 1.0, "total": 6.0, "learner_wait": 1.0}


def test_a_new_stage_has_the_harmonizer_forget() -> None:
    class Remembering:
        forgot = 0

        def reset(self) -> None:
            self.forgot += 1

    remote, balance = InProcess(), Remembering()
    client = RemoteHarmonizer(remote.add("harmonizer", balance), 1.0, remote)  # type: ignore[arg-type]
    client.reset()
    assert balance.forgot == 1
    remote.faults["harmonizer", "plan"] = [ValueError("no")]
    with pytest.raises(RuntimeError, match=r"the harmonizer gave no answer to plan of step 4: "):
        client.plan(4, np.ones(1, np.bool_))
