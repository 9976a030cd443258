"""Templates of the pages that this room writes. Every text that goes in is escaped: prompts are anyone's to write."""

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

ROOM = Path(__file__).parent


@cache
def environment(folder: str) -> Environment:
    """The templates of one folder of this room, and those that all pages share."""
    return Environment(
        loader=FileSystemLoader([ROOM / folder / "templates", ROOM / "templates"]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
