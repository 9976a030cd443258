"""GenEval's rules as pure functions: what a prompt asks for, and how well the detected objects meet it.

Source: GenEval (Ghosh et al. 2023, arXiv 2310.11513), section 3, and the training reward built on it by Flow-GRPO
(arXiv 2505.05470); numbers in PAPER 4. Objects are grouped by class, most confident first.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rewards.detection import Detection

CONFIDENCE_THRESHOLD = 0.3
"""A detection counts above this, not at it. Both are compared as float32, which is what detectors give: a confidence of
0.3 in float32 is a little above 0.3 in float64, and the published code does not count it."""
COUNTING_CONFIDENCE_THRESHOLD = 0.9
"""The same for prompts tagged `counting`, where one doubtful box decides."""
MAX_OBJECTS_PER_CLASS = 16
POSITION_SHRINK = 0.1
"""Share of both objects' sizes by which a centre offset is shortened: objects that overlap stand in no relation."""
RELATION_COSINE = 0.5
"""A relation holds when its component of the shortened offset exceeds this share of the whole offset."""
SMALLEST_OFFSET = 1e-3
"""Pixels; a shortened offset below it in both axes is none at all."""

Objects = Mapping[str, tuple[Detection, ...]]
"""Detections that count, by class, most confident first."""
ColorsOf = Callable[[Sequence[Detection]], Sequence[str]]
"""Colour of each of some objects of one image; asked only where a prompt names a colour."""


@dataclass(frozen=True)
class Clause:
    """So many objects of one class, of a colour if given, in a relation to an earlier clause's objects if given."""

    class_name: str
    count: int
    color: str | None = None
    position: tuple[str, int] | None = None
    """Relation, and the index in `include` of the clause it refers to."""


@dataclass(frozen=True)
class Spec:
    """What one prompt asks for."""

    tag: str
    include: tuple[Clause, ...]
    exclude: tuple[Clause, ...] = ()


def keep(detections: Sequence[Detection], tag: str) -> dict[str, tuple[Detection, ...]]:
    """Detections confident enough for the tag, at most 16 of a class, most confident first.

    Equal confidences are ordered by their boxes, so that the detector's order never decides.
    """
    threshold = np.float32(COUNTING_CONFIDENCE_THRESHOLD if tag == "counting" else CONFIDENCE_THRESHOLD)
    objects: dict[str, list[Detection]] = {}
    for detection in sorted(detections, key=lambda item: (-np.float32(item.confidence), item.box_xyxy)):
        group = objects.setdefault(detection.class_name, [])
        if np.float32(detection.confidence) > threshold and len(group) < MAX_OBJECTS_PER_CLASS:
            group.append(detection)
    return {name: tuple(group) for name, group in objects.items() if group}


def relations(a: Detection, b: Detection) -> frozenset[str]:
    """Where a is, seen from b: any of `left of`, `right of`, `above`, `below` (two of them on a diagonal), or none.

    The offset of the centres is shortened per axis by 0.1 · (size_a + size_b), then divided by the length of the offset
    before it was shortened (GenEval, section 3.2).
    """
    box_a, box_b = a.box_xyxy, b.box_xyxy
    offsets, shortened = [], []
    for low, high in ((0, 2), (1, 3)):
        offset = (box_a[low] + box_a[high] - box_b[low] - box_b[high]) / 2
        sizes = abs(box_a[high] - box_a[low]) + abs(box_b[high] - box_b[low])
        offsets.append(offset)
        shortened.append(math.copysign(max(abs(offset) - POSITION_SHRINK * sizes, 0.0), offset))
    if all(abs(part) < SMALLEST_OFFSET for part in shortened):
        return frozenset()
    length = math.hypot(*offsets)
    x, y = (part / length for part in shortened)
    found = {
        "left of": x < -RELATION_COSINE,
        "right of": x > RELATION_COSINE,
        "above": y < -RELATION_COSINE,
        "below": y > RELATION_COSINE,
    }
    return frozenset(name for name, holds in found.items() if holds)


def correct(spec: Spec, objects: Objects, colors_of: ColorsOf) -> bool:
    """GenEval's own verdict: every include is met by at least `count` objects, and no exclude is.

    Of more objects than asked for, the `count` most confident ones are looked at.
    """
    return _all_met(spec, objects, colors_of, exact=False) and not _any_excluded(spec, objects)


def strict(spec: Spec, objects: Objects, colors_of: ColorsOf) -> bool:
    """As `correct`, but with exactly `count` objects of each included class.

    The public training code leaves exclude clauses out here. On its prompts that is the same, as those exclude only
    more of a counted class; elsewhere it would call an image strictly right that is not even right.
    """
    return _all_met(spec, objects, colors_of, exact=True) and not _any_excluded(spec, objects)


def graded(spec: Spec, objects: Objects, colors_of: ColorsOf, clip: bool) -> float:
    """Mean over the parts of all include clauses (PAPER 4), at most 1.

    Per clause: 1 - |count - found|/count; when the count is wrong, one 0 for colour and position together; else
    1 - |count - right colour|/count if a colour is asked for; and, unless the colour is wrong, 1 or 0 for a position.

    Args:
        spec: what is asked for; at least one include clause.
        objects: what was found.
        colors_of: colours of objects.
        clip: bound the count part at 0. Without it, 16 objects where 1 was asked for give -14.
    """
    parts: list[float] = []
    groups: list[tuple[Detection, ...] | None] = []
    for clause in spec.include:
        found = objects.get(clause.class_name, ())
        clause_parts, met = _graded_clause(clause, found, groups, colors_of)
        parts += [max(clause_parts[0], 0.0) if clip else clause_parts[0], *clause_parts[1:]]
        groups.append(found if met else None)
    return sum(parts) / len(parts)


def _graded_clause(
    clause: Clause,
    found: tuple[Detection, ...],
    groups: Sequence[tuple[Detection, ...] | None],
    colors_of: ColorsOf,
) -> tuple[list[float], bool]:
    """Parts of one clause, the count first, and whether the clause is met in full."""
    parts = [1.0 - abs(clause.count - len(found)) / clause.count]
    if len(found) != clause.count:
        return parts + [0.0] * (clause.color is not None or clause.position is not None), False
    if clause.color is not None:
        right = list(colors_of(found)).count(clause.color)
        parts.append(1.0 - abs(clause.count - right) / clause.count)
        if right != clause.count:
            return parts, False
    if clause.position is None:
        return parts, True
    holds = _position_holds(clause.position, found, groups)
    return [*parts, float(holds)], holds


def _all_met(spec: Spec, objects: Objects, colors_of: ColorsOf, exact: bool) -> bool:
    groups: list[tuple[Detection, ...] | None] = []
    for clause in spec.include:
        found = objects.get(clause.class_name, ())
        if not exact:
            found = found[: clause.count]
        groups.append(found if _met(clause, found, groups, colors_of) else None)
    return all(group is not None for group in groups)


def _met(
    clause: Clause,
    found: tuple[Detection, ...],
    groups: Sequence[tuple[Detection, ...] | None],
    colors_of: ColorsOf,
) -> bool:
    if len(found) != clause.count:
        return False
    if clause.color is not None and list(colors_of(found)).count(clause.color) < clause.count:
        return False
    return clause.position is None or _position_holds(clause.position, found, groups)


def _position_holds(
    position: tuple[str, int], found: Sequence[Detection], groups: Sequence[tuple[Detection, ...] | None]
) -> bool:
    """Every found object stands in the relation to every object of the target group; never if that group failed."""
    relation, target_index = position
    target = groups[target_index]
    return target is not None and all(relation in relations(a, b) for a in found for b in target)


def _any_excluded(spec: Spec, objects: Objects) -> bool:
    return any(len(objects.get(clause.class_name, ())) >= clause.count for clause in spec.exclude)
