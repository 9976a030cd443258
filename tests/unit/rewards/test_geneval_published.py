"""The rules against the published evaluation, told again from its source: GenEval's evaluate_images, and the training
reward built on it. Its own arithmetic is float32 NumPy, and so is this one's.

Differences on purpose: a failed position gives one 0 (the published reward appends a 0 and a 1), and strict minds
exclude clauses.
"""

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards.detection import Detection
from rewards.geneval_rules import Clause, Spec, correct, graded, keep, relations, strict

Found = dict[str, list[Detection]]


def published_relations(a: Detection, b: Detection) -> set[str]:
    corners = np.array([a.box_xyxy, b.box_xyxy], dtype=np.float32).reshape(2, 2, 2)
    center_a, center_b = corners.mean(axis=1)
    size_a, size_b = np.abs(corners[:, 1] - corners[:, 0])
    offset = center_a - center_b
    shrunk = np.sign(offset) * np.maximum(np.abs(offset) - 0.1 * (size_a + size_b), 0)
    if (np.abs(shrunk) < 1e-3).all():
        return set()
    right, down = shrunk / np.linalg.norm(offset)
    holds = {"left of": right < -0.5, "right of": right > 0.5, "above": down < -0.5, "below": down > 0.5}
    return {name for name, true in holds.items() if true}


def published_objects(detections: Sequence[Detection], tag: str) -> Found:
    threshold = 0.9 if tag == "counting" else 0.3
    found: Found = {}
    for name in {d.class_name for d in detections}:
        scores = np.array([d.confidence for d in detections if d.class_name == name], dtype=np.float32)
        of_class = [d for d in detections if d.class_name == name]
        order = [i for i in np.argsort(-scores, kind="stable") if scores[i] > threshold][:16]
        if order:
            found[name] = [of_class[i] for i in order]
    return found


def color_of(found: Detection) -> str:
    """Objects in the left half are red."""
    return "red" if found.box_xyxy[0] < 50 else "blue"


def stands(clause: Clause, objects: list[Detection], groups: list[list[Detection] | None]) -> bool:
    assert clause.position is not None
    relation, target = clause.position
    others = groups[target]
    return others is not None and all(relation in published_relations(a, b) for a in objects for b in others)


def published_correct(spec: Spec, found: Found) -> bool:
    right, groups = True, []
    for clause in spec.include:
        objects = found.get(clause.class_name, [])[: clause.count]
        met = len(objects) >= clause.count
        if met and clause.color is not None:
            met = [color_of(o) for o in objects].count(clause.color) >= clause.count
        if met and clause.position is not None:
            met = stands(clause, objects, groups)
        groups.append(objects if met else None)
        right = right and met
    return right and not any(len(found.get(e.class_name, [])) >= e.count for e in spec.exclude)


def published_reward(spec: Spec, found: Found) -> tuple[bool, float]:
    """(strictly right, graded score)."""
    right, rewards, groups = True, [], []
    for clause in spec.include:
        objects = found.get(clause.class_name, [])
        rewards.append(1 - abs(clause.count - len(objects)) / clause.count)
        met = len(objects) == clause.count
        if not met and (clause.color is not None or clause.position is not None):
            rewards.append(0.0)
        if met and clause.color is not None:
            num_right = [color_of(o) for o in objects].count(clause.color)
            rewards.append(1 - abs(clause.count - num_right) / clause.count)
            met = num_right == clause.count
        if met and clause.position is not None:
            met = stands(clause, objects, groups)
            rewards.append(1.0 if met else 0.0)
        groups.append(objects if met else None)
        right = right and met
    return right, sum(rewards) / len(rewards)


boxes_st = st.tuples(st.integers(0, 90), st.integers(0, 90), st.integers(1, 60), st.integers(1, 60)).map(
    lambda b: (float(b[0]), float(b[1]), float(b[0] + b[2]), float(b[1] + b[3]))
)
confidences_st = st.sampled_from([0.2, 0.3, float(np.float32(0.3)), 0.31, 0.5, 0.9, float(np.float32(0.9)), 0.91, 0.99])


@st.composite
def detections_st(draw: st.DrawFn) -> list[Detection]:
    """Up to 20 objects of three classes. Ties of confidence come in the order of their boxes, as ours does."""
    items = draw(st.lists(st.tuples(st.sampled_from("abc"), boxes_st, confidences_st), max_size=20))
    return sorted((Detection(n, c, b) for n, b, c in items), key=lambda d: d.box_xyxy)


@st.composite
def specs_st(draw: st.DrawFn) -> Spec:
    include = []
    for index in range(draw(st.integers(1, 3))):
        position = None
        if index and draw(st.booleans()):
            relation = draw(st.sampled_from(["left of", "right of", "above", "below"]))
            position = (relation, draw(st.integers(0, index - 1)))
        color = draw(st.sampled_from([None, "red", "blue"]))
        include.append(Clause(draw(st.sampled_from("abc")), draw(st.integers(1, 3)), color, position))
    exclude = draw(st.lists(st.builds(Clause, st.sampled_from("abc"), st.integers(1, 4)), max_size=2))
    return Spec(draw(st.sampled_from(["counting", "position"])), tuple(include), tuple(exclude))


@settings(deadline=None, max_examples=300)  # the machine may be busy
@given(spec=specs_st(), detections=detections_st())
def test_three_figures_are_the_published_ones(spec: Spec, detections: list[Detection]) -> None:
    objects, found = keep(detections, spec.tag), published_objects(detections, spec.tag)

    def colors_of(some: Sequence[Detection]) -> list[str]:
        return [color_of(item) for item in some]

    is_strict, score = published_reward(spec, found)
    excluded = any(len(found.get(e.class_name, [])) >= e.count for e in spec.exclude)
    assert {name: list(group) for name, group in objects.items()} == found
    assert correct(spec, objects, colors_of) == published_correct(spec, found)
    assert strict(spec, objects, colors_of) == (is_strict and not excluded)
    assert abs(graded(spec, objects, colors_of, clip=False) - score) < 1e-12


@settings(deadline=None, max_examples=300)  # the machine may be busy
@given(a=boxes_st, b=boxes_st)
def test_relations_are_the_published_ones(a: tuple[float, ...], b: tuple[float, ...]) -> None:
    one, other = Detection("a", 0.9, a), Detection("b", 0.9, b)  # type: ignore[arg-type]
    assert relations(one, other) == published_relations(one, other)
