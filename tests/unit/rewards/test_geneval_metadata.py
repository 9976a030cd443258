"""GenEval metadata: read as published, refused where it would be scored wrong in silence."""

import json
from typing import Any

import numpy as np
import pytest

from rewards.geneval_metadata import parse_spec
from rewards.geneval_rules import Clause, Spec

CLASSES = ("dog", "cat")
COLORS = ("red", "blue")


def parse(**metadata: Any) -> Spec | None:
    return parse_spec(metadata, CLASSES, COLORS)


def test_published_lines() -> None:
    """Lines in the published format, one per tag that has keys of its own."""
    counting = (
        '{"tag": "counting", "include": [{"class": "dog", "count": 2}], "exclude": [{"class": "dog", "count": 3}]}'
    )
    assert parse(**json.loads(counting)) == Spec("counting", (Clause("dog", 2),), (Clause("dog", 3),))
    position = (
        '{"tag": "position", "include": [{"class": "dog", "count": 1}, '
        '{"class": "cat", "count": 1, "color": "red", "position": ["right of", 0]}], "prompt": "..."}'
    )
    expected = Spec("position", (Clause("dog", 1), Clause("cat", 1, "red", ("right of", 0))))
    assert parse(**json.loads(position)) == expected


@pytest.mark.parametrize(
    "metadata", [{}, {"include": None}, {"include": []}, {"exclude": [{"class": "dog", "count": 1}]}]
)
def test_nothing_asked_for_is_not_applicable(metadata: dict[str, Any]) -> None:
    assert parse(**metadata) is None


def test_nulls_of_a_table_are_absent_keys_and_its_integers_count() -> None:
    clause = {"class": "dog", "count": np.int64(2), "color": None, "position": None}
    assert parse(tag="counting", include=[clause], exclude=None) == Spec("counting", (Clause("dog", 2),))


DOG = {"class": "dog", "count": 1}


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"include": [{"class": "dgo", "count": 1}]}, r"include\[0\]\.class 'dgo' is not one the detector knows"),
        ({"include": [{"count": 1}]}, r"include\[0\]\.class must be a name, got None"),
        ({"include": [DOG, {"class": "dog", "count": -1}]}, r"include\[1\]\.count .* at least 1, got -1"),
        ({"include": [{"class": "dog", "count": 0}]}, "got 0"),
        ({"include": [{"class": "dog", "count": 1.5}]}, r"got 1\.5"),
        ({"include": [{"class": "dog", "count": True}]}, "got True"),
        ({"include": [{"class": "dog"}]}, "got None"),
        ({"include": [{**DOG, "colour": "red"}]}, "unknown keys colour"),
        ({"include": [{**DOG, "color": "mauve"}]}, r"include\[0\]\.color 'mauve' is unknown; known are red, blue"),
        ({"include": [{**DOG, "position": ["left of", 0]}]}, r"earlier clause \(below 0\), got 0"),
        ({"include": [DOG, {**DOG, "position": ["left of", 1]}]}, r"earlier clause \(below 1\), got 1"),
        ({"include": [DOG, {**DOG, "position": ["left of", -1]}]}, "got -1"),
        ({"include": [DOG, {**DOG, "position": ["left of", 5]}]}, "got 5"),
        ({"include": [DOG, {**DOG, "position": ["left of", False]}]}, "got False"),
        ({"include": [DOG, {**DOG, "position": ["beside", 0]}]}, "relation 'beside' is unknown"),
        ({"include": [DOG, {**DOG, "position": ["left of"]}]}, r"must be \[relation, index\]"),
        ({"include": [DOG, {**DOG, "position": "left of"}]}, r"must be \[relation, index\]"),
        ({"include": {"class": "dog"}}, "include must be a list of clauses"),
        ({"include": "dog"}, "include must be a list of clauses"),
        ({"include": ["dog"]}, r"include\[0\] must be a mapping"),
        ({"include": [DOG], "exclude": [{"class": "cow", "count": 1}]}, r"exclude\[0\]\.class 'cow'"),
        ({"include": [DOG], "exclude": [{"class": "cat", "count": 0}]}, r"exclude\[0\]\.count"),
        ({"include": [DOG], "exclude": [{**DOG, "color": "red"}]}, r"exclude\[0\] can give class and count only"),
        ({"include": [DOG], "tag": 3}, "tag must be a string"),
    ],
)
def test_bad_metadata_says_where(metadata: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(**metadata)


def test_a_colour_without_classifier() -> None:
    with pytest.raises(ValueError, match="no classifier"):
        parse_spec({"include": [{**DOG, "color": "red"}]}, CLASSES, ())
