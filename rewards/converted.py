"""Published checkpoint files of other libraries, converted on load to transformers' classes: whole, or not at all.

Each tensor that the class wants says which stored tensor it comes from. So nothing can be left over or left out without
being seen, and errors name the keys of the file, which is what its owner can look at.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rewards.checkpoint import listed, quiet_transformers

_NONE = re.compile(r"(?!)")


@dataclass(frozen=True)
class Source:
    """Where a wanted tensor comes from."""

    key: str
    """Of the stored tensor."""
    take: Callable[[Tensor], Tensor] = lambda stored: stored
    """The wanted tensor out of the stored one."""


def read_pickle(path: Path) -> dict[str, Any]:
    """The dictionary that torch.save wrote, tensors and plain values only: nothing in the file is ever run.

    Raises:
        ValueError: it cannot be read, is no such file, or holds anything else.
    """
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
    # A damaged file may end anywhere in the reader: bytes of it are taken for sizes, names and instructions.
    except Exception as error:
        raise ValueError(f"cannot read {path} as tensors that torch.save wrote: {error}") from error
    if not isinstance(stored, dict):
        raise ValueError(f"{path} holds a {type(stored).__name__}, not a dictionary of tensors")
    foreign = [key for key in stored if not isinstance(key, str)]
    if foreign:
        raise ValueError(f"{path} has keys that are no names, {foreign[0]!r} for one: it is no dictionary of tensors")
    return stored


def convert(
    stored: Mapping[str, Any],
    wanted: Mapping[str, Tensor],
    source_of: Callable[[str], Source],
    where: Path,
    unused: re.Pattern[str] = _NONE,
) -> dict[str, Tensor]:
    """Every wanted tensor, out of the stored ones.

    Args:
        stored: what the file holds, by its own keys.
        wanted: what the class has, by its own names; only shapes are read, so tensors without data do.
        source_of: the source of a wanted name.
        where: the file, for error messages.
        unused: stored keys that no score needs.

    Raises:
        ValueError: stored tensors are missing, left over or of another shape; names some of them.
        KeyError: source_of does not know a name, which a later version of the class may bring.
    """
    sources = {name: source_of(name) for name in wanted}
    keys = {source.key for source in sources.values()}
    converted: dict[str, Tensor] = {}
    misshapen: dict[str, str] = {}
    for name, source in sources.items():
        if source.key not in stored:
            continue
        taken = _take(source, stored[source.key])
        if taken is None or taken.shape != wanted[name].shape:
            got = list(stored[source.key].shape) if isinstance(stored[source.key], Tensor) else type(stored[source.key])
            misshapen[source.key] = f"{source.key}: {got} does not give {name} {list(wanted[name].shape)}"
        else:
            converted[name] = taken
    wrong = listed(
        {
            "missing": keys - stored.keys(),
            "unexpected": {str(key) for key in stored.keys() - keys if not unused.search(str(key))},
            "of another shape": misshapen.values(),
        }
    )
    if wrong:
        raise ValueError(f"{where} does not fit: {wrong}")
    return converted


def wanted_by(build: Callable[[], Any], config: Path) -> dict[str, Tensor]:
    """The tensors of a model by name, without their data or the time to make them.

    Args:
        build: makes the model.
        config: where its configuration stands, for error messages.

    Raises:
        ValueError: no model has such a configuration.
    """
    try:
        with torch.device("meta"):
            return dict(build().state_dict())
    # Numbers that do not fit together and names of nothing raise as many types as there are.
    except Exception as error:
        raise ValueError(f"{config} describes no model: {type(error).__name__}: {error}") from error


def build_whole(
    model_class: Any, config: Any, tensors: Mapping[str, Tensor], dtype: torch.dtype, **options: Any
) -> Any:
    """A model of a transformers class with these tensors in it, in eval mode; there must be one for each of its names.

    Raises:
        RuntimeError: the class did not take all of them, which only a fault in the conversion explains.
    """
    state = {name: tensor.to(dtype) for name, tensor in tensors.items()}
    with quiet_transformers():
        model, info = model_class.from_pretrained(
            None, config=config, state_dict=state, dtype=dtype, output_loading_info=True, **options
        )
    wrong = {what: keys for what, keys in info.items() if keys}
    if wrong:
        raise RuntimeError(f"{model_class.__name__} did not take every converted tensor: {wrong}")
    return model.eval().requires_grad_(False)


def _take(source: Source, stored: Any) -> Tensor | None:
    """None where what is stored has not even the axes for it."""
    if not isinstance(stored, Tensor):
        return None
    try:
        return source.take(stored)
    except (IndexError, RuntimeError):
        return None
