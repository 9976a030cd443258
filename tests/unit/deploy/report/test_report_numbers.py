"""The report's numbers on ledgers made by hand, against values worked out by hand."""

import math
from typing import Any

import numpy as np
import pytest

from deploy.report.numbers import curves, failures, gradients, heldout, replicates, specialists, times
from deploy.report.numbers.arrays import STEP_NUMBERS, STEP_REWARD_NUMBERS, STEP_TEXTS, Samples, Steps
from deploy.report.numbers.curves import Curve
from deploy.report.numbers.heldout import Evaluation

NAN = float("nan")


def samples(**changes: Any) -> Samples:
    """Two rewards; two iterations of two prompts with two images each."""
    values: dict[str, Any] = {
        "names": ("a", "b"),
        "iteration_N": np.repeat([0, 1], 4),
        "source_N": np.array(["plain", "plain", "signs", "signs"] * 2),
        "prompt_N": np.array(["plain/0", "plain/0", "signs/0", "signs/0", "plain/1", "plain/1", "signs/1", "signs/1"]),
        "scores_KN": np.array([[0.0, 2, 5, NAN, 4, 4, 8, 10], [NAN] * 8]),
        "states_KN": np.array([[0, 0, 0, 2, 0, 0, 0, 0], [1] * 8]),
        "advantages_KN": np.array([[-1, 1, 0, NAN, 2, -2, -1, 1], [0.5, 0.1, NAN, NAN, -0.3, 0.3, -1.0, 0.2]]),
        "reasons": ((0, 3, "no ink"),),
    }
    return Samples(**{**values, **changes})


def steps(num: int, **changes: Any) -> Steps:
    """So many steps of two rewards, one an iteration, of which nothing is known but what `changes` says."""
    values: dict[str, Any] = {
        "names": ("a", "b"),
        "iteration_U": np.arange(num),
        "step_U": 10 * np.arange(num),
        "solved_U": np.ones(num, bool),
        "applied_U": np.ones(num, bool),
        "numbers": {name: np.full(num, NAN) for name in STEP_NUMBERS},
        "by_reward": {name: np.full((2, num), NAN) for name in STEP_REWARD_NUMBERS},
        "cosines_UJJ": np.full((num, 2, 2), NAN),
        "texts": {name: np.full(num, "", dtype="U40") for name in STEP_TEXTS},
        "stages": {},
    }
    return Steps(**{**values, **changes})


# -- curves -----------------------------------------------------------------------------------------------------------


def test_a_group_is_one_prompt_of_one_iteration_and_failed_cells_are_not_in_its_mean() -> None:
    iteration_J, mean_J = curves.group_means(samples(), 0)
    assert iteration_J.tolist() == [0, 0, 1, 1]
    assert sorted(mean_J[:2]) == [1.0, 5.0]
    assert sorted(mean_J[2:]) == [4.0, 9.0]


def test_the_band_is_the_error_over_groups_of_the_window() -> None:
    """Over images the error would be another one: images of one prompt are no independent observations."""
    curve = curves.training_curve(samples(), 0, window=1)
    assert curve.x.tolist() == [1, 2]
    assert curve.mean.tolist() == [3.0, 6.5]
    assert curve.se.tolist() == pytest.approx([2.0, 2.5])  # std of (1, 5) is √8, over √2
    wide = curves.training_curve(samples(), 0, window=2)
    assert wide.mean.tolist() == [3.0, pytest.approx(4.75)]
    assert wide.se[1] == pytest.approx(np.std([1, 5, 4, 9], ddof=1) / 2)


def test_an_iteration_in_which_a_reward_was_not_scored_has_no_point() -> None:
    scores = np.array([[0.0, 2, 5, NAN, NAN, NAN, NAN, NAN], [NAN] * 4 + [1.0] * 4])
    found = samples(scores_KN=scores)
    assert curves.training_curve(found, 0).x.tolist() == [1]
    assert curves.training_curve(found, 1).x.tolist() == [2]


@pytest.mark.parametrize(("iterations", "window"), [(3, 5), (100, 5), (360, 18), (2000, 100)])
def test_a_point_of_a_long_run_is_the_mean_of_a_twentieth_of_it(iterations: int, window: int) -> None:
    assert curves.window_of(iterations) == window


def test_a_reward_that_nothing_was_scored_by_has_no_curve() -> None:
    assert len(curves.training_curve(samples(), 1).x) == 0


def test_runs_of_one_recipe_are_one_curve_where_all_of_them_have_a_point() -> None:
    one = Curve(np.array([1.0, 2, 3]), np.array([1.0, 2, 3]), np.zeros(3))
    other = Curve(np.array([2.0, 3, 4]), np.array([4.0, 3, 9]), np.zeros(3))
    both = curves.across_runs([one, other])
    assert both.x.tolist() == [2, 3]
    assert both.mean.tolist() == [3.0, 3.0]
    assert both.se.tolist() == pytest.approx([1.0, 0.0])  # std of (2, 4) is √2, over √2


@pytest.mark.parametrize(
    ("values", "mean", "error"),
    [([], NAN, NAN), ([NAN], NAN, NAN), ([2.0, NAN], 2.0, NAN), ([1.0, NAN, 3.0], 2.0, 1.0)],
)
def test_mean_and_error_of_the_known_values(values: list[float], mean: float, error: float) -> None:
    assert curves.mean_and_error(np.array(values)) == pytest.approx((mean, error), nan_ok=True)


# -- held out ---------------------------------------------------------------------------------------------------------


def test_before_and_after_are_paired_by_prompt_and_not_by_place() -> None:
    base = Evaluation(0, ("p", "q", "r"), {"a": np.array([1.0, 2, 5]), "watch": np.array([1.0, 1, NAN])}, {"a": 0})
    last = Evaluation(9, ("q", "p", "s"), {"a": np.array([4.0, 2, 99]), "watch": np.array([NAN, 3, 1])}, {"a": 1})
    a, watch = heldout.results([base, last], ["a"])
    assert (a.name, a.trained, a.done, a.n, a.failed) == ("a", True, 9, 2, 1)
    assert (a.before, a.after, a.difference) == (1.5, 3.0, 1.5)
    assert a.se == pytest.approx(0.5)  # differences 1 and 2
    assert a.ratio == pytest.approx(3.0)
    assert (watch.trained, watch.n, watch.difference) == (False, 1, 2.0)
    assert math.isnan(watch.se)
    assert math.isnan(watch.ratio)


def test_one_evaluation_alone_is_no_comparison() -> None:
    base = Evaluation(0, ("p",), {"a": np.ones(1)}, {})
    assert heldout.results([base], ["a"]) == ()
    assert heldout.results([Evaluation(5, ("p",), {"a": np.ones(1)}, {})], ["a"]) == ()
    assert heldout.results([], ["a"]) == ()


# -- gradients --------------------------------------------------------------------------------------------------------


def test_cosines_are_those_of_the_first_middle_and_last_solve() -> None:
    cosines = np.full((6, 2, 2), NAN)
    for u in (0, 2, 3, 5):
        cosines[u] = u / 10
    found = gradients.snapshots(steps(6, cosines_UJJ=cosines))
    assert [(one.step, one.iteration, one.cosines[0, 1]) for one in found] == [(0, 0, 0.0), (30, 3, 0.3), (50, 5, 0.5)]
    cosines[2:] = NAN
    assert [one.step for one in gradients.snapshots(steps(6, cosines_UJJ=cosines))] == [0]
    assert gradients.snapshots(steps(3)) == ()


def test_weights_are_the_smoothed_ones_and_without_a_solve_those_applied() -> None:
    run = steps(3)
    run.by_reward["weight"][:] = [[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]]
    assert gradients.smoothed_weights(run).values.tolist() == [[0.5] * 3, [0.5] * 3]
    run.by_reward["alpha_ema"][:, 1] = [0.2, 0.8]
    found = gradients.smoothed_weights(run)
    assert found.step.tolist() == [10]
    assert found.values.tolist() == [[0.2], [0.8]]


def test_a_direction_goes_against_a_reward_below_zero_and_not_at_the_rounding_of_it() -> None:
    found = gradients.conflict(np.array([0.4, -0.2, NAN, -1e-12]))
    assert (found.known, found.share, found.worst) == (3, pytest.approx(1 / 3), -0.2)
    assert found.mean == pytest.approx(0.2 / 3)
    assert gradients.conflict(np.array([NAN])).known == 0


# -- specialists ------------------------------------------------------------------------------------------------------


def test_samples_stand_with_the_reward_they_are_best_at_the_best_first() -> None:
    advantages = np.array([[1.0, 3.0, NAN, 0.1, NAN], [2.0, 0.0, NAN, NAN, -1.0]])
    assert specialists.best_first(advantages) == [1, 3, 0, 4, 2]


def test_maps_are_of_one_iteration_and_one_source_each() -> None:
    plain, signs = specialists.source_maps(samples(), 1)
    assert (plain.source, signs.source) == ("plain", "signs")
    assert plain.names == signs.names == ("a", "b")
    assert plain.advantages.tolist() == [[2, -2], [-0.3, 0.3]]
    assert signs.advantages.tolist() == [[1, -1], [0.2, -1.0]]


def test_maps_are_of_rewards_with_a_signal_and_of_iterations_with_the_most_of_them() -> None:
    advantages = np.array([[-1, 1, 0.5, 1, NAN, NAN, 1, 1], [NAN, NAN, 0.1, 0.2, NAN, NAN, NAN, NAN]])
    found = samples(advantages_KN=advantages)
    assert specialists.ends(found) == (0, 0)
    plain, signs = specialists.source_maps(found, 0)
    assert (plain.names, signs.names) == (("a",), ("a", "b"))
    (later,) = specialists.source_maps(found, 1)
    assert (later.source, later.names) == ("signs", ("a", "b"))
    assert np.isnan(later.advantages[1]).all()


def test_a_specialist_is_high_somewhere_and_below_average_elsewhere() -> None:
    """plain: (−1, .5) (1, .1) (2, −.3) (−2, .3); signs: two with one signal or none, then (−1, −1) (1, .2)."""
    plain, signs, everything = specialists.shares(samples())
    assert (plain.samples, plain.specialists, plain.all_positive) == (4, 0.25, 0.25)
    assert (signs.samples, signs.specialists, signs.all_positive) == (2, 0.0, 0.5)
    assert (everything.source, everything.samples, everything.all_positive) == ("all", 6, pytest.approx(1 / 3))


# -- times ------------------------------------------------------------------------------------------------------------


def stages(totals: list[float]) -> dict[str, Any]:
    total = np.array(totals)
    return {
        "rollout": total * 0.5,
        "rewards": total * 0.1,
        "learner": total * 0.4,
        "learner_wait": total * 0.6,
        "total": total,
    }


def test_every_step_of_an_iteration_carries_its_times_and_they_are_counted_once() -> None:
    run = steps(4, iteration_U=np.array([0, 0, 1, 1]), stages={"learner": np.array([3.0, 3.0, 5.0, 5.0])})
    iterations, found = times.iteration_stages(run)
    assert iterations.tolist() == [0, 1]
    assert found["learner"].tolist() == [3.0, 5.0]


def test_where_the_time_went_adds_up_to_the_wall_time() -> None:
    events = [
        {"event": "evaluation", "seconds": 5.0, "elapsed_s": 20.0},
        {"event": "iteration", "elapsed_s": 30.0},
        {"event": "evaluation", "seconds": 6.0, "elapsed_s": 70.0},
    ]
    found = times.times(steps(3, stages=stages([10.0, 10.0, 20.0])), events)
    seconds = {part.what: part.seconds for part in found.went}
    assert found.wall_s == 70.0
    assert seconds == pytest.approx(
        {"start-up": 15, "rollout": 20, "rewards": 4, "learner": 16, "evaluation": 11, "rest": 4}
    )
    assert sum(seconds.values()) == pytest.approx(70)
    assert sum(part.share for part in found.went) == pytest.approx(1)


def test_lost_is_the_idle_learner_late_scores_slow_iterations_and_stops() -> None:
    events = [
        {"event": "iteration", "elapsed_s": 10.0, "time": 100.0},
        {"event": "resume", "elapsed_s": 10.0, "time": 160.0},
        {"event": "iteration", "elapsed_s": 50.0, "time": 200.0},
    ]
    lost = {part.what: part for part in times.times(steps(3, stages=stages([10.0, 10.0, 20.0])), events).lost}
    assert {name: part.seconds for name, part in lost.items()} == pytest.approx(
        {"learner idle": 24, "waiting for scores": 4, "slow iterations": 10, "stopped": 60}
    )
    assert "iterations 3" in lost["slow iterations"].note


def test_without_events_or_ledger_nothing_is_known_and_nothing_breaks() -> None:
    found = times.times(None, [])
    assert math.isnan(found.wall_s)
    assert found.stages == {}
    odd = times.times(None, [{"event": "evaluation", "seconds": 10**400, "elapsed_s": None}])
    assert math.isnan(odd.wall_s)


# -- failures ---------------------------------------------------------------------------------------------------------


def test_failed_cells_are_counted_among_those_a_reward_applies_to() -> None:
    a, b = failures.reward_failures(samples())
    assert (a.failed, a.applicable, a.share) == (1, 8, 0.125)
    assert a.share_by_iteration.tolist() == [0.25, 0.0]
    assert a.reasons == (("no ink", 1),)
    assert (b.failed, b.applicable, b.share, b.reasons) == (0, 0, 0.0, ())


def test_steps_that_were_skipped_and_solves_that_were_not_optimal_are_told_with_why() -> None:
    run = steps(4, applied_U=np.array([True, False, False, True]), solved_U=np.array([True, True, True, False]))
    run.texts["skip_reason"][1:3] = "no signal"
    run.texts["status"][:3] = ["optimal", "fallback", "fallback"]
    run.texts["left"][0] = "a: no signal; b: zero gradient"
    found = failures.step_failures(run)
    assert (found.steps, found.solves) == (4, 3)
    assert found.skipped == (("no signal", 2),)
    assert found.statuses == (("fallback", 2),)
    assert found.left == (("a: no signal", 1), ("b: zero gradient", 1))


def test_methods_that_ask_no_solver_have_no_solve_that_is_not_optimal() -> None:
    """Their status is their own name; `stationary` and the like are still told."""
    run = steps(4)
    run.texts["status"][:] = ["uniform", "weighted_gradients", "single", "stationary"]
    run.texts["kl_status"][:2] = ["infeasible", "slack"]
    found = failures.step_failures(run)
    assert found.statuses == (("stationary", 1),)
    assert found.unbounded == 1


def test_alarms_and_restarts_are_those_the_run_noted() -> None:
    events = [{"event": "resume"}, {"event": "reward_hacking", "reward": "taste", "done": 40}, {"event": "resume"}]
    assert failures.restarts(events) == 2
    assert failures.alarms(events) == (
        "After 40 iterations taste, held out, had fallen while the training rewards rose",
    )


def test_the_commonest_reasons_come_first() -> None:
    assert failures.commonest("cabcaabzyx")[:4] == (("a", 3), ("b", 2), ("c", 2), ("x", 1))
    assert len(failures.commonest("cabcaabzyx")) == failures.NUM_REASONS


# -- replicates -------------------------------------------------------------------------------------------------------


def test_runs_that_differ_in_name_and_seed_only_are_one_recipe() -> None:
    configs = [
        {"run": {"name": "x-seed1", "seed": 1, "iterations": 5}, "learner": {"lr": 1e-3}},
        {"run": {"name": "y", "seed": 1, "iterations": 5}, "learner": {"lr": 1e-4}},
        {"run": {"name": "x-seed2", "seed": 2, "iterations": 5}, "learner": {"lr": 1e-3}},
        {},
        {},
    ]
    found = replicates.group(["x-seed1", "y", "x-seed2", "broken", "broken2"], configs)
    assert [(one.label, one.indices) for one in found] == [
        ("x (2 seeds)", (0, 2)),
        ("y", (1,)),
        ("broken", (3,)),
        ("broken2", (4,)),
    ]


def test_keys_that_differ_are_told_with_every_runs_value() -> None:
    first = {"run": {"name": "x", "seed": 1}, "learner": {"lr": 1e-3, "betas": [0.9, 0.99]}}
    second = {"run": {"name": "y", "seed": 2}, "learner": {"lr": 1e-3, "betas": [0.9, 0.99]}, "extra": {}}
    assert replicates.differing([first, second]) == (("extra", (None, "")),)
    second["learner"]["lr"] = 1e-4
    second["pools"] = {"a": {"size": 1}, "b": {"size": 2}}
    rows = replicates.differing([first, second, {**first, "pools": {}}])
    # A part that others lack is one row, not one for each of its keys.
    assert rows == (
        ("learner.lr", (1e-3, 1e-4, 1e-3)),
        ("extra", (None, "", None)),
        ("pools", (None, "a, b", "")),
    )
