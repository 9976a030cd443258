"""Stages ``pickscore`` and ``hpsv2``: fine-tuned from ``clipscore`` on made-up preferences.

As PickScore was trained: of two pictures for one caption, a softmax over logit_scale · cos gives the share of voters
who take the first. Shares come from ``preferences.utility`` through a logistic, so scores are smooth in every style.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from transformers import CLIPModel

from tinyworld.captions import Prompt, sample_prompt
from tinyworld.loop import set_lr, warmup_cosine
from tinyworld.pipeline import WEIGHTS, save_clip
from tinyworld.preferences import NEARLY, alter, utility
from tinyworld.render import render
from tinyworld.scene import SIZE, SOURCES, Scene
from tinyworld.splits import Split
from tinyworld.tokenizer import build_tokenizer
from tinyworld.train_clip import MAX_LOGIT_SCALE, clip_pixels, contrastive_loss, embed_images, embed_texts
from tinyworld.world import realise

PAIRS = 40
LR = 4e-4
CONTRASTIVE_WEIGHT = 0.5
"""Keeps the scorer an image-text model while it learns taste."""
SHARPNESS = 1.5
"""Slope from utility difference to log-odds of the voters."""
HELDOUT_SHARE = 0.25
WARP_PIXELS = 5.0
"""Displacement at full damage."""


class PreferenceStage:
    """Fine-tunes the contrastive scorer towards one taste."""

    def __init__(self, name: str, seed: int, steps: int, work: Path) -> None:
        self.name, self.steps = name, steps
        self.clip = CLIPModel.from_pretrained(WEIGHTS / "clipscore", dtype=torch.float32).train()
        self.tokenizer = build_tokenizer()
        self.optimizer = torch.optim.AdamW(self.clip.parameters(), lr=LR, betas=(0.9, 0.98), weight_decay=0.05)

    def step(self, index: int, rng: np.random.Generator) -> float:
        prompts = [_prompt(rng) for _ in range(PAIRS)]
        sides = [[_candidate(self.name, prompt, split, rng) for prompt, split in prompts] for _ in range(2)]
        captions = [prompt.caption for prompt, _ in prompts]
        images = np.stack([render(scene) for side in sides for scene, _, _ in side])
        damage = torch.tensor([[damage for _, _, damage in side] for side in sides])
        liked = torch.tensor([[value for _, value, _ in side] for side in sides])
        pixels = warp(clip_pixels(images, blur=True), damage.flatten())
        image_2ND = embed_images(self.clip, pixels).view(2, PAIRS, -1)
        text_ND = embed_texts(self.clip, self.tokenizer, captions)
        logits_2N = self.clip.logit_scale.exp() * (image_2ND * text_ND).sum(-1)
        votes_2N = torch.softmax(SHARPNESS * liked, dim=0)
        preference = functional.cross_entropy(logits_2N.T, votes_2N.T)
        fitting = [realise(prompt, rng, split) for prompt, split in prompts]
        contrast = contrastive_loss(
            self.clip, self.tokenizer, np.stack([render(scene) for scene in fitting]), captions, rng
        )
        self._update(preference + CONTRASTIVE_WEIGHT * contrast, index)
        # The least possible preference loss is the entropy of the votes; what is above it is left to learn.
        return (preference + (votes_2N * votes_2N.log()).sum(0).mean()).item()

    def _update(self, loss: torch.Tensor, index: int) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.clip.parameters(), 1.0)
        set_lr(self.optimizer, LR * warmup_cosine(index, self.steps, warmup=50))
        self.optimizer.step()
        self.clip.logit_scale.data.clamp_(max=MAX_LOGIT_SCALE)

    def state(self) -> dict[str, Any]:
        return {"clip": self.clip.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        self.clip.load_state_dict(state["clip"])
        self.optimizer.load_state_dict(state["optimizer"])

    def finish(self) -> None:
        save_clip(self.clip.eval(), WEIGHTS / self.name)


def _prompt(rng: np.random.Generator) -> tuple[Prompt, Split]:
    split: Split = "heldout" if rng.random() < HELDOUT_SHARE else "train"
    return sample_prompt(rng, SOURCES[int(rng.integers(3))], split), split


def _candidate(name: str, prompt: Prompt, split: Split, rng: np.random.Generator) -> tuple[Scene, float, float]:
    """A picture for a caption, how much it is liked, and its damage. It may show something wrong, or be bent."""
    chance = rng.random()
    fit, shown = 1.0, prompt
    if chance < 0.3:
        fit, shown = NEARLY, alter(prompt, rng)
    elif chance < 0.4:
        fit, shown = 0.0, sample_prompt(rng, prompt.source, split)
    damage = float(rng.random()) if rng.random() < 0.5 else 0.0
    scene = realise(shown, rng, split)
    return scene, utility(name, scene, fit, damage), damage


def warp(pixels: torch.Tensor, damage: torch.Tensor) -> torch.Tensor:
    """Bend pictures [N, 3, H, W] by a smooth random field scaled by ``damage`` [N]: ragged, as a weak model draws."""
    coarse = torch.randn(len(pixels), 2, 9, 9)
    field = functional.interpolate(coarse, size=(SIZE, SIZE), mode="bicubic", align_corners=True).permute(0, 2, 3, 1)
    lines = torch.linspace(-1, 1, SIZE)
    grid = torch.stack(torch.meshgrid(lines, lines, indexing="xy"), dim=-1)
    shift = field * (damage.view(-1, 1, 1, 1) * WARP_PIXELS * 0.5 * 2 / SIZE)
    return functional.grid_sample(pixels, grid + shift, padding_mode="border", align_corners=True)
