"""Held-out evaluation. Rows 26 and 27 of the faults table: every prompt once, paired noise, unlike scales."""

import math
from pathlib import Path

import numpy as np
import pytest

from actors.config import EvalConfig
from actors.evaluation import KEPT_PER_SOURCE, gain, heldout, make_draw, read_evaluation, summarise, write_evaluation
from actors.prompts import Prompt
from learner.config import SamplingConfig
from learner.errors import UserError
from tests.unit.actors.stand_ins import NAN, evaluation, prompts


def sources() -> dict[str, tuple[Prompt, ...]]:
    return {
        "plain": prompts(*(f"p{i}" for i in range(9))),
        "signs": prompts(*(f"s{i}" for i in range(4)), source="signs"),
    }


def test_row_26_every_heldout_prompt_is_drawn_exactly_once_in_chunks_of_fixed_shape() -> None:
    chosen = heldout(sources(), None)
    draw = make_draw(chosen, EvalConfig(batch_size=5, seed=11), SamplingConfig(steps=3), None)
    assert [len(task.sample_ids) for task in draw.tasks] == [5, 5, 3]
    ids = np.concatenate([task.sample_ids for task in draw.tasks])
    assert ids.tolist() == list(range(13))
    assert [text for task in draw.tasks for text in task.prompts] == [p.text for p in chosen]
    assert draw.evaluation


def test_row_27_noise_depends_on_the_evaluation_seed_and_the_prompts_place_only() -> None:
    chosen = heldout(sources(), None)
    before, after = (
        make_draw(chosen, EvalConfig(batch_size=5, seed=11), SamplingConfig(steps=3), slot) for slot in (None, "eval")
    )
    for one, other in zip(before.tasks, after.tasks, strict=True):
        assert (one.purpose, one.iteration, one.seed) == (other.purpose, other.iteration, other.seed) == ("eval", 0, 11)
        assert one.sample_ids.tolist() == other.sample_ids.tolist()


def test_the_first_prompts_of_each_source_are_kept_for_pictures() -> None:
    draw = make_draw(heldout(sources(), None), EvalConfig(), SamplingConfig(), None)
    assert draw.keep == frozenset([*range(KEPT_PER_SOURCE), 9, 10, 11, 12])


def test_fewer_prompts_per_source_take_the_first_ones() -> None:
    assert [p.text for p in heldout(sources(), 2)] == ["p0", "p1", "s0", "s1"]


def test_before_and_after_are_compared_prompt_by_prompt() -> None:
    before = evaluation({"a": [1.0, 2.0, 3.0, NAN, 9.0], "none": [NAN] * 5})
    after = evaluation({"a": [2.0, 2.0, 5.0, 7.0, NAN], "none": [NAN] * 5}, done=4, which="ema")
    found = summarise(before, after)
    assert (found["a"].before, found["a"].after, found["a"].n) == (2.0, 3.0, 3)
    assert found["a"].se == pytest.approx(np.std([1.0, 0.0, 2.0], ddof=1) / math.sqrt(3))
    assert found["none"].n == 0
    assert math.isnan(found["none"].after)


def test_one_common_prompt_has_no_standard_error() -> None:
    found = summarise(evaluation({"a": [1.0, NAN]}), evaluation({"a": [2.0, 3.0]}))["a"]
    assert (found.n, found.after) == (1, 2.0)
    assert math.isnan(found.se)


def test_evaluations_of_other_prompts_are_not_compared() -> None:
    with pytest.raises(UserError, match="different prompts"):
        summarise(evaluation({"a": [1.0]}), evaluation({"a": [1.0, 2.0]}))


def test_row_26_best_counts_unlike_scales_alike_and_skips_what_does_not_apply() -> None:
    before = evaluation({"small": [0.0, 0.1], "large": [0.0, 1000.0], "none": [NAN, NAN]})
    small_up = evaluation({"small": [0.05, 0.15], "large": [0.0, 1000.0], "none": [NAN, NAN]})
    large_up = evaluation({"small": [0.0, 0.1], "large": [500.0, 1500.0], "none": [NAN, NAN]})
    assert gain(before, small_up) == pytest.approx(gain(before, large_up)) == pytest.approx(0.5)


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    result = evaluation({"a": [0.1, NAN, 1 / 3], "b": [NAN, NAN, -2.0]}, done=6, which="ema")
    write_evaluation(tmp_path, result)
    again = read_evaluation(tmp_path, 6, ["a", "b"])
    assert again is not None
    assert (again.iteration, again.which, again.prompt_ids) == (6, "ema", result.prompt_ids)
    for name in ("a", "b"):
        np.testing.assert_array_equal(again.per_prompt[name], result.per_prompt[name])
        np.testing.assert_array_equal(again.states[name], result.states[name])
    assert (again.n, again.failed, again.seconds) == ({"a": 2, "b": 1}, {"a": 0, "b": 0}, 1.5)
    assert read_evaluation(tmp_path, 7, ["a", "b"]) is None
