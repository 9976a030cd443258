"""Reading GenEval's prompt metadata, and refusing what would be scored wrong in silence."""

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

from rewards.contract import Metadata
from rewards.geneval_names import RELATIONS, nearest_name
from rewards.geneval_rules import Clause, Spec

Names = Sequence[str] | None
"""Names that are known; None where nobody knows yet, and any name passes."""

_CLAUSE_KEYS = {"class", "count", "color", "position"}


def parse_spec(metadata: Metadata, classes: Names, colors: Names) -> Spec | None:
    """What the metadata of one prompt asks for, or None when it asks for no objects (no `include`, or an empty one).

    Args:
        metadata: `{"tag", "include": [{"class", "count", "color"?, "position"?}], "exclude": [{"class", "count"}]}`,
            with a position as [relation, index].
        classes: class names the detector can find; None to check everything else.
        colors: colour names the classifier can give, empty without one; None to check everything else.

    Raises:
        ValueError: names the clause and the value got: an unknown key, class, colour or relation, a count below 1, a
            position that refers to anything but an earlier clause.
    """
    include = _clauses_in(metadata, "include")
    if not include:
        return None
    tag = metadata.get("tag")
    tag = "" if tag is None else tag
    if not isinstance(tag, str):
        raise ValueError(f"tag must be a string, got {tag!r}")
    parsed = tuple(_parse_clause(f"include[{i}]", i, item, classes, colors) for i, item in enumerate(include))
    excluded = _clauses_in(metadata, "exclude")
    return Spec(tag, parsed, tuple(_parse_exclude(f"exclude[{i}]", x, classes) for i, x in enumerate(excluded)))


def _clauses_in(metadata: Metadata, key: str) -> Sequence[Any]:
    clauses = metadata.get(key)
    if clauses is None:
        return ()
    if isinstance(clauses, str | bytes | Mapping) or not isinstance(clauses, Sequence):
        raise ValueError(f"{key} must be a list of clauses, got {clauses!r}")
    return clauses


def _parse_clause(where: str, index: int, item: Any, classes: Names, colors: Names) -> Clause:
    class_name, count = _class_and_count(where, item, classes)
    # Tables store a key that is absent in one row as null.
    color = item.get("color")
    if color is not None and not isinstance(color, str):
        raise ValueError(f"{where}.color must be text, got {color!r}")
    if color is not None and colors is not None and color not in colors:
        raise ValueError(f"{where}.color {color!r} is unknown; known are {', '.join(colors) or 'none (no classifier)'}")
    position = item.get("position")
    parsed = None if position is None else _parse_position(f"{where}.position", index, position)
    return Clause(class_name, count, color, parsed)


def _parse_exclude(where: str, item: Any, classes: Names) -> Clause:
    class_name, count = _class_and_count(where, item, classes)
    if item.get("color") is not None or item.get("position") is not None:
        raise ValueError(f"{where} can give class and count only, got {dict(item)}")
    return Clause(class_name, count)


def _class_and_count(where: str, item: Any, classes: Names) -> tuple[str, int]:
    if not isinstance(item, Mapping):
        raise ValueError(f"{where} must be a mapping with class and count, got {item!r}")
    unknown = sorted(set(map(str, item)) - _CLAUSE_KEYS)
    if unknown:
        raise ValueError(f"{where} has unknown keys {', '.join(unknown)}; known are {', '.join(sorted(_CLAUSE_KEYS))}")
    class_name, count = item.get("class"), item.get("count")
    if not isinstance(class_name, str) or not class_name:
        raise ValueError(f"{where}.class must be a name, got {class_name!r}")
    if classes is not None and class_name not in classes:
        raise ValueError(
            f"{where}.class {class_name!r} is not one the detector knows; "
            f"the nearest is {nearest_name(class_name, classes)!r}"
        )
    number = _whole(count)
    if number is None or number < 1:
        raise ValueError(f"{where}.count must be a whole number of at least 1, got {count!r}")
    return class_name, number


def _parse_position(where: str, index: int, position: Any) -> tuple[str, int]:
    if isinstance(position, str) or not isinstance(position, Sequence) or len(position) != 2:
        raise ValueError(f"{where} must be [relation, index], got {position!r}")
    relation, target = position
    if not isinstance(relation, str) or relation not in RELATIONS:
        raise ValueError(f"{where} relation {relation!r} is unknown; known are {', '.join(RELATIONS)}")
    number = _whole(target)
    if number is None or not 0 <= number < index:
        raise ValueError(f"{where} target must be the index of an earlier clause (below {index}), got {target!r}")
    return str(relation), number


def _whole(value: object) -> int | None:
    """A whole number of any integer type, NumPy's too; True and False are not meant as 1 and 0."""
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None
