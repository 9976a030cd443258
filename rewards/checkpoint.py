"""Loading a model of transformers whole, or not at all: a half-loaded one still gives numbers.

A checkpoint is a local folder or a hub id. Missing, extra or misshapen tensors are errors that name them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_HUB_ID = re.compile(r"^[A-Za-z0-9][\w.-]*/[\w.-]+$")

MODEL_FILES = ("*.json", "*.txt", "*.safetensors")


def folder_of(name: str, revision: str | None, patterns: Sequence[str] = MODEL_FILES) -> Path:
    """A local folder as it is; a hub id as the folder its files are cached in.

    Raises:
        ValueError: neither a folder nor something the hub gives, or a hub id without a revision.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if not _HUB_ID.match(name):
        raise ValueError(f"no checkpoint folder {name!r}, and it is not a hub id owner/name either")
    if revision is None:
        raise ValueError(
            f"{name!r} is no local folder, and as a hub id it needs a revision: a commit, so that scores stay what "
            "they are, or main"
        )
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(patterns)))
    # The hub client raises many types (HTTP, offline, cache, validation); to the recipe they are all one fault.
    except Exception as error:
        raise ValueError(f"{name!r} is no local folder, and the hub does not give it: {error}") from error


def file_of(name: str, revision: str | None, file: str) -> Path:
    """A local file as it is; of a local folder or hub id the file of that name.

    Raises:
        ValueError: neither a file, nor a folder with that file, nor something the hub gives.
    """
    path = Path(name).expanduser()
    if path.is_file():
        return path
    found = folder_of(name, revision, (file,)) / file
    if not found.is_file():
        raise ValueError(f"{name!r} has no file {file}")
    return found


def load_whole(
    model_class: Any,
    folder: Path,
    dtype: Any,
    unused: re.Pattern[str] = re.compile(r"(?!)"),
) -> Any:
    """A model of that class with every tensor of the folder's checkpoint in it, in eval mode.

    Args:
        model_class: has transformers' from_pretrained.
        folder: where config and safetensors lie.
        dtype: torch dtype to load in.
        unused: keys that a forward pass does not need, whether they are in the checkpoint or not; none by default.

    Raises:
        ValueError: it cannot be read, or tensors are missing, left over or of another shape; names some of them.
    """
    # Tensors of another shape are let through only to be reported by name below: transformers' own error does not.
    options = {"output_loading_info": True, "ignore_mismatched_sizes": True, "use_safetensors": True}
    name = model_class.__name__
    with quiet_transformers():
        try:
            model, info = model_class.from_pretrained(folder, dtype=dtype, local_files_only=True, **options)
        # A file may be wrong in any way: configurations, safetensors and the class raise types of their own.
        except Exception as error:
            raise ValueError(f"cannot load {name} from {folder}: {error}") from error
    wrong = listed(_wrong_keys(info, unused))
    if wrong:
        raise ValueError(f"{folder} does not fit {name}: {wrong}")
    return model.eval().requires_grad_(False)


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a folder.

    Raises:
        ValueError: it has none, or files that cannot be read.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    # The Rust side raises a bare Exception for a file it does not understand.
    except Exception as error:
        raise ValueError(f"cannot load a tokenizer from {folder}: {error}") from error


def _wrong_keys(info: dict[str, Any], unused: re.Pattern[str]) -> dict[str, list[str]]:
    """What keeps a checkpoint from being loaded whole."""
    return {
        "missing": [key for key in info.get("missing_keys", ()) if not unused.search(key)],
        "unexpected": [key for key in info.get("unexpected_keys", ()) if not unused.search(key)],
        "of another shape": [_named(entry) for entry in info.get("mismatched_keys", ())],
        "errors": [str(message) for message in info.get("error_msgs", ())],
    }


def listed(wrong: Mapping[str, Iterable[str]]) -> str:
    """`3 missing (a, b, c); 1 unexpected (d)` of keys by what is wrong with them; empty when nothing is."""
    found = {what: sorted(keys) for what, keys in wrong.items()}
    return "; ".join(f"{len(keys)} {what} ({_first(keys)})" for what, keys in found.items() if keys)


def _named(mismatch: Any) -> str:
    """`key: stored shape, wanted shape` of one entry, whose form transformers does not promise."""
    if isinstance(mismatch, tuple) and len(mismatch) == 3:
        key, stored, wanted = mismatch
        return f"{key}: stored {list(stored)}, wanted {list(wanted)}"
    return str(mismatch)


def _first(keys: list[str]) -> str:
    return ", ".join(keys[:3]) + (", ..." if len(keys) > 3 else "")


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """No progress bar, since many actors share one terminal, and no load report: what is wrong is raised."""
    from transformers.utils import logging

    bar, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()
