"""GenEval metadata: read as published, refused where it would be scored wrong in silence."""

import json
from typing import Any

import numpy as np
import pytest

from rewards.geneval_metadata import parse_spec
from rewards.geneval_names import CLASSES as CLASS_NAMES
from rewards.geneval_names import nearest_name
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
        (
            {"include": [{"class": "dgo", "count": 1}]},
            r"include\[0\]\.class 'dgo' is not one the detector knows; the nearest is 'dog'",
        ),
        ({"include": [{"class": "zebra crossing", "count": 1}]}, r"the nearest is '(dog|cat)'"),
        ({"include": [{"count": 1}]}, r"include\[0\]\.class must be a name, got None"),
        ({"include": [{"class": ["dog"], "count": 1}]}, r"must be a name, got \['dog'\]"),
        ({"include": [{**DOG, "color": 3}]}, r"include\[0\]\.color must be text, got 3"),
        ({"include": [{"class": "dog", "count": "2"}]}, r"include\[0\]\.count .*, got '2'"),
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


def test_without_known_names_everything_else_is_checked() -> None:
    """As a prompt file is read, before anybody knows the detector."""
    clauses = [{"class": "wug", "count": 1}, {"class": "blick", "count": 2, "color": "mauve", "position": ["above", 0]}]
    expected = Spec("", (Clause("wug", 1), Clause("blick", 2, "mauve", ("above", 0))))
    assert parse_spec({"include": clauses}, None, None) == expected
    with pytest.raises(ValueError, match="got -1"):
        parse_spec({"include": [{"class": "wug", "count": -1}]}, None, None)
    with pytest.raises(ValueError, match=r"earlier clause \(below 0\)"):
        parse_spec({"include": [{"class": "wug", "count": 1, "position": ["above", 0]}]}, None, None)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("mouse", "computer mouse"),
        ("Remote", "tv remote"),
        ("keyboard", "computer keyboard"),
        ("aeroplane", "airplane"),
        ("sofa", "couch"),
        ("zebras", "zebra"),
        ("hotdog", "hot dog"),
        ("DOG", "dog"),
    ],
)
def test_the_nearest_class_is_the_one_meant(name: str, nearest: str) -> None:
    """COCO's own names of what GenEval renamed, plurals and slips."""
    assert nearest_name(name, CLASS_NAMES) == nearest


def test_eighty_distinct_classes() -> None:
    assert len(set(CLASS_NAMES)) == 80
    assert (CLASS_NAMES[0], CLASS_NAMES[16], CLASS_NAMES[64], CLASS_NAMES[79]) == (
        "person",
        "dog",
        "computer mouse",
        "toothbrush",
    )
