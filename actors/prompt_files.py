"""The formats of prompt files, and everything that is wrong with one, a line each.

lines: one prompt a line (OCR, general and DrawBench prompts). geneval: GenEval's JSON lines. parquet: columns `prompt`
and, where there is one, `metadata`. docs/prompts.md has the rules.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from learner import json_text
from learner.errors import UserError
from rewards.contract import Metadata
from rewards.geneval_metadata import parse_spec
from rewards.matching import text_target

PromptFormat = Literal["lines", "geneval", "parquet"]
Row = tuple[str, Metadata]
"""Text and metadata of one prompt."""

MAX_DEPTH = 32
"""Of metadata; GenEval's is 4 deep, and what is far deeper can be read but neither written nor sent."""
MAX_SHOWN = 5
"""Broken lines of one file that are told one by one; the rest are counted."""
_COLUMNS = ("prompt", "metadata")
"""Of a Parquet file."""


class PromptFileError(UserError):
    """A prompt file cannot be used; `lines` has every reason."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("; ".join(lines))
        self.lines = tuple(lines)


def read_rows(path: Path, file_format: PromptFormat) -> list[Row]:
    """The prompts of one file, in its order.

    Raises:
        PromptFileError: the file cannot be read, is empty, or has lines that are no prompts; names file and line.
    """
    if not path.is_file():
        raise PromptFileError([f"{path} is not a file"])
    if file_format == "parquet":
        rows = _rows(_parquet_cells(path), lambda cells: _parquet_row(*cells), f"{path}, row")
    else:
        parse = _geneval_row if file_format == "geneval" else _plain_row
        rows = _rows(_decoded_lines(path), parse, f"{path}, line")
    if not rows:
        raise PromptFileError([f"{path} has no prompts"])
    return rows


def capped(problems: Sequence[str], what: str) -> list[str]:
    """The first few of many problems, and how many `what` there are more."""
    more = len(problems) - MAX_SHOWN
    return [*problems[:MAX_SHOWN], f"{what}: {more} more like these"] if more > 0 else list(problems)


def _rows(cells: Iterable[Any], parse: Callable[[Any], Row], where: str) -> list[Row]:
    rows: list[Row] = []
    problems: list[str] = []
    for number, cell in enumerate(cells, start=1):
        try:
            text, metadata = parse(cell)
            _check(text, metadata)
            rows.append((text.strip(), metadata))
        except ValueError as error:
            problems.append(f"{where} {number}: {error}")
    if problems:
        raise PromptFileError(capped(problems, where.rpartition(",")[0]))
    return rows


def _plain_row(line: str) -> Row:
    if not line.strip():
        raise ValueError("empty line where a prompt was expected")
    return line, {}


def _geneval_row(line: str) -> Row:
    """One of GenEval's JSON lines."""
    if not line.strip():
        raise ValueError("empty line where a prompt was expected")
    try:
        row = json_text.parse(line)
    except ValueError as error:
        raise ValueError(f"not JSON ({error})") from error
    if not isinstance(row, dict):
        raise ValueError(f"expected a JSON object, got {type(row).__name__}")
    text = row.pop("prompt", None)
    if not isinstance(text, str) or not text.strip():
        raise ValueError("GenEval metadata has no `prompt` (or an empty one)")
    if not row.get("include"):
        raise ValueError("GenEval metadata needs `include`, a list of objects with `class` and `count`")
    return text, _present(row)


def _parquet_row(text: Any, note: Any) -> Row:
    if not isinstance(text, str):
        raise ValueError(f"a prompt must be text, got {text!r:.60} ({type(text).__name__})")
    if not text.strip():
        raise ValueError("empty prompt")
    if note is None or note == "":
        return text, {}
    try:
        metadata = json_text.parse(note) if isinstance(note, str) else note
    except ValueError as error:
        raise ValueError(f"metadata is not JSON ({error})") from error
    if not isinstance(metadata, dict):
        raise ValueError(f"metadata must be a JSON object, got {type(metadata).__name__}")
    return text, _present(metadata)


def _present(metadata: Mapping[str, Any]) -> Metadata:
    """Without the keys that are null: a table has every key in every row, null where a row does not have it."""
    return {key: value for key, value in metadata.items() if value is not None}


def _check(text: str, metadata: Metadata) -> None:
    """Refuses what could not be drawn, sent or scored; the detector's own classes and colours are known later."""
    if not json_text.is_unicode(text):
        raise ValueError("the prompt holds half a character (a surrogate), which no encoding has")
    _refuse_strange(metadata)
    try:
        text_target(text, metadata)
        parse_spec(metadata, None, None)
    except ValueError as error:
        raise ValueError(f"bad metadata: {error}") from error
    # A text in straight double quotes is what an OCR reward looks for; an empty one can never be found.
    parts = text.split('"')
    if metadata.get("text") is None and any(not part.strip() for part in parts[1 : len(parts) - 1 : 2]):
        raise ValueError("the quoted text is empty")


def _refuse_strange(value: Any, at: str = "metadata", depth: int = 1) -> None:
    """Metadata travels between processes and into a checkpoint's digest: plain JSON of a moderate depth.

    Raises:
        ValueError: it is not; names the key.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"metadata is nested more than {MAX_DEPTH} deep, at {at[:80]}")
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise ValueError(f"{at} has a key {key!r}, which is no text")
            _refuse_strange(key, f"a key of {at}", depth + 1)
            _refuse_strange(item, f"{at}.{key}", depth + 1)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _refuse_strange(item, f"{at}[{index}]", depth + 1)
    elif isinstance(value, str):
        if not json_text.is_unicode(value):
            raise ValueError(f"{at} holds half a character (a surrogate), which no encoding has")
    elif not isinstance(value, int | float | None):
        raise ValueError(f"{at} is a {type(value).__name__}, which JSON has no form for")


def _decoded_lines(path: Path) -> list[str]:
    """Lines of a UTF-8 file without their ends; a final line end adds none."""
    try:
        data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")  # some editors mark UTF-8 with three bytes
    except OSError as error:
        raise PromptFileError([f"{path}: cannot be read ({error.strerror})"]) from error
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        said = f"{path}, line {line}: not UTF-8 (byte {error.start} is 0x{data[error.start]:02x})"
        raise PromptFileError([said]) from error
    # str.splitlines would also break at characters that are part of a prompt (U+2028, form feed).
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines[:-1] if lines[-1] == "" else lines


def _parquet_cells(path: Path) -> list[tuple[Any, Any]]:
    """(prompt, metadata) of each row."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Not read_table: a folder name like `split=train` on the way is no column.
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            _check_columns(path, names)
            # Tables of prompts may hold their images too, which nobody asks for here.
            table = file.read(columns=[name for name in _COLUMNS if name in names])
    except (pa.ArrowException, OSError) as error:
        raise PromptFileError([f"{path}: not a Parquet file ({str(error).splitlines()[0]})"]) from error
    try:
        texts = table.column("prompt").to_pylist()
        notes = table.column("metadata").to_pylist() if "metadata" in names else [None] * len(texts)
    except (pa.ArrowException, ValueError) as error:  # text that is no UTF-8, dates out of Python's range
        raise PromptFileError([f"{path}: holds values that cannot be read ({' '.join(str(error).split())})"]) from error
    return list(zip(texts, notes, strict=True))


def _check_columns(path: Path, names: Sequence[str]) -> None:
    for column in _COLUMNS:
        if names.count(column) > 1:
            raise PromptFileError([f"{path}: has {names.count(column)} columns `{column}`"])
    if "prompt" not in names:
        raise PromptFileError([f"{path}: no column `prompt`, only {', '.join(names)}"])
