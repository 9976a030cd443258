"""Text targets and the two matching rules, by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards.matching import (
    MatchRule,
    Quoting,
    edit_distance,
    match,
    published_match,
    quoted_text,
    quoting,
    strict_match,
    text_target,
)

words = st.text(alphabet="abc ", min_size=0, max_size=8)
targets = words.filter(lambda text: bool(text.strip()))


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ('a sign that says "OPEN"', "OPEN"),
        ('"A" and "B"', "A"),
        ('a "Two Words" sign', "Two Words"),
        ("a sign", None),
        ("", None),
        ('a lone " quote', None),
        ('empty "" quotes', None),
        ('empty "  " quotes', None),
        ('empty "" and then "B"', None),
        ("curly “OPEN” quotes", None),
        ("single 'OPEN' quotes", None),
        ('mixed “OPEN" quotes', None),
        ('a 5" pipe and a 6" pipe', " pipe and a 6"),
        ('three "A" quotes "', "A"),
    ],
)
def test_quoted_text(prompt: str, expected: str | None) -> None:
    """FAULTS 9, 10: the first pair of straight double quotes, and nothing else."""
    assert quoted_text(prompt) == expected


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("a sign", "none"),
        ("it's 'single'", "none"),
        ('says "A"', "one"),
        ('says "A" and 5" wide', "one"),
        ('says "A" and "B"', "several"),
        ('a lone " quote', "lone"),
        ('a lone " beside “curly”', "lone"),
        ('empty "" quotes', "empty"),
        ('empty "" then "B"', "empty"),
        ("says “A”", "curly"),
        ("says „A‟", "curly"),
        ('says "A" beside “B”', "one"),
    ],
)
def test_quoting(prompt: str, expected: Quoting) -> None:
    """The written rules of docs/prompts.md, by name; a target exists for `one` and `several` only."""
    assert quoting(prompt) == expected
    assert (quoted_text(prompt) is not None) == (expected in ("one", "several"))


def test_metadata_names_the_target() -> None:
    assert text_target('says "A"', {"text": "B"}) == "B"
    assert text_target('says "A"', {"text": " "}) is None
    assert text_target('says "A"', {"tag": "x"}) == "A"
    assert text_target('says "A"', {"text": None}) == "A", "which tables store where a row has none"
    assert text_target("says A", {"text": None}) is None
    with pytest.raises(ValueError, match="must be a string, got 5"):
        text_target("", {"text": 5})


@pytest.mark.parametrize(
    ("a", "b", "distance"),
    [("", "", 0), ("", "abc", 3), ("kitten", "sitting", 3), ("flaw", "lawn", 2), ("ab", "ba", 2), ("abc", "abc", 0)],
)
def test_edit_distance(a: str, b: str, distance: int) -> None:
    assert edit_distance(a, b) == edit_distance(b, a) == distance


@pytest.mark.parametrize(
    ("read", "target", "published", "strict"),
    [
        ("OPEN", "open", 1.0, 1.0),
        ("O P E N", "Op En", 1.0, 1.0),
        ("", "OPEN", 0.0, 0.0),
        ("OPEM", "OPEN", 0.75, 0.75),
        ("OPE", "OPEN", 0.75, 0.75),
        ("REOPENED", "OPEN", 1.0, 0.5),
        ("BANANA", "N", 1.0, 1 / 6),
        ("XYZ", "AB", 0.0, 0.0),
        ("OPXENQQQQ", "OPEN", 0.0, 1 - 5 / 9),
        ("abcdefghijklmnopqrstuvwxyz", "k", 1.0, 1 / 26),
    ],
)
def test_both_rules_by_hand(read: str, target: str, published: float, strict: float) -> None:
    """PAPER 4; FAULTS 10: under strict, letters around the target cost, and one letter is not found in a word."""
    assert published_match(read, target) == pytest.approx(published)
    assert strict_match(read, target) == pytest.approx(strict)
    assert match("published", read, target) == published_match(read, target)
    assert match("strict", read, target) == strict_match(read, target)


def test_covering_with_letters_does_not_pay_under_strict() -> None:
    """FAULTS 10: every further letter lowers the score, however often the target is repeated."""
    scores = [strict_match("OPEN" * n, "OPEN") for n in range(1, 6)]
    assert scores == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4, 1 / 5])
    assert [published_match("OPEN" * n, "OPEN") for n in range(1, 6)] == [1.0] * 5


@pytest.mark.parametrize("rule", ["published", "strict"])
def test_an_empty_target_has_no_score(rule: MatchRule) -> None:
    with pytest.raises(ValueError, match="not applicable"):
        match(rule, "abc", "  ")


@settings(deadline=None)  # the machine may be busy
@given(read=words, target=targets)
def test_rules_stay_in_range_and_one_is_exact(read: str, target: str) -> None:
    clean_read, clean_target = read.replace(" ", ""), target.replace(" ", "")
    assert 0.0 <= strict_match(read, target) <= 1.0
    assert 0.0 <= published_match(read, target) <= 1.0
    assert (strict_match(read, target) == 1.0) == (clean_read == clean_target)


@settings(deadline=None)  # the machine may be busy
@given(a=words, b=words, c=words)
def test_edit_distance_is_a_metric(a: str, b: str, c: str) -> None:
    assert edit_distance(a, c) <= edit_distance(a, b) + edit_distance(b, c)
    assert (edit_distance(a, b) == 0) == (a == b)
    assert abs(len(a) - len(b)) <= edit_distance(a, b) <= max(len(a), len(b))
