"""What stands on the page, as data: blocks of text, tables and plots. The template only lays them out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from deploy.report.drawing.svg import Drawing


@dataclass(frozen=True)
class Cell:
    """One cell of a table."""

    text: str
    tone: str = ""
    """`good` or `bad`, said by sign and by colour; `faint`; `trained`; else empty."""
    error: str = ""
    """Of the number; stands under it."""


@dataclass(frozen=True)
class Table:
    """Rows of text. The first column names the row."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    words: bool = False
    """Whether the cells are words, which stand at the left, and not numbers."""
    folded: bool = False
    """Whether only its caption is to be seen at first."""


@dataclass(frozen=True)
class Block:
    """One titled part of the page."""

    id: str
    title: str
    text: str = ""
    drawings: tuple[Drawing, ...] = ()
    tables: tuple[Table, ...] = ()
    warnings: tuple[str, ...] = ()
    """What the reader should look into."""
    missing: tuple[str, ...] = ()
    """What the reader does not get to see here, and why."""
    code: str = ""
    """Folded away."""


def percent(share: float) -> str:
    """A share for people; a dash where it is not known."""
    return f"{share:.1%}" if math.isfinite(share) else "-"


def signed(value: float, digits: int = 3) -> str:
    """A number with its sign; a dash where it is not known."""
    return f"{value:+.{digits}f}".replace("-", "\N{MINUS SIGN}") if math.isfinite(value) else "-"


def row(*texts: str | Cell) -> tuple[Cell, ...]:
    """A table's row."""
    return tuple(text if isinstance(text, Cell) else Cell(text) for text in texts)


def table(
    columns: Sequence[str],
    rows: Sequence[tuple[Cell, ...]],
    caption: str = "",
    *,
    words: bool = False,
    folded: bool = False,
) -> Table:
    """A table."""
    return Table(tuple(columns), tuple(rows), caption, words, folded)
