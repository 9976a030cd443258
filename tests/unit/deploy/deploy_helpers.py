"""What the tests of this room share: the outcome of a command, and assertions on it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """Lines on standard error."""
        return self.err.splitlines()


Marble = Callable[..., Ran]


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its bytes, and every folder."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b"" for p in sorted(folder.rglob("*"))}


def edited(path: Path, *replacements: tuple[str, str]) -> Path:
    """Replace parts of a text file; each must be there."""
    text = path.read_text()
    for old, new in replacements:
        assert old in text, old
        text = text.replace(old, new)
    path.write_text(text)
    return path


def problem(ran: Ran, *parts: str, count: int = 1) -> Sequence[str]:
    """Assert that a command refused its input: exit code 2, so many lines, all parts said, no traceback."""
    assert ran.code == 2, ran
    assert len(ran.lines) == count, ran.err
    assert all(line.startswith("error: ") for line in ran.lines), ran.err
    for part in parts:
        assert part in ran.err, (part, ran.err)
    return ran.lines
