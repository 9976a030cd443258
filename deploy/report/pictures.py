"""Held-out pictures of a run, as deploy/progress/pictures.py left them, and as parts of a page."""

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from deploy.errors import one_line
from deploy.progress.pictures import INDEX
from learner import json_text

MAX_SIDE = 384
"""Longer pictures are made smaller, pixels: twice what a page shows, for screens of double density."""
WEBP_QUALITY = 88


@dataclass(frozen=True)
class Picture:
    """One kept image of an evaluation."""

    prompt_id: str
    source: str
    prompt: str
    path: Path
    scores: Mapping[str, float]


@dataclass(frozen=True)
class PictureSet:
    """The kept images of one evaluation."""

    done: int
    """Iterations done; 0 is the base."""
    pictures: tuple[Picture, ...]


def read_pictures(samples_dir: Path) -> tuple[tuple[PictureSet, ...], tuple[str, ...]]:
    """Every evaluation's pictures in order, and a line for each that cannot be read."""
    sets: list[PictureSet] = []
    problems: list[str] = []
    folders = [path for path in samples_dir.glob("*") if path.name.isdecimal() and path.name.isascii()]
    for folder in sorted(folders, key=lambda path: int(path.name)):
        index = folder / INDEX
        try:
            entries = json_text.parse(index.read_bytes())["samples"]
            found = tuple(_picture(folder, entry) for entry in entries)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
            problems.append(f"{samples_dir.name}/{folder.name}/{INDEX} cannot be read ({_why(error)})")
            continue
        broken = [(picture, why) for picture in found if (why := _broken(picture.path))]
        problems += [f"{samples_dir.name}/{folder.name}/{p.path.name} cannot be read ({why})" for p, why in broken]
        gone = {picture.path for picture, _ in broken}
        sets.append(PictureSet(int(folder.name), tuple(p for p in found if p.path not in gone)))
    return tuple(sets), tuple(problems)


def _picture(folder: Path, entry: Mapping[str, Any]) -> Picture:
    name = str(entry["file"])
    if Path(name).name != name:
        raise ValueError(f"a file outside the folder, {name[:80]}")
    scores = {str(k): float(v) for k, v in entry.get("scores", {}).items() if isinstance(v, int | float)}
    return Picture(str(entry["prompt_id"]), str(entry["source"]), str(entry["prompt"]), folder / name, scores)


def _broken(path: Path) -> str:
    """Why an image cannot be shown; empty where it can."""
    try:
        with Image.open(path) as image:
            image.load()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:  # what Pillow raises
        return _why(error)
    return ""


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    text = one_line(str(error))[:160]
    return f"{type(error).__name__}: {text}" if isinstance(error, LookupError | TypeError | AttributeError) else text


def data_uri(path: Path, max_side: int = MAX_SIDE) -> str:
    """A picture of a file, as :func:`encoded`.

    Raises:
        OSError: no such image.
    """
    with Image.open(path) as image:
        return encoded(image.convert("RGB"), max_side)


def encoded(picture: Image.Image, max_side: int) -> str:
    """The picture itself as an address; one with a longer side than `max_side` pixels smaller and as WebP."""
    kind = "PNG"
    options: dict[str, Any] = {"optimize": True}
    if max(picture.size) > max_side:
        picture.thumbnail((max_side, max_side))
        kind, options = "WEBP", {"quality": WEBP_QUALITY}
    buffer = io.BytesIO()
    # A copy of the pixels alone: neither text chunks nor colour profiles of a file go with it.
    Image.frombytes("RGB", picture.size, picture.tobytes()).save(buffer, kind, **options)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def side_of(path: Path) -> int:
    """The longer side of a picture, pixels."""
    with Image.open(path) as image:
        return max(image.size)
