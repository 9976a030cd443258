"""Recipes built on others: `base: tiny.yaml` at the top of one lays it over another.

`base` is a file or a list of them, beside the recipe or as any path of it; later ones lie over earlier ones, and the
recipe over all. Mappings are merged key by key, anything else is replaced, and null takes a key of a base out (JSON
Merge Patch, RFC 7396).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy import paths, schema, strict_yaml
from learner.errors import UserError

BASE_KEY = "base"


@dataclass(frozen=True)
class Layers:
    """A recipe's data, and which file said what."""

    data: dict[str, Any]
    own: tuple[tuple[Path, Mapping[str, Any]], ...]
    """Every file with what it says itself, the uppermost first."""

    def file_of(self, at: schema.Path) -> Path:
        """Who says the value at a key path; of a value that nobody says, the recipe itself."""
        return next((path for path, data in self.own if _says(data, at)), self.own[0][0])


def load(path: Path) -> Layers:
    """Read a recipe and whatever it is built on.

    Raises:
        UserError: a file cannot be read, or a recipe is built on itself; names it.
    """
    return _load(path, ())


def merged(below: Any, above: Any) -> Any:
    """`above` laid over `below` (RFC 7396); neither is changed."""
    if not isinstance(above, Mapping):
        return above
    result = dict(below) if isinstance(below, Mapping) else {}
    for key, value in above.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def _load(path: Path, above: tuple[Path, ...]) -> Layers:
    here = path.resolve()
    if here in above:
        raise UserError(f"{path}: base: is built on itself, through {' and '.join(map(str, above))}")
    own = strict_yaml.load(path)
    named = own.pop(BASE_KEY, None)
    if named is None:
        return Layers(own, ((path, own),))
    bases = [_load(_found(path, name), (*above, here)) for name in _names(path, named)]
    data: Any = {}
    for base in bases:
        data = merged(data, rooted(base))
    said = [pair for base in reversed(bases) for pair in base.own]
    return Layers(merged(data, own), ((path, own), *said))


def _names(path: Path, named: Any) -> Sequence[str]:
    names = named if isinstance(named, list) else [named]
    if not names or not all(isinstance(name, str) for name in names):
        raise UserError(f"{path}: base: wants the path of a recipe or a list of them, got {named!r:.80}")
    return names


def _found(path: Path, name: str) -> Path:
    """A base's file: beside the recipe, as in the working directory, or in the repository."""
    beside = path.absolute().parent
    try:
        return Path(paths.resolve(name, beside, (beside, Path.cwd(), paths.ROOT), hub=False))
    except FileNotFoundError as error:
        raise UserError(f"{path}: base: {error}") from None


def rooted(base: Layers) -> dict[str, Any]:
    """A base's data; what starts with ./ or ../ there starts beside that file, not beside the one laid over it."""
    data = base.data
    for found in list(paths.path_values(data)):
        if found.value.startswith(("./", "../")):
            beside = base.file_of(found.at).absolute().parent
            data = paths.replace(data, found.at, str((beside / found.value).resolve()))
    return data


def _says(data: Any, at: schema.Path) -> bool:
    for part in at:
        known = part in data if isinstance(data, Mapping) else isinstance(data, list) and part in range(len(data))
        if not known:
            return False
        data = data[part]
    return True
