"""How the large libraries behave in our process."""

import os


def quiet() -> None:
    """No advice on standard error about packages that are not installed; call before the first import of theirs."""
    for name in ("TRANSFORMERS_VERBOSITY", "DIFFUSERS_VERBOSITY"):
        os.environ.setdefault(name, "error")
