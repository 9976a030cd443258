"""How this program was called, so that what it tells people to type can be typed."""

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

MODULE = "deploy.cli"
SCRIPT = "marble"
MAKE_VARIABLE = "MARBLE_MAKE_TARGET"
"""Set by the Makefile: the target that called us, whose recipe is its own."""


def train_command(recipe: Path, options: Sequence[str]) -> str:
    """A command line that trains a recipe with these options, in the words in which this process was called."""
    target = os.environ.get(MAKE_VARIABLE)
    if target:
        # make reads $ itself.
        return f"make {target} ARGS={shlex.quote(shlex.join(options)).replace('$', '$$')}"
    return shlex.join([*_program(), "train", str(recipe), *options])


def option(text: str) -> str:
    """An option as it is added to the command that called us."""
    return f"ARGS={shlex.quote(text)}" if os.environ.get(MAKE_VARIABLE) else text


def _program() -> list[str]:
    """`python -m deploy.cli` with the interpreter as it was typed, or the installed script by name if that finds it."""
    words = sys.orig_argv
    for index in range(1, len(words) - 1):
        if words[index : index + 2] == ["-m", MODULE]:
            return words[: index + 2]
    called = sys.argv[0]
    found = shutil.which(SCRIPT)
    if Path(called).name != SCRIPT or (found is not None and Path(found).resolve() == Path(called).resolve()):
        return [SCRIPT]
    return [called]
