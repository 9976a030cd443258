"""Images outside a training run: which base and adapter, and diffusers' own pipeline on them.

The pipeline is the plain one: the same seed through `StableDiffusion3Pipeline` with `load_lora_weights` gives the same
image.
"""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploy.errors import loading
from deploy.libraries import quiet
from deploy.recipe import RECIPES, load_recipe
from deploy.rundir import RunDir, last_checkpoint, load_run, require_writable
from learner.config import LoraConfig, PolicyConfig, SamplingConfig
from learner.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

DEFAULT_RECIPE = RECIPES / "tiny.yaml"
LORA_FOLDER = "lora"
"""Folder of a checkpoint that holds the LoRA in diffusers' format."""
MAX_NAME_LENGTH = 60
"""Characters of a prompt that go into a file name."""


@dataclass(frozen=True)
class Look:
    """Everything but the seed that decides an image."""

    policy: PolicyConfig
    sampling: SamplingConfig
    lora: Path | None


def find_look(run: Path | None, lora: Path | None, recipe: Path | None, steps: int | None) -> Look:
    """Base, adapter and sampling from what the user named.

    Raises:
        UserError: two of them contradict, or one is not there.
    """
    if run is not None and (lora is not None or recipe is not None):
        raise UserError("--run brings its own LoRA and recipe; give either --run, or --lora and --recipe")
    if run is not None:
        run_dir, loaded = load_run(run)
        lora = lora_of(run_dir)
    elif recipe is not None:
        loaded = load_recipe(recipe)
    else:
        owner = owning_run(lora) if lora is not None else None
        loaded = load_run(owner)[1] if owner is not None else load_recipe(DEFAULT_RECIPE)
    config = loaded.config
    policy = config.policy if lora is None else with_lora(config.policy, lora, strict=run is not None)
    # Without a LoRA of the user's the recipe's own starting point would make the base another model.
    policy = policy if lora is not None else policy.model_copy(update={"init_lora": None})
    sampling = config.eval_sampling if steps is None else config.eval_sampling.model_copy(update={"steps": steps})
    return Look(policy, sampling, lora)


def lora_of(run_dir: RunDir) -> Path:
    """LoRA of a run's newest whole checkpoint.

    Raises:
        UserError: the run has none yet.
    """
    folder = last_checkpoint(run_dir) / LORA_FOLDER
    if not folder.is_dir():
        raise UserError(f"{folder.parent} holds no LoRA")
    return folder


def owning_run(path: Path) -> Path | None:
    """The run directory a file lies in, or None."""
    return next((parent for parent in path.absolute().parents if RunDir(parent).config.is_file()), None)


def with_lora(policy: PolicyConfig, lora: Path, strict: bool) -> PolicyConfig:
    """The policy with this LoRA loaded; its rank, alpha and targets are the file's own unless `strict`.

    Raises:
        UserError: no such LoRA, or a broken one.
    """
    from learner.export import load_lora

    loaded = load_lora(lora)
    own = policy.lora if strict else LoraConfig(rank=loaded.rank, alpha=loaded.alpha, targets=loaded.modules)
    return policy.model_copy(update={"lora": own, "init_lora": str(lora)})


def load(look: Look, device: str | None) -> Any:
    """diffusers' pipeline with the adapter active.

    Raises:
        UserError: the base or the LoRA cannot be loaded.
    """
    quiet()
    import torch

    from learner.policy import Policy

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    with loading(f"--device {device}"):
        try:
            # Reading a value back shows that there is something behind the name: `meta` holds shapes only.
            torch.zeros(1, device=device).item()
        except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
            raise UserError(f"--device {device}: {str(error).splitlines()[0]}") from error
    names = ("default",) if look.lora is not None else ()
    return Policy.load(look.policy, names, device=device, whole_lora=True).pipeline()


def draw(pipeline: Any, look: Look, prompt: str, seed: int) -> "Tensor":
    """[3, H, W] one image in [0, 1], before it is rounded to bytes."""
    import torch

    side = look.policy.resolution
    image: Tensor = pipeline(
        prompt=prompt,
        height=side,
        width=side,
        num_inference_steps=look.sampling.steps,
        guidance_scale=look.sampling.guidance_scale,
        max_sequence_length=look.policy.max_sequence_length,
        # On the CPU, so that every device gets the same noise.
        generator=torch.Generator().manual_seed(seed),
        output_type="pt",
    ).images[0]
    return image


def save(image: "Tensor", path: Path) -> None:
    """Write a PNG."""
    from PIL import Image

    from learner.policy import to_uint8

    with loading(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(to_uint8(image[None].float())[0]).save(path)


def plan_files(out: Path, prompts: list[str], num: int, seed: int) -> list[Path]:
    """A file for every image, prompts first, then seeds.

    Raises:
        UserError: one file for several images, another format than PNG, or a place where nothing can be written.
        OSError: a name is too long.
    """
    if out.suffix and not out.is_dir():
        if out.suffix.lower() != ".png":
            raise UserError(f"--out {out}: images are saved as .png")
        if len(prompts) * num > 1:
            raise UserError(f"--out {out}: {len(prompts) * num} images need a folder")
        require_writable(out)
        return [out]
    require_writable(out / "x.png")
    names = [f"{_slug(prompt)}-{seed + i}.png" for prompt in prompts for i in range(num)]
    # Two prompts may differ only in what a file name cannot hold.
    count = Counter(names)
    return [out / (name if count[name] == 1 else f"{index:03d}-{name}") for index, name in enumerate(names)]


def _slug(prompt: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", prompt).strip("-").lower()[:MAX_NAME_LENGTH] or "image"
