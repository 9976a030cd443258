"""Early stop and the alarm of reward hacking, both from evaluations alone."""

import math
from typing import Any

import numpy as np
import pytest

from actors.results import EvaluationResult
from actors.watch import Watch, mean_change
from tests.unit.actors.stand_ins import NAN, evaluation, recipe

N = 50
BASE = {
    name: np.random.default_rng(k).normal(size=N).tolist() for k, name in enumerate(("a", "b", "text", "judge", "eye"))
}
"""Scores of the base over 50 prompts: three training rewards, two held-out ones."""


def watch(**settings: Any) -> Watch:
    heldout = {"judge": {"scorer": "module:J"}, "eye": {"scorer": "module:E"}}
    return Watch(recipe(heldout_rewards=heldout, eval={"every": 1, **settings}))


def at(done: int, noise: float = 0.0, **shifts: float) -> EvaluationResult:
    """An evaluation whose rewards lie so many standard deviations above the base's, give or take `noise` of them."""
    sway = noise * np.where(np.arange(N) % 2, 1.0, -1.0)
    scores = {
        name: (np.array(base) + np.std(base) * (shifts.get(name, 0.0) + sway)).tolist() for name, base in BASE.items()
    }
    return evaluation(scores, done=done, which="ema" if done else "before")


def stops(found: Watch, figures: list[float]) -> list[bool]:
    return [bool(found.note(at(0), at(done, judge=figure)) or found.verdict) for done, figure in enumerate(figures, 1)]


def test_only_what_has_been_trained_says_that_training_rewards_rise() -> None:
    """A specialist's other rewards fall, and its alarm is no less loud for that."""
    heldout = {"judge": {"scorer": "module:J"}, "eye": {"scorer": "module:E"}}
    stages = [{"rewards": ["a"], "iterations": 4}]
    specialist = Watch(recipe(heldout_rewards=heldout, eval={"every": 1}, learner={"stages": stages}))
    hacked = at(1, noise=0.1, a=1.0, b=-1.0, text=-1.0, judge=-1.0, eye=0.0)
    assert [alarm.reward for alarm in specialist.note(at(0), hacked)] == ["judge"]
    assert watch().note(at(0), hacked) == [], "where all three are trained they have not risen"


# -- early stop --------------------------------------------------------------------------------------------------------


def test_a_run_stops_after_so_many_evaluations_in_a_row_that_are_no_better() -> None:
    found = watch(early_stop={"by": "judge", "patience": 2})
    assert stops(found, [0.1, 0.3, 0.2, 0.4, 0.35, 0.4]) == [False] * 5 + [True]
    assert found.verdict == (
        "judge has not got better in 2 evaluations in a row; the best was +0.400 standard deviations from the base "
        "after 4 iterations"
    )


def test_what_is_no_better_by_min_delta_is_no_better_and_small_gains_add_up() -> None:
    found = watch(early_stop={"by": "judge", "patience": 3, "min_delta": 0.1})
    assert stops(found, [0.06, 0.09, 0.11, 0.15, 0.2, 0.205]) == [False] * 5 + [True]


def test_the_base_is_the_first_to_be_beaten() -> None:
    assert stops(watch(early_stop={"by": "judge", "patience": 2}), [-0.5, -0.4]) == [False, True]


def test_the_mean_of_the_held_out_rewards_is_followed_unless_another_is_named() -> None:
    """Training rewards that still rise do not keep a run going."""
    found = watch(early_stop={"patience": 1})
    found.note(at(0), at(1, a=1.0, judge=0.4, eye=-0.2))
    assert not found.verdict
    found.note(at(0), at(2, a=9.0, judge=0.5, eye=-0.4))
    assert found.verdict.startswith("heldout_rewards has not got better")


def test_an_evaluation_without_a_scored_cell_is_none() -> None:
    found = watch(early_stop={"by": "judge", "patience": 1})
    failed = at(1)
    nothing = {**failed.per_prompt, "judge": np.full(N, NAN)}
    found.note(at(0), evaluation({k: list(v) for k, v in nothing.items()}, done=1, which="ema"))
    assert not found.verdict
    found.note(at(0), at(2))
    assert found.verdict


def test_a_recipe_without_early_stop_never_stops() -> None:
    assert not any(stops(watch(), [-1.0] * 9))


# -- reward hacking ----------------------------------------------------------------------------------------------------


def alarms(found: Watch, *results: EvaluationResult) -> list[list[str]]:
    return [[alarm.reward for alarm in found.note(at(0), result)] for result in results]


def test_an_alarm_when_training_rewards_rise_while_a_held_out_one_falls() -> None:
    found = watch()
    result = at(3, noise=0.3, a=0.5, b=0.5, text=0.5, judge=-0.5)
    (alarm,) = found.note(at(0), result)
    assert (alarm.reward, alarm.done, alarm.since) == ("judge", 3, 0)
    base, now = (
        np.array(BASE["judge"]),
        np.array(at(3, noise=0.3, a=0.5, b=0.5, text=0.5, judge=-0.5).per_prompt["judge"]),
    )
    assert alarm.fall.mean == pytest.approx((now - base).mean())
    assert alarm.fall.se == pytest.approx((now - base).std(ddof=1) / math.sqrt(N))
    assert alarm.fall.n == N
    assert alarm.rise.mean == pytest.approx(0.5)
    assert (
        f"judge, held out, is {-alarm.fall.mean:.4g} (s.e. {alarm.fall.se:.2g}, 50 prompts) below the base"
        in alarm.text
    )


@pytest.mark.parametrize(
    "shifts",
    [
        {"a": 0.5, "b": 0.5, "text": 0.5},
        {"a": 0.5, "b": 0.5, "text": 0.5, "judge": 0.5},
        {"judge": -0.5},
        {"a": -0.5, "b": -0.5, "text": -0.5, "judge": -0.5},
        {"a": 0.5, "b": 0.5, "text": 0.5, "judge": -0.08},
        {"a": 0.04, "b": 0.0, "text": 0.0, "judge": -0.5},
    ],
    ids=["flat", "both rise", "only the fall", "both fall", "a fall within the error", "a rise within the error"],
)
def test_no_alarm_unless_one_clearly_rises_and_the_other_clearly_falls(shifts: dict[str, float]) -> None:
    """At noise 0.3 over 50 prompts a standard error is 0.042, three are 0.13."""
    assert alarms(watch(), at(3, noise=0.3, **shifts)) == [[]]


def test_the_fall_is_from_where_the_held_out_reward_stood_highest() -> None:
    """It may still be above the base: what is lost is lost."""
    found = watch()
    up = at(1, a=0.2, b=0.2, text=0.2, judge=0.8)
    later = at(2, noise=0.3, a=0.9, b=0.9, text=0.9, judge=0.2)
    assert alarms(found, up) == [[]]
    (alarm,) = found.note(at(0), later)
    assert (alarm.reward, alarm.since) == ("judge", 1)
    assert alarm.rise.mean == pytest.approx(0.7)
    assert "below its best after 1 iterations" in alarm.text


def test_an_event_is_told_once_and_again_only_after_it_has_ended() -> None:
    bad, gone = {"a": 0.9, "b": 0.9, "text": 0.9, "judge": -0.8}, {"a": 0.9, "b": 0.9, "text": 0.9, "judge": 0.0}
    found = alarms(
        watch(),
        at(1, noise=0.3, **bad),
        at(2, noise=0.3, **bad),
        at(3, noise=0.3, **{**bad, "judge": -0.07}),  # 1.6 standard errors
        at(4, noise=0.3, **bad),
        at(5, noise=0.3, **gone),
        at(6, noise=0.3, a=1.8, b=1.8, text=1.8, judge=-0.8),
    )
    assert found[0] == ["judge"]
    assert found[1] == []
    assert found[3] == [], "a short rest near the edge ends nothing"
    assert found[4] == []
    assert found[5] == ["judge"]


def test_each_held_out_reward_has_events_of_its_own() -> None:
    bad = {"a": 0.9, "b": 0.9, "text": 0.9, "judge": -0.8}
    assert alarms(watch(), at(1, noise=0.3, **bad), at(2, noise=0.3, **bad, eye=-0.8)) == [["judge"], ["eye"]]


def test_missing_cells_count_in_no_difference() -> None:
    """Row 8 of the faults table: a failed cell is no 0."""
    found, result = watch(), at(1, a=0.9, b=0.9, text=0.9)
    scores = {name: list(values) for name, values in result.per_prompt.items()}
    scores["judge"][: N // 2] = [NAN] * (N // 2)
    assert found.note(at(0), evaluation(scores, done=1, which="ema")) == []
    scores["judge"] = [NAN] * (N - 1) + [-99.0]
    assert found.note(at(0), evaluation(scores, done=2, which="ema")) == [], "one prompt has no standard error"


def test_replaying_the_same_evaluations_gives_the_same_state() -> None:
    """What a resumed run does; noting one twice changes nothing."""
    results = [at(d, noise=0.3, a=0.3 * d, b=0.3 * d, text=0.3 * d, judge=-0.3 * d) for d in range(1, 5)]
    settings = {"early_stop": {"by": "judge", "patience": 6}}
    straight, resumed = watch(**settings), watch(**settings)
    told = alarms(straight, *results)
    assert alarms(resumed, *results[:2]) == told[:2]
    assert alarms(resumed, *results[:2]) == [[], []]
    assert alarms(resumed, *results[2:]) == told[2:]
    assert resumed.verdict == straight.verdict


# -- the formula -------------------------------------------------------------------------------------------------------


def test_the_mean_change_of_one_reward_has_the_usual_error() -> None:
    now = at(1, noise=0.5, a=0.4)
    difference = (now.per_prompt["a"] - np.array(BASE["a"])) / np.std(BASE["a"])
    found = mean_change(at(0), at(0), now, ["a"])
    assert (found.mean, found.n) == (pytest.approx(difference.mean()), N)
    assert found.se == pytest.approx(difference.std(ddof=1) / math.sqrt(N))


def test_two_equal_rewards_are_no_surer_than_one() -> None:
    """The prompt is the unit: rewards that say the same are no second sample."""
    scores = {"a": BASE["a"], "b": BASE["a"]}
    now = {"a": at(1, noise=0.5).per_prompt["a"].tolist()}
    base, later = evaluation(scores), evaluation({"a": now["a"], "b": now["a"]}, done=1, which="ema")
    assert mean_change(base, base, later, ["a", "b"]).se == pytest.approx(mean_change(base, base, later, ["a"]).se)


def test_rewards_of_other_prompts_are_weighted_alike() -> None:
    """One of two prompts, one of four: their means count half each, and a reward of one prompt or none not at all."""
    base = evaluation({"a": [0.0, 2.0, NAN, NAN], "b": [0.0, 0.0, 4.0, 4.0], "none": [NAN] * 4, "one": [0.0, 9, 9, 9]})
    one = [9.0, NAN, NAN, NAN]
    scores = {"a": [1.0, 3.0, NAN, NAN], "b": [1.0, 0.0, 4.0, 5.0], "none": [NAN] * 4, "one": one}
    found = mean_change(base, base, evaluation(scores, done=1, which="ema"), list(scores))
    assert found.mean == pytest.approx((1.0 / 1.0 + 0.5 / 2.0) / 2)
    assert found.n == 4
    residuals = np.array([0.25, -0.25, -0.25, 0.25]) / (2 * 4)
    assert found.se == pytest.approx(math.sqrt(4 / 3 * (residuals**2).sum()))
