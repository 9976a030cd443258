"""Pictures of the same held-out prompts, before and after and across runs, by prompt source."""

from collections.abc import Sequence
from dataclasses import dataclass

from deploy.progress.view import number
from deploy.report.blocks import Table, row, table
from deploy.report.numbers.replicates import Replicates
from deploy.report.numbers.specialists import sources_in_order
from deploy.report.pictures import Picture, PictureSet, data_uri, side_of
from deploy.report.reading import RunRecord

SMALL_SIDE = 128
"""Pixels up to which a picture is enlarged with hard edges."""


@dataclass(frozen=True)
class Shown:
    """One picture of a card."""

    label: str
    uri: str
    alt: str
    small: bool
    """Whether it is shown larger than it is, whose pixels are then to be seen."""


@dataclass(frozen=True)
class Card:
    """One prompt with its pictures and their scores."""

    prompt: str
    pictures: tuple[Shown, ...]
    scores: Table


@dataclass(frozen=True)
class Gallery:
    """The prompts of one source."""

    source: str
    cards: tuple[Card, ...]


@dataclass(frozen=True)
class Galleries:
    """All pictures of the page."""

    sources: tuple[Gallery, ...]
    note: str
    """What is left out on purpose."""
    missing: tuple[str, ...]


@dataclass(frozen=True)
class _Column:
    """One evaluation of one run."""

    label: str
    pictures: dict[str, Picture]


def galleries(records: Sequence[RunRecord], groups: Sequence[Replicates]) -> Galleries:
    """Base and newest pictures of every run. Runs whose base pictures are the same share one column of them.

    Beside other recipes, a recipe under several seeds has one column, of the first: methods are what is compared.
    """
    note = ""
    if len(groups) > 1 and any(len(group.indices) > 1 for group in groups):
        records = [records[group.indices[0]] for group in groups]
        note = "Of several seeds of a recipe, the first is shown."
    missing: list[str] = []
    columns: list[_Column] = []
    for record in records:
        who = f"{record.label}: " if len(records) > 1 else ""
        base = next((one for one in record.pictures if one.done == 0 and one.pictures), None)
        last = next((one for one in reversed(record.pictures) if one.done > 0 and one.pictures), None)
        if base is None and last is None:
            missing.append(f"{who}No pictures: the run has not been evaluated yet, or they were removed.")
        elif base is None:
            missing.append(f"{who}No pictures of the base.")
        elif last is None:
            missing.append(f"{who}No pictures of a later evaluation yet.")
        if base is not None and not any(_same(base, column) for column in columns):
            columns.append(_Column("base" if not columns else f"{who}base", _by_id(base)))
        if last is not None:
            columns.append(_Column(f"{who}after {last.done}", _by_id(last)))
    return Galleries(tuple(_gallery(source, columns) for source in _sources(columns)), note, tuple(missing))


def _by_id(one: PictureSet) -> dict[str, Picture]:
    return {picture.prompt_id: picture for picture in one.pictures}


def _same(base: PictureSet, column: _Column) -> bool:
    """Whether these are the pictures of a column, to the byte."""
    mine = _by_id(base)
    return mine.keys() == column.pictures.keys() and all(
        mine[i].prompt == other.prompt and mine[i].path.read_bytes() == other.path.read_bytes()
        for i, other in column.pictures.items()
    )


def _sources(columns: Sequence[_Column]) -> list[str]:
    return sources_in_order([picture.source for column in columns for picture in column.pictures.values()])


def _gallery(source: str, columns: Sequence[_Column]) -> Gallery:
    """A card for each prompt that any column shows; a prompt is its id and its text."""
    keys = dict.fromkeys(
        (picture.prompt_id, picture.prompt)
        for column in columns
        for picture in column.pictures.values()
        if picture.source == source
    )
    return Gallery(source, tuple(_card(prompt_id, prompt, columns) for prompt_id, prompt in keys))


def _card(prompt_id: str, prompt: str, columns: Sequence[_Column]) -> Card:
    found = [(column, column.pictures[prompt_id]) for column in columns if prompt_id in column.pictures]
    found = [(column, picture) for column, picture in found if picture.prompt == prompt]
    shown = tuple(_shown(c.label, p) for c, p in found)
    names = list(dict.fromkeys(name for _, picture in found for name in picture.scores))
    rows = [row(name, *(number(p.scores.get(name, float("nan"))) for _, p in found)) for name in names]
    return Card(prompt, shown, table(("score", *(column.label for column, _ in found)), rows))


def _shown(label: str, picture: Picture) -> Shown:
    return Shown(label, data_uri(picture.path), f"{label}: {picture.prompt}", side_of(picture.path) <= SMALL_SIDE)
