"""Loads a Stable Diffusion 3 pipeline, from a folder in diffusers' format or the hub, or says in one line why not."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import diffusers
import torch
import transformers
from diffusers import AutoencoderKL, SD3Transformer2DModel, StableDiffusion3Pipeline
from transformers import CLIPTextModelWithProjection, T5EncoderModel

from learner.config import PolicyConfig
from learner.errors import PolicyError
from learner.model_folder import TOKENIZER_FILES, absent_parts, index_problem

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
MODELS: Mapping[str, type[Any]] = {
    "transformer": SD3Transformer2DModel,
    "vae": AutoencoderKL,
    "text_encoder": CLIPTextModelWithProjection,
    "text_encoder_2": CLIPTextModelWithProjection,
    "text_encoder_3": T5EncoderModel,
}
HARMLESS_EXTRA = re.compile(r"\.position_ids$")
"""Older checkpoints store this constant, which newer classes make themselves."""
TEXT = ("text_encoder", "text_encoder_2", "text_encoder_3", "tokenizer", "tokenizer_2", "tokenizer_3")


def load_pipeline(config: PolicyConfig, with_vae: bool, with_text: bool) -> StableDiffusion3Pipeline:
    """The pipeline with every model frozen, in evaluation mode and of `config.dtype`, on the CPU.

    Weights stored in another type are converted. Parts that are null in model_index.json (no T5) stay None, as do
    those left out by `with_vae` and `with_text`.

    Raises:
        PolicyError: a missing folder, another pipeline, or a broken, incomplete or missing file.
    """
    index = _model_index(config)
    dtype = getattr(torch, config.dtype)
    absent = {"image_encoder", "feature_extractor", *(() if with_vae else ("vae",)), *(() if with_text else TEXT)}
    absent |= absent_parts(index)
    _check_tokenizers(Path(config.base), {name for name in TEXT if name.startswith("tokenizer")} - absent)
    with _quiet(), _one_line(config.base, "the pipeline"):
        models = {name: _load_model(name, config, dtype) for name in MODELS if name not in absent}
        parts = {**models, **dict.fromkeys(absent & {*MODELS, *TEXT})}
        pipeline = StableDiffusion3Pipeline.from_pretrained(config.base, revision=config.revision, dtype=dtype, **parts)
    for model in models.values():
        model.requires_grad_(False).eval()
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def _model_index(config: PolicyConfig) -> Mapping[str, Any]:
    base = config.base
    folder = Path(base)
    if folder.exists():
        if not (folder / "model_index.json").is_file():
            raise PolicyError(f"policy.base: {base} is no folder in diffusers' format: it has no model_index.json")
    # "tinyworld/weights" looks like a hub id too; only ask the network when its first part is not a folder here.
    elif not HUB_ID.fullmatch(base) or base.startswith(".") or Path(folder.parts[0]).exists():
        raise PolicyError(f"policy.base: there is no folder {base}")
    with _quiet(), _one_line(base, "model_index.json"):
        index = StableDiffusion3Pipeline.load_config(base, revision=config.revision)
    problem = index_problem(index)
    if problem:
        raise PolicyError(f"policy.base: {base} {problem}")
    return dict(index)


def _check_tokenizers(folder: Path, names: set[str]) -> None:
    """transformers makes a tokenizer without words, silently, when its files are missing."""
    for name in sorted(names) if folder.is_dir() else ():
        if not any((folder / name / file).is_file() for file in TOKENIZER_FILES):
            raise PolicyError(f"policy.base: {folder}: {name} has none of {', '.join(TOKENIZER_FILES)}")


def _load_model(name: str, config: PolicyConfig, dtype: torch.dtype) -> Any:
    """One model, refused when weights and config differ: the libraries would fill or drop what does not fit, and go on.

    Raises:
        PolicyError: it cannot be loaded, lacks weights, or has weights that its config has no place for.
    """
    with _one_line(config.base, name):
        model, info = MODELS[name].from_pretrained(
            config.base, subfolder=name, revision=config.revision, dtype=dtype, output_loading_info=True
        )
    lacking = sorted(map(str, info.get("missing_keys", ()))) + sorted(map(str, info.get("mismatched_keys", ())))
    if lacking:
        raise PolicyError(f"policy.base: {config.base}: {name} lacks {len(lacking)} weights, first {lacking[0]}")
    extra = sorted(key for key in map(str, info.get("unexpected_keys", ())) if not HARMLESS_EXTRA.search(key))
    if extra:
        raise PolicyError(
            f"policy.base: {config.base}: {name} has {len(extra)} weights that its config.json has no place for, "
            f"first {extra[0]}"
        )
    return model


@contextmanager
def _one_line(base: str, part: str) -> Iterator[None]:
    """Whatever the libraries raise becomes one line that names the folder and the part."""
    try:
        yield
    except PolicyError:
        raise
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        raise PolicyError(f"policy.base: {base}: cannot load {part}: {lines[0]}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars and no advice while loading; the libraries' settings come back."""
    settings = [
        (library, library.get_verbosity(), library.is_progress_bar_enabled())
        for library in (diffusers.utils.logging, transformers.utils.logging)
    ]
    try:
        for library, _, _ in settings:
            library.set_verbosity_error()
            library.disable_progress_bar()
        yield
    finally:
        for library, verbosity, bars in settings:
            library.set_verbosity(verbosity)
            if bars:
                library.enable_progress_bar()
