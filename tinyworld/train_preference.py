"""Stages ``pickscore`` and ``hpsv2``: fine-tuned from ``clipscore`` on made-up preferences.

As PickScore was trained, with four pictures for one caption in place of two: a softmax over logit_scale · cos gives the
share of the votes of each. The votes come from ``preferences.utility``, so scores are smooth in every style.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional
from transformers import CLIPModel

from tinyworld.captions import Prompt, sample_prompt
from tinyworld.loop import set_lr, warmup_cosine
from tinyworld.negatives import corrupt
from tinyworld.pipeline import WEIGHTS, save_clip
from tinyworld.preferences import NEARLY, alter, utility
from tinyworld.render import render
from tinyworld.scene import SIZE, SOURCES
from tinyworld.splits import Kind
from tinyworld.tokenizer import build_tokenizer
from tinyworld.train_clip import MAX_LOGIT_SCALE, clip_pixels, contrastive_loss, embed_images, embed_texts
from tinyworld.world import realise

PROMPTS = 24
CANDIDATES = 4
"""Pictures for one prompt, among which the votes are shared out."""
LR = 6e-4
CONTRASTIVE_WEIGHT = 0.05
"""Keeps the scorer an image-text model while it learns taste."""
SHARPNESS = 1.5
"""Slope from utility to log-odds of the votes."""
UNSEEN_SHARE = 0.25
WARP_PIXELS = 5.0
"""Displacement at full damage."""


@dataclass(frozen=True)
class Candidate:
    """A picture that stands for election."""

    image: NDArray[np.uint8]
    """[64, 64, 3], not yet bent."""
    liked: float
    damage: float


class PreferenceStage:
    """Fine-tunes the contrastive scorer towards one taste."""

    def __init__(self, name: str, seed: int, steps: int, work: Path) -> None:
        self.name, self.steps = name, steps
        self.clip = CLIPModel.from_pretrained(WEIGHTS / "clipscore", dtype=torch.float32).train()
        self.tokenizer = build_tokenizer()
        self.optimizer = torch.optim.AdamW(self.clip.parameters(), lr=LR, betas=(0.9, 0.98), weight_decay=0.05)

    def step(self, index: int, rng: np.random.Generator) -> float:
        prompts = [_prompt(rng) for _ in range(PROMPTS)]
        # The first picture of each prompt fits and is drawn cleanly: the contrastive loss is taken on these.
        rows = [
            [_candidate(self.name, prompt, kind, rng, clean=column == 0) for column in range(CANDIDATES)]
            for prompt, kind in prompts
        ]
        damage = torch.tensor([[candidate.damage for candidate in row] for row in rows])
        votes = torch.softmax(SHARPNESS * torch.tensor([[candidate.liked for candidate in row] for row in rows]), dim=1)
        pixels = clip_pixels(np.stack([candidate.image for row in rows for candidate in row]), blur=True)
        images = embed_images(self.clip, warp(pixels, damage.flatten())).view(PROMPTS, CANDIDATES, -1)
        captions = [prompt.caption for prompt, _ in prompts]
        texts = [*captions, *(corrupt(caption, rng) for caption in captions)]
        embedded = embed_texts(self.clip, self.tokenizer, texts)
        scale = self.clip.logit_scale.exp()
        scores = scale * (images * embedded[:PROMPTS, None]).sum(-1)
        preference = functional.cross_entropy(scores, votes)
        contrast = contrastive_loss(scale * images[:, 0] @ embedded.T, texts)
        self._update(preference + CONTRASTIVE_WEIGHT * contrast, index)
        # The least possible preference loss is the entropy of the votes; what is above it is left to learn.
        return (preference + (votes * votes.log()).sum(1).mean()).item()

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


def _prompt(rng: np.random.Generator) -> tuple[Prompt, Kind]:
    kind: Kind = "unseen" if rng.random() < UNSEEN_SHARE else "seen"
    return sample_prompt(rng, SOURCES[int(rng.integers(3))], kind), kind


def _candidate(name: str, prompt: Prompt, kind: Kind, rng: np.random.Generator, clean: bool) -> Candidate:
    """A picture for a caption. Unless ``clean`` it may show something wrong, or be bent."""
    chance = 1.0 if clean else rng.random()
    fit, shown = 1.0, prompt
    if chance < 0.25:
        fit, shown = NEARLY, alter(prompt, rng)
    elif chance < 0.3:
        fit, shown = 0.0, sample_prompt(rng, prompt.source, kind)
    damage = 0.0 if clean or rng.random() < 0.5 else float(rng.random())
    scene = realise(shown, rng, kind)
    return Candidate(render(scene), utility(name, scene, fit, damage), damage)


def warp(pixels: torch.Tensor, damage: torch.Tensor) -> torch.Tensor:
    """Bend pictures [N, 3, H, W] by a smooth random field scaled by ``damage`` [N]: ragged, as a weak model draws."""
    coarse = torch.randn(len(pixels), 2, 9, 9)
    field = functional.interpolate(coarse, size=(SIZE, SIZE), mode="bicubic", align_corners=True).permute(0, 2, 3, 1)
    lines = torch.linspace(-1, 1, SIZE)
    grid = torch.stack(torch.meshgrid(lines, lines, indexing="xy"), dim=-1)
    shift = field * (damage.view(-1, 1, 1, 1) * WARP_PIXELS * 0.5 * 2 / SIZE)
    return functional.grid_sample(pixels, grid + shift, padding_mode="border", align_corners=True)
