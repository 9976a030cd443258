"""The one place where a user's error becomes lines on stderr and exit code 2. Our own bugs keep their traceback."""

import errno
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pydantic import ValidationError

from learner.errors import Problem, UserError

MAX_NAME_SHOWN = 80
"""Characters of a name that is too long for the file system."""
EXIT_BUG = 1
EXIT_USER = 2
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143
"""128 + the signal's number, as shells count it."""


class ProblemsError(UserError):
    """Several things are wrong at once; each is one line, and may say of what kind it is."""

    def __init__(self, problems: Sequence[str | Problem]) -> None:
        self.problems = tuple(Problem("", one) if isinstance(one, str) else one for one in problems)
        self.lines = tuple(problem.text for problem in self.problems)
        super().__init__("\n".join(self.lines))


@contextmanager
def loading(what: str = "") -> Iterator[None]:
    """Around code that reads what the user gave: its ValueError and OSError are the user's, not ours.

    Args:
        what: names the thing in front of the message, for errors that do not name it themselves.
    """
    prefix = f"{what}: " if what else ""
    try:
        yield
    except UserError:
        raise
    except ValidationError as error:
        lines = [f"{prefix}{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        raise ProblemsError(lines) from error
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise  # told at the top, cut
        name = f"{error.filename}: " if error.filename else prefix
        raise UserError(f"{name}{(error.strerror or str(error)).lower()}") from error
    except ValueError as error:
        raise UserError(f"{prefix}{error}") from error


def user_lines(error: BaseException) -> tuple[str, ...] | None:
    """What to tell the user, or None where the error is a bug of ours."""
    # Ray wraps what an actor raised in a class of both types, whose text is the remote traceback.
    cause = getattr(error, "cause", None)
    if isinstance(cause, UserError):
        error = cause
    # Names that we make are short; this one was given, at whichever option.
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return (f"{str(error.filename)[:MAX_NAME_SHOWN]}...: file name too long",)
    if not isinstance(error, UserError):
        return None
    # Rooms below have errors of several lines too.
    lines: Sequence[str] = getattr(error, "lines", None) or (str(error),)
    return tuple(one_line(line) for line in lines)


def problems_of(error: UserError, code: str) -> list[Problem]:
    """What a user's error says, each with its own code, or with this one where it has none."""
    known: Sequence[Problem] = getattr(error, "problems", ())
    found = known or [Problem("", line) for line in user_lines(error) or ()]
    return [Problem(problem.code or code, one_line(problem.text)) for problem in found]


def one_line(text: str) -> str:
    """The text without line breaks."""
    return " ".join(text.split())


def report(error: BaseException) -> int:
    """Print an error as its kind deserves; returns the exit code."""
    lines = user_lines(error)
    if lines is None:
        traceback.print_exception(error)
        return EXIT_BUG
    tell(lines)
    return EXIT_USER


def tell(errors: Sequence[str], warnings: Sequence[str] = ()) -> None:
    """Print what is wrong or odd, a line each."""
    for kind, lines in (("error", errors), ("warning", warnings)):
        for line in lines:
            print(f"{kind}: {line}", file=sys.stderr)
