"""Checkpoints that are whole or not there: written aside, manifest with hashes last, synced, renamed into place.

``<root>/<iteration:06d>/`` holds one safetensors file per tensor group, ``state.json``, optionally ``lora/`` for plain
diffusers, and ``manifest.json`` with the SHA-256 of every other file.
"""

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from learner import json_text
from learner.errors import CheckpointError
from learner.export import LoraExport, save_lora

log = logging.getLogger(__name__)

MANIFEST, STATE, LORA = "manifest.json", "state.json", "lora"
SUFFIX = ".safetensors"
NAME = re.compile("[0-9]+")
"""Of a checkpoint's folder: iterations trained."""


def save(
    root: Path,
    iteration: int,
    tensors: Mapping[str, Mapping[str, Tensor]],
    state: Mapping[str, Any],
    lora: LoraExport | None = None,
) -> Path:
    """Write `<root>/<iteration:06d>`; whatever was there under that name is replaced only by the complete new one.

    Args:
        root: folder of all checkpoints, made if missing.
        iteration: iterations trained.
        tensors: groups by name; each becomes one file.
        state: JSON-able numbers.
        lora: adapter to put beside it in diffusers' format.
    """
    root.mkdir(parents=True, exist_ok=True)
    final = root / f"{iteration:06d}"
    fresh = root / f".{final.name}.new.{os.getpid()}"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    for group, values in tensors.items():
        save_file({key: value.contiguous() for key, value in values.items()}, fresh / f"{group}{SUFFIX}")
    (fresh / STATE).write_text(json.dumps(state, indent=1, allow_nan=False), encoding="utf-8")
    if lora is not None:
        save_lora(fresh / LORA, lora.tensors, lora.lora, lora.record)
    hashes = {str(path.relative_to(fresh)): _sha256(path) for path in _files(fresh)}
    for path in _files(fresh):
        _sync(path)
    manifest = {"iteration": iteration, "files": hashes}
    (fresh / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    for path in (fresh / MANIFEST, *(p for p in fresh.rglob("*") if p.is_dir()), fresh):
        _sync(path)
    _put(fresh, final)
    return final


def verify(path: Path) -> None:
    """
    Raises:
        CheckpointError: not a checkpoint, or a file missing, changed or cut short; the message names it.
    """
    if not path.is_dir():
        raise CheckpointError(f"there is no checkpoint {path}")
    try:
        _verify(path)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"checkpoint {path} is torn: {error}") from error


def _verify(path: Path) -> None:
    """
    Raises:
        ValueError, OSError: what is wrong with it.
    """
    files = _manifest(path / MANIFEST)
    for name, expected in files.items():
        if not (path / name).is_file():
            raise ValueError(f"{name} is missing")
        if _sha256(path / name) != expected:
            raise ValueError(f"{name} is not what was written")
    if STATE not in files:
        raise ValueError(f"it has no {STATE}")
    _object(path / STATE)


def _manifest(file: Path) -> dict[str, str]:
    """Hash by file name."""
    if not file.exists():
        raise ValueError(f"it has no {MANIFEST}")
    files = _object(file).get("files")
    if not isinstance(files, dict) or not all(isinstance(value, str) for value in files.values()):
        raise ValueError(f"{MANIFEST} is broken: `files` maps no names to hashes")
    return files


def _object(file: Path) -> dict[str, Any]:
    """What a file of one JSON object holds."""
    try:
        value = json_text.parse(file.read_bytes())
    except (OSError, ValueError) as error:
        raise ValueError(f"{file.name} is broken: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{file.name} is broken: expected a JSON object, got {type(value).__name__}")
    return value


def load(path: Path) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """Tensor groups and state of a checkpoint, after verifying it.

    Raises:
        CheckpointError: as :func:`verify`.
    """
    verify(path)
    tensors = {file.name.removesuffix(SUFFIX): load_file(file) for file in sorted(path.glob(f"*{SUFFIX}"))}
    return tensors, _object(path / STATE)


def complete(root: Path) -> Iterator[Path]:
    """Whole checkpoints, newest first; each torn one is named in a warning and passed over."""
    return _whole(root, lambda problem: log.warning("%s; it is passed over", problem))


def latest(root: Path) -> Path | None:
    """The newest whole checkpoint, or None."""
    return next(complete(root), None)


def find(root: Path) -> tuple[Path | None, tuple[str, ...]]:
    """The newest whole checkpoint, or None, and what is wrong with each that is newer; nothing is logged."""
    problems: list[str] = []
    return next(_whole(root, problems.append), None), tuple(problems)


def _whole(root: Path, torn: Callable[[str], None]) -> Iterator[Path]:
    for path in _named(root):
        try:
            verify(path)
        except CheckpointError as error:
            torn(str(error))
            continue
        yield path


def prune(root: Path, keep_last: int, best: Sequence[Path] = ()) -> list[Path]:
    """Delete all but the newest `keep_last` whole checkpoints and the `best`; returns what went.

    Leftovers of interrupted writes and torn checkpoints older than the newest kept one go too.
    """
    kept = {path.resolve() for path in (*list(complete(root))[:keep_last], *best)}
    if not kept:
        return []
    newest = max(int(path.name) for path in kept)
    gone = [path for path in _named(root) if path.resolve() not in kept and int(path.name) < newest]
    leftovers = [path for path in root.iterdir() if path.name.startswith(".") and ".new." in path.name]
    for path in (*gone, *leftovers):
        shutil.rmtree(path, ignore_errors=True)
    return gone


def _named(root: Path) -> list[Path]:
    """Folders named like checkpoints, newest first."""
    if not root.is_dir():
        return []
    # Not str.isdigit: to it ² is a digit, which int() refuses.
    named = (path for path in root.iterdir() if NAME.fullmatch(path.name) and path.is_dir())
    return sorted(named, key=lambda path: int(path.name), reverse=True)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _put(fresh: Path, final: Path) -> None:
    """Rename into place; a name that is taken is freed first, so a crash in between leaves the older checkpoints."""
    if final.exists():
        stale = final.with_name(f".{final.name}.new.stale")
        shutil.rmtree(stale, ignore_errors=True)
        final.rename(stale)
        fresh.rename(final)
        shutil.rmtree(stale, ignore_errors=True)
    else:
        fresh.rename(final)
    _sync(final.parent)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
