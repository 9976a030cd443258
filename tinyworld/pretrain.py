"""Makes every weight of the tiny world: ``python -m tinyworld.pretrain [--stage NAME] [--seed N] [--threads N]``.

Stages: vae, then transformer with both text encoders, for ``weights/pipeline``; clip, then pickscore and hpsv2; for the
held-out scorers heldout_clip, then aesthetic; strict_detector.
On a busy machine set OMP_WAIT_POLICY=PASSIVE: threads that spin while they wait for others cost a tenfold slowdown.
Each is seeded, resumes from its last checkpoint (one a minute) and can be run alone; ``--fresh`` starts it over.
``random`` writes untrained weights of the same form.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Final

import torch

from tinyworld.loop import WORK, Stage, train
from tinyworld.pipeline import SCORERS, WEIGHTS, build_clip, build_pipeline, save_clip, save_pipeline
from tinyworld.train_clip import ClipStage
from tinyworld.train_detector import DetectorStage
from tinyworld.train_judges import AestheticStage, HeldoutClipStage
from tinyworld.train_preference import PreferenceStage
from tinyworld.train_transformer import TransformerStage
from tinyworld.train_vae import VaeStage

STAGES: Final[dict[str, Callable[[int, int, Path], Stage]]] = {
    "vae": VaeStage,
    "clip": ClipStage,
    "pickscore": lambda seed, steps, work: PreferenceStage("pickscore", seed, steps, work),
    "hpsv2": lambda seed, steps, work: PreferenceStage("hpsv2", seed, steps, work),
    "transformer": TransformerStage,
    "heldout_clip": HeldoutClipStage,
    "aesthetic": AestheticStage,
    "strict_detector": DetectorStage,
}
STEPS: Final = {
    "vae": 6500,
    "clip": 1700,
    "pickscore": 700,
    "hpsv2": 700,
    "transformer": 4000,
    "heldout_clip": 1500,
    "aesthetic": 800,
    "strict_detector": 1200,
}
"""Optimizer steps; for the transformer chosen so that the base stays mediocre (see ``evaluate_base``)."""


def write_random(seed: int) -> None:
    """Untrained weights in the final folders, for work that needs only their form."""
    save_pipeline(build_pipeline(seed), WEIGHTS / "pipeline")
    for offset, name in enumerate(SCORERS):
        save_clip(build_clip(seed + offset), WEIGHTS / name)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stage", choices=[*STAGES, "random", "all"], default="all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=_positive, help="optimizer steps of the stage, in place of the default")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    parser.add_argument("--fresh", action="store_true", help="forget the checkpoint of the stage")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.stage == "random":
        write_random(options.seed)
        return
    for name in STAGES if options.stage == "all" else [options.stage]:
        if options.fresh:
            (WORK / f"{name}.pt").unlink(missing_ok=True)
        stage = STAGES[name](options.seed, options.steps or STEPS[name], WORK)
        train(stage, options.seed, WORK)


if __name__ == "__main__":
    main()
