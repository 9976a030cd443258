"""The formats of prompt files, good and broken. Rows 9 and 24 of the faults table start here: what cannot be scored is
said at once, with file and line."""

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from actors.prompt_files import MAX_SHOWN, PromptFileError, PromptFormat, read_rows

CAT = {"class": "cat", "count": 1}
LONG_NUMBER = '{"prompt": "x", "include": ' + "1" * 5000 + "}"


def write(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def geneval(**keys: Any) -> str:
    return json.dumps({"prompt": "x", **keys}) + "\n"


def deep(levels: int) -> list[Any]:
    """A list in a list in a list."""
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def lines_of(path: Path, file_format: PromptFormat) -> tuple[str, ...]:
    """What is wrong with a file, without its folder."""
    with pytest.raises(PromptFileError) as caught:
        read_rows(path, file_format)
    assert not any("\n" in line for line in caught.value.lines)
    return tuple(line.replace(f"{path.parent}/", "") for line in caught.value.lines)


def test_lines(tmp_path: Path) -> None:
    """OCR, general and DrawBench prompts: quotes of all kinds stay as they are."""
    path = write(tmp_path / "p.txt", 'a sign that says "OPEN 24h"\r\n  Artophagous. \nthe letters “LYDR”, a 5" pipe\n')
    assert read_rows(path, "lines") == [
        ('a sign that says "OPEN 24h"', {}),
        ("Artophagous.", {}),
        ('the letters “LYDR”, a 5" pipe', {}),
    ]


def test_a_byte_order_mark_is_no_text_and_a_line_separator_is_no_line_end(tmp_path: Path) -> None:
    path = write(tmp_path / "p.txt", b"\xef\xbb\xbf" + "a\u2028b\nc\x0bd\ne".encode())
    assert [text for text, _ in read_rows(path, "lines")] == ["a\u2028b", "c\x0bd", "e"]


def test_geneval_lines_of_every_tag(tmp_path: Path) -> None:
    """The published layout, its keys in another order too."""
    counting = {"tag": "counting", "include": [{"class": "cat", "count": 2}], "exclude": [{"class": "cat", "count": 3}]}
    position = {
        "include": [CAT, {"class": "tv remote", "count": 1, "color": "red", "position": ["left of", 0]}],
        "tag": "position",
    }
    path = write(tmp_path / "p.jsonl", "".join(geneval(**m) for m in (counting, position)))
    assert read_rows(path, "geneval") == [("x", counting), ("x", position)]


def test_parquet(tmp_path: Path) -> None:
    """Metadata as JSON text, as a struct with nulls for absent keys, or not at all."""
    as_text, as_struct, bare = (tmp_path / f"{name}.parquet" for name in ("text", "struct", "bare"))
    include = [{**CAT, "color": None}]
    pq.write_table(pa.table({"prompt": ["a", "b"], "metadata": [json.dumps({"include": include}), None]}), as_text)
    pq.write_table(pa.table({"prompt": ["a"], "metadata": [{"tag": "colors", "include": include}]}), as_struct)
    pq.write_table(pa.table({"prompt": ["a", "b"], "extra": [1, 2]}), bare)
    assert read_rows(as_text, "parquet") == [("a", {"include": include}), ("b", {})]
    ((text, metadata),) = read_rows(as_struct, "parquet")
    assert (text, metadata["tag"], dict(metadata["include"][0])) == ("a", "colors", include[0])
    assert read_rows(bare, "parquet") == [("a", {}), ("b", {})]


def test_rows_of_a_table_that_lack_a_key_of_others(tmp_path: Path) -> None:
    """FAULTS 9: OCR targets and GenEval clauses in one struct column, where every row has every key; null is none."""
    path, lines = tmp_path / "p.parquet", tmp_path / "p.jsonl"
    notes = [{"tag": "x", "include": [CAT]}, {"text": "OPEN"}, {}]
    pq.write_table(pa.table({"prompt": ["a", "b", "c"], "metadata": notes}), path)
    assert pq.read_table(path).column("metadata").to_pylist()[2] == {"tag": None, "include": None, "text": None}
    assert read_rows(path, "parquet") == [("a", notes[0]), ("b", notes[1]), ("c", {})]
    write(lines, geneval(include=[CAT], tag=None, text=None, exclude=None))
    assert read_rows(lines, "geneval") == [("x", {"include": [CAT]})]


def test_null_as_the_text_settles_nothing(tmp_path: Path) -> None:
    (line,) = lines_of(write(tmp_path / "p.jsonl", geneval(prompt='a ""', include=[CAT], text=None)), "geneval")
    assert "the quoted text is empty" in line


def test_other_columns_are_not_read(tmp_path: Path) -> None:
    """Datasets keep images beside their prompts, gigabytes of them; here they cannot even be unpacked."""
    path = tmp_path / "p.parquet"
    pq.write_table(pa.table({"image": [b"x" * 5000, b"y" * 5000], "prompt": ["a", "b"]}), path, use_dictionary=False)
    start = pq.ParquetFile(path).metadata.row_group(0).column(0).data_page_offset
    data = bytearray(path.read_bytes())
    data[start : start + 100] = b"\xff" * 100
    path.write_bytes(data)
    with pytest.raises(OSError, match=r".+"):
        pq.read_table(path)
    assert read_rows(path, "parquet") == [("a", {}), ("b", {})]


@pytest.mark.parametrize(
    ("data", "file_format", "message"),
    [
        ("a\n\nb\n", "lines", "line 2: empty line where a prompt was expected"),
        ("a\n   \n", "lines", "line 2: empty line"),
        ("", "lines", "p.file has no prompts"),
        (b"a\nb\xff\n", "lines", "line 2: not UTF-8 (byte 3 is 0xff)"),
        ('a\nsign ""\n', "lines", "line 2: the quoted text is empty"),
        ('sign "  "\n', "lines", "line 1: the quoted text is empty"),
        ('"A" beside ""\n', "lines", "line 1: the quoted text is empty"),
        ("", "geneval", "has no prompts"),
        ("\n", "geneval", "line 1: empty line"),
        ("{broken\n", "geneval", "line 1: not JSON (Expecting property name enclosed in double quotes at column"),
        ("[" * 100_000 + "\n", "geneval", "line 1: not JSON (nested too deeply)"),
        ('{"prompt": ' * 100_000 + "\n", "geneval", "line 1: not JSON (nested too deeply)"),
        (geneval(include=[CAT], extra=deep(40)), "geneval", "line 1: metadata is nested more than 32 deep"),
        (LONG_NUMBER + "\n", "geneval", "line 1: not JSON (a number is too long"),
        (geneval(include=[CAT], extra="\ud800"), "geneval", "line 1: metadata.extra holds half a character"),
        (geneval(include=[CAT], prompt="a \udc00"), "geneval", "line 1: the prompt holds half a character"),
        ("[1]\n", "geneval", "line 1: expected a JSON object, got list"),
        (b'{"prompt": "caf\xe9"}\n', "geneval", "line 1: not UTF-8"),
        (json.dumps({"include": [CAT]}) + "\n", "geneval", "line 1: GenEval metadata has no `prompt`"),
        (geneval(prompt=3, include=[CAT]), "geneval", "GenEval metadata has no `prompt`"),
        (geneval(prompt='a ""', include=[CAT]), "geneval", "line 1: the quoted text is empty"),
        (geneval(), "geneval", "line 1: GenEval metadata needs `include`"),
        (geneval(include=[]), "geneval", "line 1: GenEval metadata needs `include`"),
        (geneval(include="cat"), "geneval", "line 1: bad metadata: include must be a list of clauses, got 'cat'"),
        (geneval(include=CAT), "geneval", "line 1: bad metadata: include must be a list of clauses, got {'class'"),
        (geneval(include=["cat"]), "geneval", "include[0] must be a mapping with class and count, got 'cat'"),
        (geneval(include=[{**CAT, "count": True}]), "geneval", "include[0].count must be"),
        (
            geneval(include=[{"class": "cat"}]),
            "geneval",
            "include[0].count must be a whole number of at least 1, got None",
        ),
        (
            geneval(include=[{**CAT, "count": 0}]),
            "geneval",
            "include[0].count must be a whole number of at least 1, got 0",
        ),
        (
            geneval(include=[CAT, {**CAT, "count": -2}]),
            "geneval",
            "include[1].count must be a whole number of at least",
        ),
        (geneval(include=[{**CAT, "count": 1.5}]), "geneval", "got 1.5"),
        (geneval(include=[{**CAT, "count": "2"}]), "geneval", "got '2'"),
        (geneval(include=[{**CAT, "class": 7}]), "geneval", "include[0].class must be a name, got 7"),
        (geneval(include=[{**CAT, "colour": "red"}]), "geneval", "include[0] has unknown keys colour; known are class"),
        (geneval(include=[{**CAT, "color": 1}]), "geneval", "include[0].color must be text, got 1"),
        (geneval(include=[CAT, {**CAT, "position": ["left of", 1]}]), "geneval", "earlier clause (below 1), got 1"),
        (geneval(include=[CAT, {**CAT, "position": ["left of", -1]}]), "geneval", "earlier clause (below 1), got -1"),
        (geneval(include=[CAT, {**CAT, "position": ["beside", 0]}]), "geneval", "relation 'beside' is unknown"),
        (geneval(include=[CAT], exclude=[{**CAT, "count": -1}]), "geneval", "exclude[0].count must be"),
        (geneval(include=[CAT], tag=["counting"]), "geneval", "tag must be a string"),
        (geneval(include=[CAT], text=5), "geneval", "metadata text must be a string, got 5"),
        ("no parquet", "parquet", "not a Parquet file"),
        ("", "parquet", "not a Parquet file"),
    ],
)
def test_a_broken_file_is_one_line_that_names_it(
    tmp_path: Path, data: bytes | str, file_format: PromptFormat, message: str
) -> None:
    (line,) = lines_of(write(tmp_path / "p.file", data), file_format)
    assert message in line
    assert line.startswith("p.file")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text": ["a"]}, "p.parquet: no column `prompt`, only text"),
        ({"prompt": ["a", ""]}, "row 2: empty prompt"),
        ({"prompt": ["a", None]}, "row 2: a prompt must be text, got None"),
        ({"prompt": [1, 2]}, "row 1: a prompt must be text, got 1 (int)"),
        ({"prompt": [b"a"]}, "row 1: a prompt must be text, got b'a' (bytes)"),
        ({"prompt": ['a ""']}, "row 1: the quoted text is empty"),
        ({"prompt": ["a"], "metadata": ["{"]}, "row 1: metadata is not JSON"),
        ({"prompt": ["a"], "metadata": ["[]"]}, "row 1: metadata must be a JSON object, got list"),
        ({"prompt": ["a"], "metadata": [3]}, "row 1: metadata must be a JSON object, got int"),
        (
            {"prompt": ["a"], "metadata": ['{"include": [{"class": "cat", "count": -1}]}']},
            "row 1: bad metadata: include[0].count must",
        ),
        ({"prompt": ["a"], "metadata": ['{"include": 5}']}, "row 1: bad metadata: include must be a list"),
        ({"prompt": ["a"], "metadata": [{"include": [{"class": "x", "count": 0}]}]}, "include[0].count"),
        ({"prompt": ["a"], "metadata": ['{"text": 1}']}, "row 1: bad metadata: metadata text must be a string"),
        ({"prompt": ["a"], "metadata": ["[" * 100_000]}, "row 1: metadata is not JSON (nested too deeply)"),
        ({"prompt": ["a"], "metadata": [LONG_NUMBER]}, "row 1: metadata is not JSON (a number is too long"),
        (
            {"prompt": ["a"], "metadata": [{"when": datetime.date(2020, 1, 2)}]},
            "row 1: metadata.when is a date, which JSON has no form for",
        ),
        (
            {"prompt": ["a"], "metadata": [{"x": [b"\xff"]}]},
            "row 1: metadata.x[0] is a bytes, which JSON has no form for",
        ),
        ({"prompt": ["a"], "metadata": [{"x": Decimal("1.5")}]}, "row 1: metadata.x is a Decimal"),
        ({"prompt": pa.array([], pa.string())}, "p.parquet has no prompts"),
    ],
)
def test_a_broken_parquet_file_names_column_or_row(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    path = tmp_path / "p.parquet"
    pq.write_table(pa.table(columns), path)
    assert message in lines_of(path, "parquet")[0]


def test_a_parquet_file_that_is_no_table_of_prompts(tmp_path: Path) -> None:
    broken, twice = tmp_path / "broken.parquet", tmp_path / "twice.parquet"
    text = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"]).buffers())
    pq.write_table(pa.table({"prompt": text}), broken)
    pq.write_table(pa.Table.from_arrays([pa.array(["a"])] * 2, names=["prompt", "prompt"]), twice)
    assert lines_of(broken, "parquet")[0].startswith("broken.parquet: holds values that cannot be read (")
    assert lines_of(twice, "parquet") == ("twice.parquet: has 2 columns `prompt`",)


def test_every_broken_line_is_told_and_many_are_counted(tmp_path: Path) -> None:
    few = write(tmp_path / "few.txt", 'a\n\nb\nsign ""\n')
    assert lines_of(few, "lines") == (
        "few.txt, line 2: empty line where a prompt was expected",
        "few.txt, line 4: the quoted text is empty",
    )
    many = lines_of(write(tmp_path / "many.jsonl", "{\n" * 20), "geneval")
    assert len(many) == MAX_SHOWN + 1
    assert many[-1] == "many.jsonl: 15 more like these"


def test_quotes_that_do_not_pair_are_no_quoted_text(tmp_path: Path) -> None:
    path = write(tmp_path / "p.txt", 'a 5" pipe and "A" beside "B"\na lone " quote\n')
    assert len(read_rows(path, "lines")) == 2


def test_a_target_in_the_metadata_settles_what_empty_quotes_leave_open(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", geneval(prompt='a ""', include=[CAT], text="OPEN"))
    assert read_rows(path, "geneval")[0][1]["text"] == "OPEN"


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(PromptFileError, match="is not a file"):
        read_rows(tmp_path, "lines")
