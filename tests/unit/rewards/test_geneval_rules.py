"""GenEval's rules against the cases worked by hand, and properties that hold for all."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards.detection import Detection
from rewards.geneval_rules import Clause, Spec, keep, relations
from tests.unit.rewards.geneval_cases import (
    BOTTOM,
    CASES,
    COLOR_ATTR,
    COLORS,
    COUNTING,
    LEFT,
    MIDDLE,
    POSITION,
    RIGHT,
    SINGLE,
    TOP,
    TWO,
    Box,
    det,
    judge,
    many,
)


@pytest.mark.parametrize("case", CASES)
def test_by_hand(case: str) -> None:
    spec, detections, graded, strict, correct = CASES[case]
    got_graded, got_strict, got_correct = judge(spec, detections)
    assert got_graded == pytest.approx(graded)
    assert (got_strict, got_correct) == (strict, correct)


@pytest.mark.parametrize(("found", "expected"), [(16, 0.0), (3, 0.0), (2, 0.0), (1, 1.0), (0, 0.0)])
def test_clip_bounds_the_count_part(found: int, expected: float) -> None:
    assert judge(SINGLE, many("dog", found), clip=True)[0] == expected


def test_clip_leaves_other_parts_alone() -> None:
    """Four found for 1 gives -2 unclipped; the colour's 0 and the other clause's 1 stay."""
    spec = Spec("colors", (Clause("cat", 1), Clause("dog", 1, "red")))
    detections = [det("cat"), *many("dog", 4)]
    assert judge(spec, detections)[0] == pytest.approx((1 - 2 + 0) / 3)
    assert judge(spec, detections, clip=True)[0] == pytest.approx((1 + 0 + 0) / 3)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (LEFT, RIGHT, {"left of"}),
        (RIGHT, LEFT, {"right of"}),
        (TOP, BOTTOM, {"above"}),
        (BOTTOM, TOP, {"below"}),
        ((0, 0, 10, 10), (90, 90, 100, 100), {"left of", "above"}),
        (MIDDLE, MIDDLE, set()),
        # Offset 10, sizes 25 + 25: shortened by 5 to exactly half of it, which does not pass.
        ((10, 0, 35, 0), (0, 0, 25, 0), set()),
        ((0, 0, 25, 0), (10, 0, 35, 0), set()),
        ((0, 10, 0, 35), (0, 0, 0, 25), set()),
        ((0, 0, 0, 25), (0, 10, 0, 35), set()),
        # Sizes 24 + 25: shortened to 0.51 of it.
        ((10.5, 0, 34.5, 0), (0, 0, 25, 0), {"right of"}),
        ((0, 0, 25, 0), (10.5, 0, 34.5, 0), {"left of"}),
        ((0, 10.5, 0, 34.5), (0, 0, 0, 25), {"below"}),
        ((0, 0, 0, 25), (0, 10.5, 0, 34.5), {"above"}),
        # 3:4:5 offset of 15 and 20, sizes 25 in x: shortened to 12.5 of 25, exactly half; y stays 20.
        ((15, 20, 28, 20), (1, 0, 13, 0), {"below"}),
        # Offset 4 is shortened to 0 by sizes 20 + 20.
        ((4, 0, 24, 0), (0, 0, 20, 0), set()),
        # Points half a thousandth apart: a clear direction, but too short to be one.
        ((0.0005, 0, 0.0005, 0), (0, 0, 0, 0), set()),
        ((0.001, 0, 0.001, 0), (0, 0, 0, 0), {"right of"}),
        ((0.002, 0, 0.002, 0), (0, 0, 0, 0), {"right of"}),
        # 3:4 offset of points: components 0.6 and 0.8.
        ((3, 4, 3, 4), (0, 0, 0, 0), {"right of", "below"}),
        # 1:2 offset: components 0.447 and 0.894.
        ((1, 2, 1, 2), (0, 0, 0, 0), {"below"}),
    ],
)
def test_relations_by_hand(a: Box, b: Box, expected: set[str]) -> None:
    assert relations(det("a", a), det("b", b)) == expected


def test_the_surest_sixteen_are_kept() -> None:
    detections = many("dog", 20)
    kept = keep(detections[::-1], "single_object")["dog/red"]
    assert [d.confidence for d in kept] == [d.confidence for d in detections[:16]]


def test_objects_below_the_threshold_leave_no_class() -> None:
    assert keep([det("dog", confidence=0.1)], "position") == {}


detections_st = st.lists(
    st.builds(
        lambda name, box, confidence, color: det(name, box, confidence, color),
        st.sampled_from(["dog", "cat"]),
        st.sampled_from([LEFT, MIDDLE, RIGHT, TOP, BOTTOM]),
        st.sampled_from([0.2, 0.3, 0.5, 0.9, 0.95]),
        st.sampled_from(["red", "blue"]),
    ),
    max_size=8,
    # The colour of a detection is looked up by these two.
    unique_by=lambda d: (d.confidence, d.box_xyxy),
)


@settings(deadline=None)  # the machine may be busy
@given(detections=detections_st, spec=st.sampled_from([SINGLE, TWO, COUNTING, COLORS, POSITION, COLOR_ATTR]))
def test_figures_agree_with_each_other(detections: list[Detection], spec: Spec) -> None:
    score, is_strict, is_correct = judge(spec, detections)
    assert score <= 1.0
    assert not is_strict or is_correct
    assert is_strict == (score == 1.0)  # none of these prompts excludes another class
    assert judge(spec, detections, clip=True)[0] >= max(score, 0.0)


@settings(deadline=None)  # the machine may be busy
@given(detections=detections_st, data=st.data())
def test_the_detectors_order_decides_nothing(detections: list[Detection], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(detections))
    for spec, clip in itertools.product([COUNTING, POSITION, COLOR_ATTR], [True, False]):
        assert judge(spec, shuffled, clip) == judge(spec, detections, clip)
