"""Writing files so that a crash leaves the old one or the new one, never half of one."""

import os
from collections.abc import Callable
from pathlib import Path


def write_atomically(path: Path, write: Callable[[Path], object]) -> Path:
    """Calls `write(temporary)` and puts the result in place of `path`; returns `path`."""
    temporary = path.with_name(f".{path.name}.tmp")
    write(temporary)
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(path)
    return path
