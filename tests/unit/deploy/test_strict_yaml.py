"""YAML as recipes need it."""

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy import strict_yaml
from learner.errors import UserError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1E5", 1e5),
        ("-2.5e+3", -2500.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("3", 3),
        ("-3", -3),
        ("010", "010"),
        ("1:30", "1:30"),
        ("true", True),
        ("yes", "yes"),
        ("off", "off"),
        ("null", None),
        ("~", None),
        ("", None),
        ("'1e-4'", "1e-4"),
        ("2024-01-01", "2024-01-01"),
        ("[1, 2e-3, a]", [1, 2e-3, "a"]),
        ("{a: 1e-3}", {"a": 1e-3}),
        (".inf", math.inf),
    ],
)
def test_scalars(text: str, value: object) -> None:
    """Floats like 1e-4 are floats; octal, sexagesimal, yes/no and dates are not guessed."""
    read = strict_yaml.parse(text, "x")
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\nb:\n\tc: 2\n", "r.yaml:3: a tab where YAML wants spaces"),
        ("a: 1\nb: 2\na: 3\n", "r.yaml:3: key 'a' stands twice, first in line 1"),
        ("a:\n  x: 1\n  x: 2\n", "r.yaml:3: key 'x' stands twice, first in line 2"),
        ("a: 1\n3: 2\n", "r.yaml:2: keys must be plain text, got '3'"),
        ("a: [1, 2\n", "r.yaml:2: "),
        ("a: 1\n b: 2\n", "r.yaml:2: "),
        ("a: !!python/object/apply:os.getcwd []\n", "r.yaml:1: "),
        ("a: 'x\n", "r.yaml:2: "),
        ("--- 1\n--- 2\n", "r.yaml:2: "),
        ("a: *b\n", "r.yaml:1: "),
        ("run: &a {x: *a}\n", "r.yaml:1: a value that holds itself"),
        ("a: 1\nb: &b [1, [*b]]\n", "r.yaml:2: a value that holds itself"),
        ("a: &a {<<: *a}\n", "r.yaml:1: a value that holds itself"),
        ("a: !!binary aGk=\n", "r.yaml:1: tag !!binary is not allowed here"),
        ("a: !!set {x, y}\n", "r.yaml:1: tag !!set is not allowed here"),
        ("a: !!omap [x: 1]\n", "r.yaml:1: tag !!omap is not allowed here"),
        ("a: !!timestamp 2024-01-01\n", "r.yaml:1: tag !!timestamp is not allowed here"),
        ("a: !mine 3\n", "r.yaml:1: tag !mine is not allowed here"),
        ("a: !!map [1]\n", "r.yaml:1: tag !!map is not allowed here"),
        ("a: !!int x\n", "r.yaml:1: 'x' is no int"),
        ("a: !!int 0x10\n", "r.yaml:1: '0x10' is no int"),
        ("a: !!float x\n", "r.yaml:1: 'x' is no float"),
        ("a: !!bool yes\n", "r.yaml:1: 'yes' is no bool"),
        ("a: !!null x\n", "r.yaml:1: 'x' is no null"),
        ("a: 1\nb: " + "9" * 5000 + "\n", "r.yaml:2: 999999999999999999999999... is more than 64 bits hold"),
        ("a: 9223372036854775808\n", "r.yaml:1: 9223372036854775808 is more than 64 bits hold"),
        ('a: 1\nb: "\\ud800"\n', "r.yaml:2: '\\ud800' holds half a character"),
        ('"\\ud800": 1\n', "holds half a character"),
        ('a: "\\UFFFFFFFF"\n', "r.yaml:1: "),
        ("a: " + "[" * 5000 + "]" * 5000 + "\n", "r.yaml: nested too deeply"),
        ("- 1\n", "r.yaml: a recipe is a mapping of sections, got a list"),
        ("", "r.yaml: a recipe is a mapping of sections, got nothing"),
    ],
)
def test_errors_are_one_line_with_the_line_number(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        strict_yaml.load(path)
    message = str(caught.value)
    assert says in message
    assert "\n" not in message


def test_unreadable_files(tmp_path: Path) -> None:
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"a: 1\nb: caf\xe9\n")
    with pytest.raises(UserError, match=r"latin\.yaml:2: not UTF-8 \(byte 0xe9\)"):
        strict_yaml.load(latin)
    bell = tmp_path / "bell.yaml"
    bell.write_bytes(b"a: 1\nb: \x07\n")
    with pytest.raises(UserError, match=r"bell\.yaml:2: "):
        strict_yaml.load(bell)
    with pytest.raises(UserError, match=r"none\.yaml: no such file"):
        strict_yaml.load(tmp_path / "none.yaml")
    with pytest.raises(UserError, match="is a directory"):
        strict_yaml.load(tmp_path)


def test_an_alias_of_aliases_that_means_millions_is_refused() -> None:
    """Ten lines that would fill the memory."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(UserError, match="more than 100000 values"):
        strict_yaml.parse("\n".join(lines), "x")


def test_tags_that_say_what_is_there_anyway_are_fine() -> None:
    text = (
        "a: !!int 3\nb: !!float 3\nc: !!str 3\nd: !!map {x: !!bool true}\ne: !!seq [!!null ]\nf: 9223372036854775807\n"
    )
    expected = {"a": 3, "b": 3.0, "c": "3", "d": {"x": True}, "e": [None], "f": 2**63 - 1}
    assert strict_yaml.parse(text, "x") == expected


def test_merge_keys_work() -> None:
    assert strict_yaml.parse("a: &a {x: 1}\nb: {<<: *a, y: 2}\n", "x")["b"] == {"x": 1, "y": 2}


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**9), 10**9),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12),
    st.sampled_from(["1e-4", "yes", "on", "0x1", "010", "null", "true", "1:30", "a: b", "#"]),
)
KEYS = st.text("abcdef_", min_size=1, max_size=4)


@settings(deadline=None)  # a busy machine is no failure
@given(
    st.dictionaries(
        KEYS,
        st.recursive(SCALARS, lambda c: st.lists(c, max_size=3) | st.dictionaries(KEYS, c, max_size=3), max_leaves=6),
        max_size=4,
    )
)
def test_what_is_dumped_reads_back_the_same(data: dict[str, object]) -> None:
    """config.yaml of a run is read again on resume."""
    back = strict_yaml.parse(strict_yaml.dump(data), "x") or {}
    assert back == data
    assert repr(back) == repr(data)
