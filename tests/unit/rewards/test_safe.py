"""Calls in which something breaks: every problem ends in its own cells, and nowhere else."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards.contract import RewardResult, State
from rewards.results import Cell, collect, from_scores
from rewards.safe import NOT_APPLICABLE_REASON, score_safely
from tests.unit.rewards.fakes import PixelScorer, painted


def run(scorer: Any, values: Sequence[int], applicable: Sequence[bool] | None = None, **options: bool) -> RewardResult:
    names = [f"prompt {i}" for i in range(len(values))]
    mask = [True] * len(values) if applicable is None else applicable
    images = painted(*values) if values else np.zeros((0, 4, 4, 3), np.uint8)
    return score_safely(scorer, images, names, [{}] * len(values), mask, **options)


def answer(result: Any) -> Callable[..., Any]:
    return lambda images, prompts, metadata: result


def test_all_healthy_is_one_call() -> None:
    scorer = PixelScorer()
    result = run(scorer, [10, 20, 30])
    assert result.states.tolist() == [State.SCORED] * 3
    np.testing.assert_allclose(result.scores, [0.1, 0.2, 0.3], atol=1e-5)
    assert scorer.batches == [[10, 20, 30]]


def test_one_broken_sample_fails_alone_and_the_others_are_bit_identical() -> None:
    """FAULTS 8, 9."""
    values = [10, 20, 30, 40, 50, 60, 70]
    healthy = run(PixelScorer(), values)
    for broken in range(len(values)):
        with_failure = [255 if i == broken else v for i, v in enumerate(values)]
        result = run(PixelScorer(), with_failure)
        assert result.states.tolist() == [State.FAILED if i == broken else State.SCORED for i in range(7)]
        assert result.reasons[broken] == f"RuntimeError: cannot score prompt {broken}"
        assert np.isnan(result.scores[broken])
        others = [i for i in range(7) if i != broken]
        assert result.scores[others].tobytes() == healthy.scores[others].tobytes()


def test_other_rewards_are_bit_identical_whether_or_not_one_cell_failed() -> None:
    """FAULTS 8: two rewards over the same batch; a failure in one leaves the other's row as it is."""
    other = [run(PixelScorer(offset=5.0), [10, 20, 30]) for _ in range(2)]
    failed = run(PixelScorer(), [10, 255, 30])
    assert failed.states.tolist() == [0, State.FAILED, 0]
    assert other[0].scores.tobytes() == other[1].scores.tobytes()


@settings(deadline=None)  # the machine may be busy
@given(values=st.lists(st.sampled_from([10, 20, 30, 254, 255]), max_size=12))
def test_exactly_the_broken_samples_fail(values: list[int]) -> None:
    """FAULTS 8: as many failures as there are broken samples, at their places, none of them 0."""
    result = run(PixelScorer(), values)
    assert result.states.tolist() == [State.FAILED if v >= 254 else State.SCORED for v in values]
    scored = np.array(values) < 254
    np.testing.assert_allclose(result.scores[scored], np.array(values)[scored] / 100, atol=1e-4)
    assert np.isnan(result.scores[~scored]).all()


def test_search_is_logarithmic() -> None:
    scorer = PixelScorer()
    run(scorer, [255 if i == 5 else 10 for i in range(16)])
    # 1 whole + 2 halves on each of 4 levels + 1 in full shape
    assert len(scorer.batches) == 10


def test_samples_it_does_not_apply_to_are_never_shown() -> None:
    """FAULTS 9."""
    scorer = PixelScorer()
    result = run(scorer, [10, 255, 30], [True, False, True])
    assert scorer.batches == [[10, 30]]
    assert result.states.tolist() == [State.SCORED, State.NOT_APPLICABLE, State.SCORED]
    assert result.reasons[1] == NOT_APPLICABLE_REASON
    assert np.isnan(result.scores[1])


def test_none_applicable_is_no_call() -> None:
    scorer = PixelScorer()
    assert run(scorer, [255, 255], [False, False]).states.tolist() == [State.NOT_APPLICABLE] * 2
    assert run(scorer, []).scores.shape == (0,)
    assert scorer.batches == []


def test_a_scorer_that_is_away_is_asked_once() -> None:
    """FAULTS 14: halving would multiply the wait; the reason keeps the scorer's own words."""
    calls = []

    def away(images: Any, prompts: Any, metadata: Any) -> RewardResult:
        calls.append(len(prompts))
        raise ConnectionRefusedError("http://rewards:8000 refused")

    result = run(away, [1, 2, 3, 4])
    assert calls == [4]
    assert result.states.tolist() == [State.FAILED] * 4
    assert result.reasons[0] == "ConnectionRefusedError: http://rewards:8000 refused"


def test_a_scorer_that_always_raises_fails_all() -> None:
    result = run(PixelScorer(), [255] * 5)
    assert result.states.tolist() == [State.FAILED] * 5
    assert result.reasons[3] == "RuntimeError: cannot score prompt 3"


def test_a_batch_that_is_too_large_is_scored_in_parts() -> None:
    def small_only(images: Any, prompts: Any, metadata: Any) -> RewardResult:
        if len(prompts) > 2:
            raise MemoryError
        return from_scores([float(image[0, 0, 0]) for image in images])

    assert run(small_only, [1, 2, 3, 4, 5]).scores.tolist() == [1, 2, 3, 4, 5]


def test_a_scorer_that_breaks_only_at_times_keeps_its_first_scores() -> None:
    """The last call in full shape may raise as well; the scores of the halves stand."""
    calls = 0

    def flaky(images: Any, prompts: Any, metadata: Any) -> RewardResult:
        nonlocal calls
        calls += 1
        if len(prompts) == 3 or images[0, 0, 0, 0] == 255:
            raise RuntimeError("not now")
        return from_scores([float(image[0, 0, 0]) for image in images])

    result = run(flaky, [1, 255, 3])
    assert result.states.tolist() == [State.SCORED, State.FAILED, State.SCORED]
    assert result.scores[[0, 2]].tolist() == [1, 3]


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (from_scores([1.0]), "returned 1 cells for 2 samples"),
        (from_scores([1.0, 2.0, 3.0]), "returned 3 cells for 2 samples"),
        (collect([]), "returned 0 cells for 2 samples"),
        ([1.0, 2.0], "returned list, not a RewardResult"),
        (np.array([1.0, 2.0]), "returned ndarray, not a RewardResult"),
        (None, "returned NoneType, not a RewardResult"),
    ],
)
def test_answers_that_break_the_contract_fail_with_a_reason(result: Any, reason: str) -> None:
    """FAULTS 8: never 0."""
    got = run(answer(result), [1, 2])
    assert got.states.tolist() == [State.FAILED] * 2
    assert reason in got.reasons[1]
    assert np.isnan(got.scores).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_scores_made_non_finite_behind_the_contracts_back(value: float) -> None:
    """FAULTS 8: the arrays of a result can still be written to."""
    result = from_scores([1.0, 2.0])
    result.scores[1] = value
    got = run(answer(result), [1, 2])
    assert got.states.tolist() == [State.SCORED, State.FAILED]
    assert "not a finite float32" in got.reasons[1]


def test_float64_scores_beyond_float32() -> None:
    wide: Any = np.array([1e300, 2.0])
    got = run(answer(RewardResult(wide, np.zeros(2, np.uint8), ("", ""))), [1, 2])
    assert got.states.tolist() == [State.FAILED, State.SCORED]
    assert got.scores.dtype == np.float32


def test_a_state_that_is_none_of_the_three() -> None:
    got = run(answer(RewardResult(np.zeros(1, np.float32), np.array([7], np.uint8), ("",))), [1])
    assert got.states.tolist() == [State.FAILED]
    assert "7 is not a valid State" in got.reasons[0]


def test_states_and_reasons_of_the_scorer_come_through() -> None:
    states = np.array([State.SCORED, State.NOT_APPLICABLE, State.FAILED], np.uint8)
    result = RewardResult(np.array([1, 0, 0], np.float32), states, ("", "no text", "blurred"))
    got = run(answer(result), [1, 2, 3])
    assert got.states.tolist() == states.tolist()
    assert got.reasons == ("", "no text", "blurred")
    assert np.isnan(got.scores[1:]).all()  # whatever stood in cells without a score


def test_evaluation_asks_for_the_reported_figure() -> None:
    class Two(PixelScorer):
        def score_for_evaluation(self, images: Any, prompts: Any, metadata: Any) -> RewardResult:
            return from_scores([7.0] * len(prompts))

    assert run(Two(), [1], evaluation=True).scores.tolist() == [7.0]
    assert run(Two(), [100]).scores[0] == pytest.approx(1.0, abs=1e-5)
    assert run(PixelScorer(), [100], evaluation=True).scores[0] == pytest.approx(1.0, abs=1e-5)


def test_wrong_images_fail_every_cell_without_a_search() -> None:
    """FAULTS 13."""
    scorer = PixelScorer()
    wrong: Any = np.zeros((3, 4, 4, 3), np.float32)
    got = score_safely(scorer, wrong, ["a"] * 3, [{}] * 3, [True, False, True])
    assert got.states.tolist() == [State.FAILED, State.NOT_APPLICABLE, State.FAILED]
    assert "got float32" in got.reasons[0]
    assert scorer.batches == []


def test_unequal_lengths_raise() -> None:
    with pytest.raises(ValueError, match=r"got \(1, 1, 1, 2\)"):
        score_safely(PixelScorer(), painted(1), ["a"], [{}], [True, True])


def test_an_interrupt_is_not_a_failure() -> None:
    def interrupted(images: Any, prompts: Any, metadata: Any) -> RewardResult:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(interrupted, [1])


def test_a_scorer_that_calls_exit_over_one_sample_fails_that_sample() -> None:
    """FAULTS 8: a reward server would end, with the requests of everybody."""

    def scorer(images: Any, prompts: Sequence[str], metadata: Any) -> RewardResult:
        if 255 in images[:, 0, 0, 0]:
            sys.exit("bad file")
        return from_scores([float(image[0, 0, 0]) for image in images])

    result = run(scorer, [10, 255, 30])
    assert result.states.tolist() == [State.SCORED, State.FAILED, State.SCORED]
    assert result.reasons[1] == "SystemExit: bad file"


@pytest.mark.parametrize("last", [None, from_scores([0.5]), collect([Cell.failed("away")] * 4)])
def test_scores_that_are_known_survive_a_last_call_that_gives_none(last: Any) -> None:
    """The call in the first shape, with a stand-in, is there for the last bit alone."""
    batches: list[int] = []

    def scorer(images: Any, prompts: Sequence[str], metadata: Any) -> Any:
        batches.append(len(images))
        if 255 in images[:, 0, 0, 0]:
            raise RuntimeError("broken")
        return last if len(images) == 4 else from_scores([float(image[0, 0, 0]) for image in images])

    result = run(scorer, [1, 2, 255, 4])
    assert batches == [4, 2, 2, 1, 1, 4]
    assert result.states.tolist() == [State.SCORED, State.SCORED, State.FAILED, State.SCORED]
    assert result.scores[[0, 1, 3]].tolist() == [1.0, 2.0, 4.0]


def test_a_sample_that_fails_alone_after_its_batch_raised_is_a_culprit_too() -> None:
    """The others are scored in the first call's shape."""

    def scorer(images: Any, prompts: Sequence[str], metadata: Any) -> RewardResult:
        values = images[:, 0, 0, 0].tolist()
        if 255 in values and len(values) > 1:
            raise RuntimeError("cannot take the batch")
        return collect([Cell.failed("no") if v == 255 else Cell.scored(v + len(values) / 8) for v in values])

    result = run(scorer, [1, 2, 255, 4])
    assert result.reasons[2] == "no"
    assert result.scores[[0, 1, 3]].tolist() == [1.5, 2.5, 4.5]
