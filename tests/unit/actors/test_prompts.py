"""Prompt files and the sampler. Rows 9 and 24 of the faults table start here: what cannot be scored is said at once."""

import datetime
import json
import pickle
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from actors.config import PromptsConfig
from actors.keeper import digest
from actors.preflight import PromptSets
from actors.prompts import Prompt, PromptFormat, PromptSampler, read_prompts, read_sources, shortages
from learner.errors import UserError

GENEVAL = {"tag": "counting", "include": [{"class": "cat", "count": 2}], "prompt": "two cats"}


def geneval_line(last: str) -> str:
    """A good line, with something added to it."""
    return json.dumps(GENEVAL)[:-1] + f", {last}" + "}\n"


def write(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def test_lines_become_prompts_with_ids_by_position(tmp_path: Path) -> None:
    path = write(tmp_path / "p.txt", 'a cat\r\na sign that says "A"\na cat\n')
    prompts = read_prompts(path, "lines", "general")
    assert [p.prompt_id for p in prompts] == ["general/0", "general/1", "general/2"]
    assert [p.text for p in prompts] == ["a cat", 'a sign that says "A"', "a cat"]
    assert all(p.source == "general" and p.metadata == {} for p in prompts)


def test_a_byte_order_mark_is_no_text_and_a_line_separator_is_no_line_end(tmp_path: Path) -> None:
    path = write(tmp_path / "p.txt", b"\xef\xbb\xbf" + "a\u2028b\nc".encode())
    assert [p.text for p in read_prompts(path, "lines", "s")] == ["a\u2028b", "c"]


def test_geneval_lines_keep_their_metadata(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", json.dumps(GENEVAL) + "\n")
    (prompt,) = read_prompts(path, "geneval", "geneval")
    assert prompt.text == "two cats"
    assert prompt.metadata == {"tag": "counting", "include": [{"class": "cat", "count": 2}]}


def test_parquet_has_prompts_and_metadata(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    pq.write_table(pa.table({"prompt": ["a", "b"], "metadata": ['{"target": "x"}', None]}), path)
    assert [p.metadata for p in read_prompts(path, "parquet", "s")] == [{"target": "x"}, {}]


@pytest.mark.parametrize(
    ("data", "file_format", "message"),
    [
        ("a\n\nb\n", "lines", "line 2: empty line"),
        ("a\n   \n", "lines", "line 2: empty line"),
        ("", "lines", "has no prompts"),
        (b"a\nb\xff\n", "lines", "line 2: not UTF-8 (byte 3 is 0xff)"),
        ('a\nsign ""\n', "lines", "line 2: the quoted text is empty"),
        ('sign "  "\n', "lines", "line 1: the quoted text is empty"),
        ("{broken\n", "geneval", "line 1: not JSON"),
        ("[1]\n", "geneval", "line 1: expected a JSON object, got list"),
        ('{"include": [{"class": "cat", "count": 1}]}\n', "geneval", "line 1: GenEval metadata has no `prompt`"),
        ('{"prompt": "x"}\n', "geneval", "line 1: GenEval metadata needs `include`"),
        ('{"prompt": "x", "include": []}\n', "geneval", "line 1: GenEval metadata needs `include`"),
        ('{"prompt": "x", "include": [{"class": "cat"}]}\n', "geneval", "include[0].count must be"),
        ('{"prompt": "x", "include": [{"class": "cat", "count": 0}]}\n', "geneval", "include[0].count must be"),
        ('{"prompt": "x", "include": [{"class": "cat", "count": true}]}\n', "geneval", "include[0].count must be"),
        (
            '{"prompt": "x", "include": [{"class": 5, "count": 1}]}\n',
            "geneval",
            "include[0].class must be a name, got 5",
        ),
        ('{"prompt": "x", "include": [{"class": "cat", "count": 1, "colr": "red"}]}\n', "geneval", "unknown keys colr"),
        ('{"prompt": "x", "include": [{"class": "cat", "count": 1, "color": 3}]}\n', "geneval", "color must be text"),
        ('{"prompt": "x", "include": {"class": "cat", "count": 1}}\n', "geneval", "include must be a list"),
        ('{"prompt": "x", "tag": 3, "include": [{"class": "cat", "count": 1}]}\n', "geneval", "tag must be a string"),
        (
            '{"prompt": "x", "include": [{"class": "a", "count": 1}, {"class": "b", "count": 1, '
            '"position": ["beside", 0]}]}\n',
            "geneval",
            "relation 'beside' is unknown; known are left of",
        ),
        (
            '{"prompt": "x", "include": [{"class": "a", "count": 1}], "exclude": [{"class": "a"}]}\n',
            "geneval",
            "exclude[0].count must be",
        ),
        ('{"prompt": "x", "text": 5, "include": [{"class": "a", "count": 1}]}\n', "geneval", "metadata text must be"),
        ("no parquet", "parquet", "not a Parquet file"),
        ("[" * 100_000 + "\n", "geneval", "line 1: not JSON (nested too deeply)"),
        ('{"prompt": ' * 100_000 + "\n", "geneval", "line 1: not JSON (nested too deeply)"),
        (geneval_line('"extra": ' + "[" * 40 + "]" * 40), "geneval", "line 1: metadata is nested more than 32 deep"),
        (geneval_line('"include": [{"class": "cat", "count": ' + "1" * 5000 + "}]"), "geneval", "a number is too long"),
        (geneval_line('"extra": "\\ud800"'), "geneval", "line 1: metadata.extra holds half a character"),
        (geneval_line('"prompt": "a \\udc00"'), "geneval", "line 1: the prompt holds half a character"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_broken_file_is_one_line_that_names_it(
    tmp_path: Path, data: bytes | str, file_format: PromptFormat, message: str
) -> None:
    path = write(tmp_path / "prompts.file", data)
    with pytest.raises(UserError) as caught:
        read_prompts(path, file_format, "s")
    assert message in str(caught.value)
    assert "prompts.file" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text": ["a"]}, "no column `prompt`, only text"),
        ({"prompt": ["a", ""]}, "row 2: empty prompt"),
        ({"prompt": ["a"], "metadata": ["{"]}, "row 1: metadata is not JSON"),
        ({"prompt": ["a"], "metadata": ["[]"]}, "row 1: metadata must be a JSON object, got list"),
        ({"prompt": [b"a"]}, "row 1: a prompt must be text, got b'a' (bytes)"),
        ({"prompt": [5]}, "row 1: a prompt must be text, got 5 (int)"),
        ({"prompt": ["a", None]}, "row 2: a prompt must be text, got None"),
        ({"prompt": ["a"], "metadata": [5]}, "row 1: metadata must be a JSON object, got int"),
        ({"prompt": ["a"], "metadata": ['{"include": 5}']}, "row 1: bad metadata: include must be a list"),
        ({"prompt": ["a"], "metadata": ['{"include": [{"class": "x"}]}']}, "row 1: bad metadata: include[0].count"),
        ({"prompt": ["a"], "metadata": [{"include": [{"class": "x", "count": 0}]}]}, "include[0].count"),
        ({"prompt": ["a"], "metadata": ['{"text": 5}']}, "row 1: bad metadata: metadata text must be a string"),
        ({"prompt": ["a"], "metadata": ["[" * 100_000]}, "row 1: metadata is not JSON (nested too deeply)"),
        ({"prompt": ["a"], "metadata": ['{"x": ' + "1" * 5000 + "}"]}, "metadata is not JSON (a number is too long"),
        (
            {"prompt": ["a"], "metadata": [{"when": datetime.date(2020, 1, 2)}]},
            "row 1: metadata.when is a date, which JSON has no form for",
        ),
        (
            {"prompt": ["a"], "metadata": [{"x": [b"\xff"]}]},
            "row 1: metadata.x[0] is a bytes, which JSON has no form for",
        ),
        ({"prompt": ["a"], "metadata": [{"x": Decimal("1.5")}]}, "row 1: metadata.x is a Decimal"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_broken_parquet_file_names_column_or_row(tmp_path: Path, columns: dict[str, list[Any]], message: str) -> None:
    path = tmp_path / "p.parquet"
    pq.write_table(pa.table(columns), path)
    with pytest.raises(UserError, match=r"p\.parquet") as caught:
        read_prompts(path, "parquet", "s")
    assert message in str(caught.value)


def test_metadata_that_passes_can_be_digested_and_sent(tmp_path: Path) -> None:
    """Row 5: every checkpoint takes a digest of it."""
    path = tmp_path / "p.parquet"
    note = {"include": [{"class": "cat", "count": 2, "color": None}], "size": 0.5, "deep": {"er": ["é"]}}
    pq.write_table(pa.table({"prompt": ["a"], "metadata": [note]}), path)
    prompts = read_prompts(path, "parquet", "s")
    assert prompts[0].metadata == note
    assert digest(PromptSets({"s": prompts}, prompts)) != digest(PromptSets({"s": prompts}, ()))
    assert pickle.loads(pickle.dumps(prompts)) == prompts


def test_text_of_a_parquet_file_that_is_no_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    broken = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"]).buffers())
    pq.write_table(pa.table({"prompt": broken}), path)
    with pytest.raises(UserError, match=r"p\.parquet: holds values that cannot be read"):
        read_prompts(path, "parquet", "s")


def test_quotes_that_do_not_pair_are_no_quoted_text(tmp_path: Path) -> None:
    path = write(tmp_path / "p.txt", 'a 5" pipe and "A" beside "B"\n')
    assert len(read_prompts(path, "lines", "s")) == 1


def test_every_unreadable_source_is_named(tmp_path: Path) -> None:
    good = write(tmp_path / "good.txt", "a\n")
    config = PromptsConfig.model_validate(
        {
            "sources": {
                "one": {"train": str(tmp_path / "none.txt"), "heldout": str(good)},
                "two": {"train": str(good), "heldout": str(good)},
                "three": {"train": str(write(tmp_path / "bad.txt", "\n")), "heldout": str(good)},
            }
        }
    )
    read, problems = read_sources(config, "train")
    assert list(read) == ["two"]
    assert len(problems) == 2
    assert "none.txt is not a file" in problems[0]


def make_sources(**sizes: int) -> dict[str, tuple[Prompt, ...]]:
    return {name: tuple(Prompt(f"{name}/{i}", name, f"{name} {i}") for i in range(n)) for name, n in sizes.items()}


def test_every_iteration_draws_equally_and_no_prompt_twice() -> None:
    sampler = PromptSampler(make_sources(a=7, b=11, c=3), 9, seed=1)
    for iteration in range(20):
        groups = sampler.groups(iteration)
        assert Counter(p.source for p in groups) == {"a": 3, "b": 3, "c": 3}
        assert len({p.prompt_id for p in groups}) == 9


def test_an_epoch_repeats_no_prompt_and_another_epoch_has_another_order() -> None:
    sampler = PromptSampler(make_sources(a=8), 2, seed=1)
    epochs = [[p.prompt_id for i in range(4 * e, 4 * e + 4) for p in sampler.groups(i)] for e in range(2)]
    assert all(sorted(epoch) == sorted(f"a/{i}" for i in range(8)) for epoch in epochs)
    assert epochs[0] != epochs[1]


def test_what_an_iteration_draws_depends_on_seed_and_iteration_only() -> None:
    """Row 5: resuming needs no sampler state."""
    first, second = (PromptSampler(make_sources(a=9, b=9), 4, seed=5) for _ in range(2))
    for iteration in range(5):
        first.groups(iteration)
    assert first.groups(5) == second.groups(5)
    assert PromptSampler(make_sources(a=9, b=9), 4, seed=6).groups(5) != second.groups(5)


def test_a_source_that_is_too_small_is_an_error_that_names_it() -> None:
    sources = make_sources(a=9, b=1)
    assert len(shortages(sources, 4)) == 1
    with pytest.raises(UserError, match="b has 1 training prompts, but each iteration draws 2"):
        PromptSampler(sources, 4, seed=1)
