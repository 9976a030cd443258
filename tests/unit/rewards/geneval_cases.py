"""GenEval cases worked by hand: all six tags, ties at every threshold, exclude, positions, 16+ objects.

Expected numbers come from PAPER 4, GenEval's paper and its published evaluation code; nothing here is computed by the
code under test.
"""

from collections.abc import Sequence

import numpy as np

from rewards.detection import Detection
from rewards.geneval_rules import Clause, Spec, correct, graded, keep, strict

Box = tuple[float, float, float, float]
LEFT: Box = (0, 40, 20, 60)
MIDDLE: Box = (40, 40, 60, 60)
RIGHT: Box = (80, 40, 100, 60)
TOP: Box = (40, 0, 60, 20)
BOTTOM: Box = (40, 80, 60, 100)


def det(name: str, box: Box = MIDDLE, confidence: float = 0.95, color: str = "red") -> Detection:
    """A detection; its colour travels in the class name, where `colors_of` finds it again."""
    return Detection(f"{name}/{color}", confidence, box)


def judge(spec: Spec, detections: Sequence[Detection], clip: bool = False) -> tuple[float, bool, bool]:
    """(graded, strict, correct)."""
    color = {(d.confidence, d.box_xyxy): d.class_name.split("/")[1] for d in detections}
    plain = [Detection(d.class_name.split("/")[0], d.confidence, d.box_xyxy) for d in detections]

    def colors_of(objects: Sequence[Detection]) -> list[str]:
        return [color[d.confidence, d.box_xyxy] for d in objects]

    objects = keep(plain, spec.tag)
    return graded(spec, objects, colors_of, clip), strict(spec, objects, colors_of), correct(spec, objects, colors_of)


def boxes(n: int) -> list[Box]:
    return [(10.0 * i, 0.0, 10.0 * i + 5, 5.0) for i in range(n)]


def many(name: str, n: int, **keywords: float) -> list[Detection]:
    """n detections side by side, each a little less confident than the one before."""
    top = keywords.get("confidence", 0.99)
    return [det(name, box, top - 0.001 * i) for i, box in enumerate(boxes(n))]


SINGLE = Spec("single_object", (Clause("dog", 1),))
TWO = Spec("two_object", (Clause("dog", 1), Clause("cat", 1)))
COUNTING = Spec("counting", (Clause("dog", 3),), (Clause("dog", 4),))
COLORS = Spec("colors", (Clause("dog", 1, "red"),))
POSITION = Spec("position", (Clause("cat", 1), Clause("dog", 1, None, ("right of", 0))))
COLOR_ATTR = Spec("color_attr", (Clause("dog", 1, "red"), Clause("cat", 1, "blue")))

CASES: dict[str, tuple[Spec, list[Detection], float, bool, bool]] = {
    # name: what is asked for, what is found, graded, strict, correct
    # single_object
    "single: one": (SINGLE, [det("dog")], 1.0, True, True),
    "single: none": (SINGLE, [det("cat")], 0.0, False, False),
    "single: two are right, not strictly": (SINGLE, many("dog", 2), 0.0, False, True),
    "single: three": (SINGLE, many("dog", 3), -1.0, False, True),
    "single: other classes do not matter": (SINGLE, [det("dog"), *many("cat", 5)], 1.0, True, True),
    "single: at the threshold it does not count": (SINGLE, [det("dog", confidence=0.3)], 0.0, False, False),
    # A float32 detector's 0.3 is 0.30000001 in float64; the published comparison is in float32.
    "single: at the threshold in float32": (SINGLE, [det("dog", confidence=float(np.float32(0.3)))], 0.0, False, False),
    "single: the next float32 counts": (
        SINGLE,
        [det("dog", confidence=float(np.nextafter(np.float32(0.3), np.float32(1))))],
        1.0,
        True,
        True,
    ),
    "single: just above it does": (SINGLE, [det("dog", confidence=0.3001)], 1.0, True, True),
    # two_object
    "two: both": (TWO, [det("dog"), det("cat")], 1.0, True, True),
    "two: one": (TWO, [det("dog")], 0.5, False, False),
    "two: none": (TWO, [], 0.0, False, False),
    "two: one of them twice": (TWO, [*many("dog", 2), det("cat")], 0.5, False, True),
    # counting
    "counting: three": (COUNTING, many("dog", 3), 1.0, True, True),
    "counting: two": (COUNTING, many("dog", 2), 2 / 3, False, False),
    "counting: four meet the exclude": (COUNTING, many("dog", 4), 2 / 3, False, False),
    "counting: at 0.9 none counts": (COUNTING, [det("dog", b, 0.9) for b in boxes(3)], 0.0, False, False),
    "counting: the fourth at 0.9 is not there": (
        COUNTING,
        [*many("dog", 3), det("dog", RIGHT, 0.9)],
        1.0,
        True,
        True,
    ),
    "counting: the fourth just above 0.9 is": (
        COUNTING,
        [*many("dog", 3), det("dog", RIGHT, 0.9001)],
        2 / 3,
        False,
        False,
    ),
    "counting: at 0.9 in float32": (
        COUNTING,
        [det("dog", b, float(np.float32(0.9))) for b in boxes(3)],
        0.0,
        False,
        False,
    ),
    "counting: the next float32 counts": (
        COUNTING,
        [det("dog", b, float(np.nextafter(np.float32(0.9), np.float32(1)))) for b in boxes(3)],
        1.0,
        True,
        True,
    ),
    "counting: five are two too many, and too many by a third each": (COUNTING, many("dog", 5), 1 / 3, False, False),
    "counting: others below 0.9 do not meet the exclude": (
        COUNTING,
        [*many("dog", 3), *many("dog", 3, confidence=0.89)],
        1.0,
        True,
        True,
    ),
    # colors
    "colors: right": (COLORS, [det("dog", color="red")], 1.0, True, True),
    "colors: wrong": (COLORS, [det("dog", color="blue")], 0.5, False, False),
    "colors: nothing found: no colour either": (COLORS, [], 0.0, False, False),
    "colors: two found, the surer one right": (
        COLORS,
        [det("dog", LEFT, 0.9, "red"), det("dog", RIGHT, 0.5, "blue")],
        0.0,
        False,
        True,
    ),
    "colors: two found, the surer one wrong": (
        COLORS,
        [det("dog", LEFT, 0.5, "red"), det("dog", RIGHT, 0.9, "blue")],
        0.0,
        False,
        False,
    ),
    "colors: one of two right": (
        Spec("colors", (Clause("dog", 2, "red"),)),
        [det("dog", LEFT, color="red"), det("dog", RIGHT, color="blue")],
        0.75,
        False,
        False,
    ),
    "colors: three found, the two surest right": (
        Spec("colors", (Clause("dog", 2, "red"),)),
        [det("dog", LEFT, 0.9, "red"), det("dog", MIDDLE, 0.8, "red"), det("dog", RIGHT, 0.7, "blue")],
        0.25,
        False,
        True,
    ),
    "colors: of equally sure ones the left one comes first": (
        COLORS,
        [det("dog", RIGHT, 0.9, "blue"), det("dog", LEFT, 0.9, "red")],
        0.0,
        False,
        True,
    ),
    "colors: two clauses of one class look at the same object": (
        Spec("colors", (Clause("dog", 1, "red"), Clause("dog", 1, "blue"))),
        [det("dog", LEFT, 0.9, "red"), det("dog", RIGHT, 0.8, "blue")],
        0.0,
        False,
        False,
    ),
    # position
    "position: right": (POSITION, [det("cat", LEFT), det("dog", RIGHT)], 1.0, True, True),
    "position: the other way round": (POSITION, [det("cat", RIGHT), det("dog", LEFT)], 2 / 3, False, False),
    "position: overlapping": (POSITION, [det("cat", MIDDLE), det("dog", (43, 40, 63, 60))], 2 / 3, False, False),
    "position: the target is missing": (POSITION, [det("dog", RIGHT)], 1 / 3, False, False),
    "position: the object is missing": (POSITION, [det("cat", LEFT)], 1 / 3, False, False),
    "position: both are missing": (POSITION, [], 0.0, False, False),
    "position: two targets, the surer one right": (
        POSITION,
        [det("cat", LEFT, 0.9), det("cat", (200, 40, 220, 60), 0.5), det("dog", RIGHT)],
        1 / 3,
        False,
        True,
    ),
    "position: two targets, the surer one wrong": (
        POSITION,
        [det("cat", LEFT, 0.5), det("cat", (200, 40, 220, 60), 0.9), det("dog", RIGHT)],
        1 / 3,
        False,
        False,
    ),
    "position: every pair must hold": (
        Spec("position", (Clause("cat", 1), Clause("dog", 2, None, ("right of", 0)))),
        [det("cat", MIDDLE), det("dog", LEFT), det("dog", RIGHT)],
        2 / 3,
        False,
        False,
    ),
    "position: to a target of another place in the list": (
        Spec("position", (Clause("cup", 1), Clause("cat", 1), Clause("dog", 1, None, ("below", 1)))),
        [det("cup", BOTTOM), det("cat", TOP), det("dog", MIDDLE)],
        1.0,
        True,
        True,
    ),
    "position: a target that failed fails what refers to it": (
        Spec(
            "position",
            (Clause("cup", 1), Clause("cat", 1, None, ("above", 0)), Clause("dog", 1, None, ("right of", 1))),
        ),
        [det("cup", TOP), det("cat", BOTTOM), det("dog", (90, 80, 110, 100))],
        3 / 5,
        False,
        False,
    ),
    "position: a target of the wrong colour": (
        Spec("position", (Clause("cat", 1, "red"), Clause("dog", 1, None, ("right of", 0)))),
        [det("cat", LEFT, color="blue"), det("dog", RIGHT)],
        (1 + 0 + 1 + 0) / 4,
        False,
        False,
    ),
    "position: one target too many fails it, but not for correct": (
        Spec("position", (Clause("cat", 1), Clause("dog", 1, None, ("right of", 0)))),
        [det("cat", LEFT, 0.9), det("cat", MIDDLE, 0.8), det("dog", RIGHT)],
        (0 + 1 + 0) / 3,
        False,
        True,
    ),
    "position: right of both targets": (
        Spec("position", (Clause("cat", 2), Clause("dog", 1, None, ("right of", 0)))),
        [det("cat", LEFT), det("cat", MIDDLE), det("dog", RIGHT)],
        1.0,
        True,
        True,
    ),
    "position: right of one of two targets": (
        Spec("position", (Clause("cat", 2), Clause("dog", 1, None, ("right of", 0)))),
        [det("cat", LEFT), det("cat", RIGHT), det("dog", MIDDLE)],
        2 / 3,
        False,
        False,
    ),
    "position: exactly half of the offset is not enough": (
        POSITION,
        [det("cat", (0, 0, 25, 0)), det("dog", (10, 0, 35, 0))],
        2 / 3,
        False,
        False,
    ),
    # color_attr
    "attr: both": (COLOR_ATTR, [det("dog", LEFT, color="red"), det("cat", RIGHT, color="blue")], 1.0, True, True),
    "attr: exchanged": (
        COLOR_ATTR,
        [det("dog", LEFT, color="blue"), det("cat", RIGHT, color="red")],
        0.5,
        False,
        False,
    ),
    "attr: one wrong": (
        COLOR_ATTR,
        [det("dog", LEFT, color="red"), det("cat", RIGHT, color="red")],
        0.75,
        False,
        False,
    ),
    "attr: one missing": (COLOR_ATTR, [det("dog", LEFT, color="red")], 0.5, False, False),
    # colour and position in one clause
    "wrong colour leaves no position part": (
        Spec("position", (Clause("cat", 1), Clause("dog", 1, "red", ("right of", 0)))),
        [det("cat", LEFT), det("dog", RIGHT, color="blue")],
        2 / 3,
        False,
        False,
    ),
    "wrong count leaves one 0 for both": (
        Spec("position", (Clause("cat", 1), Clause("dog", 2, "red", ("right of", 0)))),
        [det("cat", LEFT), det("dog", RIGHT, color="red")],
        (1 + 0.5 + 0) / 3,
        False,
        False,
    ),
    # exclude
    "exclude: another class": (
        Spec("two_object", (Clause("dog", 1),), (Clause("cat", 1),)),
        [det("dog", LEFT), det("cat", RIGHT)],
        1.0,
        False,
        False,
    ),
    "exclude: below its count": (
        Spec("two_object", (Clause("dog", 1),), (Clause("cat", 2),)),
        [det("dog", LEFT), det("cat", RIGHT)],
        1.0,
        True,
        True,
    ),
    "exclude: one of two met is enough": (
        Spec("two_object", (Clause("dog", 1),), (Clause("cup", 1), Clause("cat", 1))),
        [det("dog", LEFT), det("cat", RIGHT)],
        1.0,
        False,
        False,
    ),
    "exclude: at the threshold it does not count": (
        Spec("two_object", (Clause("dog", 1),), (Clause("cat", 1),)),
        [det("dog", LEFT), det("cat", RIGHT, 0.3)],
        1.0,
        True,
        True,
    ),
    "exclude: of the class itself, exactly its count": (
        Spec("single_object", (Clause("dog", 1),), (Clause("dog", 2),)),
        many("dog", 2),
        0.0,
        False,
        False,
    ),
    # more than 16 objects
    "sixteen asked for, seventeen excluded, twenty found: the cap hides the rest": (
        Spec("counting", (Clause("dog", 16),), (Clause("dog", 17),)),
        many("dog", 20),
        1.0,
        True,
        True,
    ),
    "the sixteen surest decide the colour": (
        Spec("colors", (Clause("dog", 16, "red"),)),
        [*many("dog", 16), det("dog", LEFT, 0.5, "blue")],
        1.0,
        True,
        True,
    ),
    "sixteen of one": (SINGLE, many("dog", 16), -14.0, False, True),
    "twenty count as sixteen": (SINGLE, many("dog", 20), -14.0, False, True),
    "seventeen asked for are never found": (
        Spec("single_object", (Clause("dog", 17),)),
        many("dog", 20),
        1 - 1 / 17,
        False,
        False,
    ),
    "sixteen per class, not in all": (
        Spec("two_object", (Clause("dog", 16), Clause("cat", 16))),
        [*many("dog", 20), *many("cat", 20)],
        1.0,
        True,
        True,
    ),
}
