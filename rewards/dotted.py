"""Classes named by dotted path: how recipes plug in code that this package never imports."""

import difflib
import importlib
from typing import Any


def load_dotted(path: str) -> Any:
    """The object behind `package.module:Name`.

    Raises:
        ValueError: the path has another form, its module cannot be imported, or it has no such name; says which.
    """
    module_name, colon, name = path.partition(":")
    if not (module_name and colon and name):
        raise ValueError(f"{path!r} is not a dotted path package.module:Name")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # Ours only where it is the path's own module, not one that it imports.
        own = error.name is not None and f"{module_name}.".startswith(f"{error.name}.")
        hint = "; install its package where the scorer runs, or put its folder on PYTHONPATH there" if own else ""
        raise ValueError(f"{path!r} cannot be imported: {error}{hint}") from error
    # A user's module may raise anything while it is imported.
    except Exception as error:
        kind = "" if isinstance(error, ImportError) else f"{type(error).__name__}: "
        raise ValueError(f"{path!r} cannot be imported: {kind}{error}") from error
    if not hasattr(module, name):
        raise ValueError(f"{path!r}: {module_name} has no {name}{nearest(name, dir(module))}")
    return getattr(module, name)


def nearest(name: str, known: list[str]) -> str:
    """`; did you mean ...?` for the closest of the known names, or nothing."""
    close = difflib.get_close_matches(name, known, n=3)
    return f"; did you mean {' or '.join(close)}?" if close else ""
