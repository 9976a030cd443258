"""`marble generate`: images of prompts by the base or a LoRA, through diffusers' own pipeline."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deploy.commands.options import JsonOption

if TYPE_CHECKING:
    from deploy.drawing import Look

MAX_SEED = 2**64 - 1
"""What torch's generators take."""
MAX_STEPS = 1000
"""Noise levels Stable Diffusion 3 was trained on."""


def generate(
    prompts: Annotated[list[str], typer.Argument(metavar="PROMPT...", help="What to draw; quote each prompt.")],
    lora: Annotated[
        Path | None, typer.Option(help="LoRA file or folder in diffusers' format, with the base it was trained on.")
    ] = None,
    run: Annotated[Path | None, typer.Option(help="Run directory: its newest checkpoint.")] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="Recipe that names the base; without it the LoRA's own run, or tiny.yaml.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=MAX_SEED, help="Seed of the noise of the first image of each prompt.")
    ] = 0,
    num: Annotated[int, typer.Option(min=1, help="Images per prompt, with seeds SEED, SEED+1, ...")] = 1,
    steps: Annotated[
        int | None, typer.Option(min=1, max=MAX_STEPS, help="Sampling steps; without it the recipe's.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Torch device; without it CUDA where there is one.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="A .png file, or a folder for several images.")] = Path("."),
    as_json: JsonOption = False,
) -> None:
    """Draw images with plain diffusers and save them as PNG."""
    from deploy import drawing
    from learner.errors import UserError

    if any(not prompt.strip() for prompt in prompts):
        raise UserError("a prompt is empty")
    if seed + num - 1 > MAX_SEED:
        raise UserError(
            f"--seed {seed} --num {num}: the last seed would be {seed + num - 1}, the highest is {MAX_SEED}"
        )
    files = drawing.plan_files(out, prompts, num, seed)
    look = drawing.find_look(run, lora, recipe, steps)
    shown = _draw_all(look, prompts, [seed + i for i in range(num)], device, files)
    if as_json:
        from deploy.files import to_json

        print(to_json({"lora": str(look.lora) if look.lora else None, "images": shown}))
    else:
        for image in shown:
            print(f"{image['file']}  seed {image['seed']}  {image['prompt']}")


def _draw_all(
    look: "Look", prompts: list[str], seeds: list[int], device: str | None, files: list[Path]
) -> list[dict[str, str | int]]:
    from deploy import drawing
    from deploy.errors import loading

    with loading():
        pipeline = drawing.load(look, device)
    shown: list[dict[str, str | int]] = []
    for file, (prompt, seed) in zip(files, ((p, s) for p in prompts for s in seeds), strict=True):
        drawing.save(drawing.draw(pipeline, look, prompt, seed), file)
        shown.append({"file": str(file), "prompt": prompt, "seed": seed})
    return shown
