"""Errors whose text is for the user, as one line. Imports nothing: a command can catch them before torch loads."""


class UserError(ValueError):
    """What was asked for cannot be done; the message says what and where."""


class PolicyError(UserError):
    """The base model or an adapter cannot be loaded."""


class CheckpointError(UserError):
    """A checkpoint is missing, torn or of another run."""
