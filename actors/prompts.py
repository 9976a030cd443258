"""Prompt files in, prompt groups out.

A prompt's identity is its id (`source/index`), never its text: two sources may share a sentence. What is wrong with a
file is said in one line that names the file and the line, before anything runs.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from actors.config import PromptsConfig
from learner import json_text
from learner.errors import UserError
from rewards.contract import Metadata
from rewards.geneval_metadata import parse_spec
from rewards.matching import text_target

PromptFormat = Literal["lines", "geneval", "parquet"]
Split = Literal["train", "heldout"]
MAX_DEPTH = 32
"""Of metadata; GenEval's is 4 deep, and what is far deeper can be read but neither written nor sent."""


@dataclass(frozen=True)
class Prompt:
    """One prompt of one source."""

    prompt_id: str
    """`source/index`, the index counting from 0 in its file."""
    source: str
    text: str
    metadata: Metadata = field(default_factory=dict)
    """What the file says beyond the text (GenEval's include, exclude and tag); empty for plain lines."""


def read_prompts(path: str | Path, file_format: PromptFormat, source: str) -> tuple[Prompt, ...]:
    """All prompts of one file, in its order.

    Raises:
        UserError: the file is missing or empty, or a line of it is not a prompt; names file and line.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"prompt source {source}: {path} is not a file")
    rows = _parquet_rows(path) if file_format == "parquet" else _line_rows(path, file_format)
    if not rows:
        raise UserError(f"prompt source {source}: {path} has no prompts")
    return tuple(Prompt(f"{source}/{i}", source, text, metadata) for i, (text, metadata) in enumerate(rows))


def read_sources(config: PromptsConfig, split: Split) -> tuple[dict[str, tuple[Prompt, ...]], list[str]]:
    """One split of every source, and the problems of those that could not be read (all of them, not only the first)."""
    read: dict[str, tuple[Prompt, ...]] = {}
    problems: list[str] = []
    for name, source in config.sources.items():
        try:
            read[name] = read_prompts(source.train if split == "train" else source.heldout, source.format, name)
        except UserError as error:
            problems.append(str(error))
    return read, problems


def _line_rows(path: Path, file_format: PromptFormat) -> list[tuple[str, Metadata]]:
    """(text, metadata) of each line."""
    rows: list[tuple[str, Metadata]] = []
    for number, line in enumerate(_decoded_lines(path), start=1):
        where = f"{path}, line {number}"
        if not line.strip():
            raise UserError(f"{where}: empty line where a prompt was expected")
        rows.append(_geneval_row(line, where) if file_format == "geneval" else (line.strip(), {}))
        _refuse_empty_quotes(rows[-1][0], where)
    return rows


def _decoded_lines(path: Path) -> list[str]:
    """Lines of a UTF-8 file without their ends; a final line end adds none."""
    try:
        data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")  # some editors mark UTF-8 with three bytes
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}, line {line}: not UTF-8 (byte {error.start} is 0x{data[error.start]:02x})") from error
    # str.splitlines would also break at characters that are part of a prompt (U+2028, form feed).
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines[:-1] if lines[-1] == "" else lines


def _geneval_row(line: str, where: str) -> tuple[str, Metadata]:
    """(text, metadata) of one of GenEval's JSON lines."""
    try:
        row = json_text.parse(line)
    except ValueError as error:
        raise UserError(f"{where}: not JSON ({error})") from error
    if not isinstance(row, dict):
        raise UserError(f"{where}: expected a JSON object, got {type(row).__name__}")
    text = row.get("prompt")
    if not isinstance(text, str) or not text.strip():
        raise UserError(f"{where}: GenEval metadata has no `prompt` (or an empty one)")
    if not row.get("include"):
        raise UserError(f"{where}: GenEval metadata needs `include`, a list of objects with `class` and `count`")
    metadata = {key: value for key, value in row.items() if key != "prompt"}
    _refuse_strange(metadata, where)
    return _text(text, where), _checked(metadata, where)


def _text(text: str, where: str) -> str:
    """The prompt as it is drawn."""
    if not json_text.is_unicode(text):
        raise UserError(f"{where}: the prompt holds half a character (a surrogate), which no encoding has")
    return text.strip()


def _refuse_strange(value: Any, where: str, at: str = "metadata", depth: int = 1) -> None:
    """Metadata travels between processes and into a checkpoint's digest: plain JSON of a moderate depth.

    Raises:
        UserError: it is not; names the key.
    """
    if depth > MAX_DEPTH:
        raise UserError(f"{where}: metadata is nested more than {MAX_DEPTH} deep, at {at[:80]}")
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise UserError(f"{where}: {at} has a key {key!r}, which is no text")
            _refuse_strange(key, where, f"a key of {at}", depth + 1)
            _refuse_strange(item, where, f"{at}.{key}", depth + 1)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _refuse_strange(item, where, f"{at}[{index}]", depth + 1)
    elif isinstance(value, str):
        if not json_text.is_unicode(value):
            raise UserError(f"{where}: {at} holds half a character (a surrogate), which no encoding has")
    elif not isinstance(value, int | float | None):
        raise UserError(f"{where}: {at} is a {type(value).__name__}, which JSON has no form for")


def _checked(metadata: Metadata, where: str) -> Metadata:
    """The metadata themselves, if a scorer could read them; its own classes and colours are known once it is up."""
    try:
        text_target("", metadata)
        parse_spec(metadata, None, None)
    except ValueError as error:
        raise UserError(f"{where}: bad metadata: {error}") from error
    return metadata


def _refuse_empty_quotes(text: str, where: str) -> None:
    """A text in straight double quotes is what an OCR reward looks for; an empty one can never be found."""
    parts = text.split('"')
    quoted = parts[1 : len(parts) - 1 : 2]
    if any(not part.strip() for part in quoted):
        raise UserError(f"{where}: the quoted text is empty")


def _parquet_rows(path: Path) -> list[tuple[str, Metadata]]:
    """(text, metadata) of each row; columns `prompt` and, where there is one, `metadata` (JSON text)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path}: not a Parquet file ({str(error).splitlines()[0]})") from error
    for column in ("prompt", "metadata"):
        if table.column_names.count(column) > 1:
            raise UserError(f"{path}: has {table.column_names.count(column)} columns `{column}`")
    if "prompt" not in table.column_names:
        raise UserError(f"{path}: no column `prompt`, only {', '.join(table.column_names)}")
    try:
        texts = table.column("prompt").to_pylist()
        notes = table.column("metadata").to_pylist() if "metadata" in table.column_names else [None] * len(texts)
    except (pa.ArrowException, ValueError) as error:  # text that is no UTF-8, dates out of Python's range
        raise UserError(f"{path}: holds values that cannot be read ({' '.join(str(error).split())})") from error
    rows: list[tuple[str, Metadata]] = []
    for number, (text, note) in enumerate(zip(texts, notes, strict=True), start=1):
        where = f"{path}, row {number}"
        if not isinstance(text, str):
            raise UserError(f"{where}: a prompt must be text, got {text!r:.60} ({type(text).__name__})")
        if not text.strip():
            raise UserError(f"{where}: empty prompt")
        _refuse_empty_quotes(text, where)
        rows.append((_text(text, where), _parquet_metadata(note, where)))
    return rows


def _parquet_metadata(note: Any, where: str) -> Metadata:
    """The `metadata` cell of one row as a mapping."""
    if note is None or note == "":
        return {}
    try:
        value = json_text.parse(note) if isinstance(note, str) else note
    except ValueError as error:
        raise UserError(f"{where}: metadata is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise UserError(f"{where}: metadata must be a JSON object, got {type(value).__name__}")
    _refuse_strange(value, where)
    return _checked(value, where)


class PromptSampler:
    """Which prompts an iteration draws: a function of (seed, iteration) and nothing else, so resume needs no state."""

    def __init__(self, sources: Mapping[str, Sequence[Prompt]], groups_per_iteration: int, seed: int) -> None:
        """Draw equally from every source.

        Raises:
            UserError: a source has fewer prompts than one iteration draws from it.
        """
        self._sources = {name: tuple(prompts) for name, prompts in sources.items()}
        self._per_source = groups_per_iteration // len(self._sources)
        self._seed = seed
        problems = shortages(self._sources, groups_per_iteration)
        if problems:
            raise UserError("; ".join(problems))

    def groups(self, iteration: int) -> tuple[Prompt, ...]:
        """The prompts of one iteration, all distinct, sources taking turns so that every rank sees a mix."""
        drawn = [self._drawn(name, iteration) for name in self._sources]
        return tuple(prompts[i] for i in range(self._per_source) for prompts in drawn)

    def _drawn(self, name: str, iteration: int) -> list[Prompt]:
        """This iteration's prompts of one source: the next stretch of the epoch's shuffled order.

        An epoch ends early rather than run over into the next one, whose order could repeat a prompt within the
        iteration; the few left over differ from epoch to epoch.
        """
        prompts = self._sources[name]
        iterations_per_epoch = len(prompts) // self._per_source
        epoch, position = divmod(iteration, iterations_per_epoch)
        digest = hashlib.sha256(f"prompts\0{self._seed}\0{name}\0{epoch}".encode()).digest()
        order = np.random.default_rng(int.from_bytes(digest[:16], "little")).permutation(len(prompts))
        start = position * self._per_source
        return [prompts[i] for i in order[start : start + self._per_source]]


def shortages(sources: Mapping[str, Sequence[Prompt]], groups_per_iteration: int) -> list[str]:
    """One line for each source that is too small for the distinct prompts an iteration draws from it."""
    wanted = groups_per_iteration // max(1, len(sources))
    return [
        f"prompt source {name} has {len(prompts)} training prompts, but each iteration draws {wanted} distinct ones"
        for name, prompts in sources.items()
        if len(prompts) < wanted
    ]
