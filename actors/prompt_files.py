"""The formats of prompt files, and everything that is wrong with one, a line each.

lines: one prompt a line (OCR, general and DrawBench prompts). geneval: GenEval's JSON lines. parquet: columns `prompt`
and, where there is one, `metadata`. docs/prompts.md has the rules.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from learner.errors import UserError
from rewards.contract import Metadata
from rewards.geneval_metadata import parse_spec
from rewards.matching import text_target

PromptFormat = Literal["lines", "geneval", "parquet"]
Row = tuple[str, Metadata]
"""Text and metadata of one prompt."""

MAX_SHOWN = 5
"""Broken lines of one file that are told one by one; the rest are counted."""


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
            _check_quotes(text, metadata)
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
    row = _json_object(line, "line")
    text = row.pop("prompt", None)
    if not isinstance(text, str) or not text.strip():
        raise ValueError("GenEval metadata has no `prompt` (or an empty one)")
    if parse_spec(row, None, None) is None:
        raise ValueError("GenEval metadata needs `include`, a list of objects with `class` and `count`")
    return text, row


def _parquet_row(text: Any, note: Any) -> Row:
    if not isinstance(text, str) or not text.strip():
        raise ValueError("empty prompt" if text is None or isinstance(text, str) else f"prompt {text!r} is no text")
    metadata = note if isinstance(note, Mapping) else _json_object(note, "metadata") if note else {}
    parse_spec(metadata, None, None)
    return text, metadata


def _json_object(text: Any, what: str) -> dict[str, Any]:
    if not isinstance(text, str):
        raise ValueError(f"{what} must be JSON text or a struct, got {type(text).__name__}")
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{what} is not JSON ({error.msg} at column {error.colno})") from error
    except RecursionError:
        raise ValueError(f"{what} is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(f"{what} must be a JSON object, got {type(value).__name__}")
    return value


def _check_quotes(text: str, metadata: Metadata) -> None:
    """Refuses what leaves open which text an image should show: an empty pair of quotes, a target that is no text."""
    text_target(text, metadata)
    parts = text.split('"')
    if "text" not in metadata and any(not part.strip() for part in parts[1 : len(parts) - 1 : 2]):
        raise ValueError("the quoted text is empty")


def _decoded_lines(path: Path) -> list[str]:
    """Lines of a UTF-8 file without their ends; a final line end adds none."""
    data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")  # some editors mark UTF-8 with three bytes
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
        # partitioning: a folder name like `split=train` on the way is no column.
        table = pq.read_table(path, partitioning=None)
    except (pa.ArrowInvalid, OSError) as error:
        raise PromptFileError([f"{path}: not a Parquet file ({str(error).splitlines()[0]})"]) from error
    if "prompt" not in table.column_names:
        raise PromptFileError([f"{path}: no column `prompt`, only {', '.join(table.column_names)}"])
    texts = table.column("prompt").to_pylist()
    notes = table.column("metadata").to_pylist() if "metadata" in table.column_names else [None] * len(texts)
    return list(zip(texts, notes, strict=True))
