"""What stands on the page, as data: blocks of text, tables and plots. The template only lays them out."""

from collections.abc import Sequence
from dataclasses import dataclass

from deploy.report.drawing.svg import Drawing


@dataclass(frozen=True)
class Cell:
    """One cell of a table."""

    text: str
    tone: str = ""
    """`good` or `bad`, said by sign and by colour; `faint`; else empty."""


@dataclass(frozen=True)
class Table:
    """Rows of text. The first column names the row."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    words: bool = False
    """Whether the cells are words, which stand at the left, and not numbers."""


@dataclass(frozen=True)
class Block:
    """One titled part of the page."""

    id: str
    title: str
    text: str = ""
    drawings: tuple[Drawing, ...] = ()
    tables: tuple[Table, ...] = ()
    missing: tuple[str, ...] = ()
    """What the reader does not get to see here, and why."""
    code: str = ""
    """Folded away."""


def row(*texts: str | Cell) -> tuple[Cell, ...]:
    """A table's row."""
    return tuple(text if isinstance(text, Cell) else Cell(text) for text in texts)


def table(columns: Sequence[str], rows: Sequence[tuple[Cell, ...]], caption: str = "", words: bool = False) -> Table:
    """A table."""
    return Table(tuple(columns), tuple(rows), caption, words)
