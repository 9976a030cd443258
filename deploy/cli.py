"""The command line: `marble`, or `python -m deploy.cli`. Commands stand in deploy/commands, errors in deploy/errors."""

import sys
from collections.abc import Sequence
from typing import NoReturn

import typer

from deploy.commands.arena import arena
from deploy.commands.check import check
from deploy.commands.compare import compare
from deploy.commands.data import data
from deploy.commands.evaluate import evaluate
from deploy.commands.generate import generate
from deploy.commands.report import report
from deploy.commands.scale import scale
from deploy.commands.serve_reward import serve_reward
from deploy.commands.status import status
from deploy.commands.train import train
from learner import json_text

PROGRAM = "marble"

app = typer.Typer(
    name=PROGRAM,
    help="Fine-tune a text-to-image diffusion model on many rewards at once.",
    # Errors are told in deploy.errors: users get one line, developers the plain traceback.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(train)
app.command()(check)
app.command()(compare)
app.command()(data)
app.command(name="eval")(evaluate)
app.command()(generate)
app.command()(status)
app.command()(report)
app.command()(arena)
app.command()(scale)
app.command(name="serve-reward")(serve_reward)

# click itself, or the copy of it that newer typer versions carry.
_UsageError = typer.BadParameter.__mro__[1]
_ClickError = _UsageError.__mro__[1]


def run(args: Sequence[str]) -> int:
    """Run one command; returns its exit code."""
    command = typer.main.get_command(app)
    for number, arg in enumerate(args, start=1):
        # Python hands on bytes that are no text as halves of characters.
        if not json_text.is_unicode(arg):
            print(f"error: argument {number} is not UTF-8: {ascii(arg)[:80]}", file=sys.stderr)
            return 2
    try:
        code = command.main(args=list(args) or ["--help"], prog_name=PROGRAM, standalone_mode=False)
    except BrokenPipeError:
        return _closed_pipe()
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except Exception as error:  # noqa: BLE001  # the outermost frame: every error is told here, none is swallowed
        return _tell(error)
    return code if isinstance(code, int) else 0


def _tell(error: Exception) -> int:
    if isinstance(error, _ClickError):
        context = getattr(error, "ctx", None)
        path = context.command_path if context else PROGRAM
        print(f"error: {' '.join(error.format_message().split())} (see {path} --help)", file=sys.stderr)  # type: ignore[attr-defined]
        return 2
    # Not at the top: it loads pydantic, which --help does not need.
    from deploy import errors

    return errors.report(error)


def _closed_pipe() -> int:
    """Whoever read our output has gone (`marble status | head`): no error, and nothing more to write."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def main() -> NoReturn:
    """Entry point of the `marble` script."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
