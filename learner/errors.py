"""Errors whose text is for the user, as one line. Imports nothing: a command can catch them before torch loads."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One thing that keeps a run from starting, for people and for programs."""

    code: str
    """Stable name of the kind (docs/check.md lists them)."""
    text: str
    """One line: what, where, and what would be right."""


class UserError(ValueError):
    """What was asked for cannot be done; the message says what and where."""


class PolicyError(UserError):
    """The base model or an adapter cannot be loaded."""


class CheckpointError(UserError):
    """A checkpoint is missing, torn or of another run."""
