"""Stages ``heldout_clip`` and ``aesthetic``: the held-out scorers that are CLIP models.

Both see pictures of a stream of their own, a little bent or blurred as generated ones are, and none of another scorer's
weights; ``aesthetic`` starts from the image tower of ``heldout_clip``.
"""

from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import CLIPModel

from rewards.aesthetic import aesthetic_score
from rewards.score_head import ScoreHead
from tinyworld.aesthetics import rating
from tinyworld.captions import sample_prompt
from tinyworld.judges import HEAD_FILE, build_aesthetic_clip, build_heldout_clip
from tinyworld.loop import set_lr, warmup_cosine
from tinyworld.negatives import corrupt
from tinyworld.pipeline import PROJECTION, WEIGHTS, save_clip
from tinyworld.render import render
from tinyworld.scene import SOURCES, Scene
from tinyworld.splits import Kind
from tinyworld.tokenizer import build_tokenizer
from tinyworld.train_clip import MAX_LOGIT_SCALE, clip_pixels, contrastive_loss, embed_images, embed_texts
from tinyworld.train_preference import UNSEEN_SHARE, warp
from tinyworld.world import realise

SEED_OFFSET: Final = 100
"""Added to the seed, so that these models and the training scorers start from other weights."""
CLIP_BATCH, CLIP_LR = 64, 1.2e-3
SLIGHT: Final = 0.25
"""Greatest damage of a picture that still shows what its caption says."""
RATED_BATCH, RATED_LR = 96, 5e-4


def draw_scene(rng: np.random.Generator) -> Scene:
    """A scene of any source, of seen and unseen prompts."""
    kind: Kind = "unseen" if rng.random() < UNSEEN_SHARE else "seen"
    return realise(sample_prompt(rng, SOURCES[int(rng.integers(3))], kind), rng, kind)


class HeldoutClipStage:
    """Contrastive training with hard negative captions, every picture drawn once."""

    name = "heldout_clip"

    def __init__(self, seed: int, steps: int, work: Path) -> None:
        self.steps = steps
        self.clip = build_heldout_clip(seed + SEED_OFFSET).train()
        self.tokenizer = build_tokenizer()
        self.optimizer = torch.optim.AdamW(self.clip.parameters(), lr=CLIP_LR, betas=(0.9, 0.98), weight_decay=0.05)

    def step(self, index: int, rng: np.random.Generator) -> float:
        scenes = [draw_scene(rng) for _ in range(CLIP_BATCH)]
        captions = [scene.caption for scene in scenes]
        texts = [*captions, *(corrupt(caption, rng) for caption in captions)]
        damage = torch.from_numpy(SLIGHT * rng.random(CLIP_BATCH)).float()
        pixels = warp(clip_pixels(np.stack([render(scene) for scene in scenes]), blur=True), damage)
        image_ND, text_MD = embed_images(self.clip, pixels), embed_texts(self.clip, self.tokenizer, texts)
        loss = contrastive_loss(self.clip.logit_scale.exp() * image_ND @ text_MD.T, texts)
        _descend(self.optimizer, loss, CLIP_LR * warmup_cosine(index, self.steps))
        self.clip.logit_scale.data.clamp_(max=MAX_LOGIT_SCALE)
        return loss.item()

    def state(self) -> dict[str, Any]:
        return {"clip": self.clip.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        self.clip.load_state_dict(state["clip"])
        self.optimizer.load_state_dict(state["optimizer"])

    def finish(self) -> None:
        save_clip(self.clip.eval(), WEIGHTS / self.name)


class AestheticStage:
    """The image tower and the head learn ratings from 1 to 10 by least squares.

    LAION's head was trained on a frozen tower that had seen the whole web; this one has never seen a badly drawn
    picture, so it learns with the head.
    """

    name = "aesthetic"

    def __init__(self, seed: int, steps: int, work: Path) -> None:
        self.steps = steps
        self.clip = build_aesthetic_clip(seed + SEED_OFFSET)
        start = CLIPModel.from_pretrained(WEIGHTS / "heldout_clip", dtype=torch.float32)
        for part in ("vision_model", "visual_projection"):
            getattr(self.clip, part).load_state_dict(getattr(start, part).state_dict())
        self.head = build_head(seed + SEED_OFFSET)
        towers = [*self.clip.vision_model.parameters(), *self.clip.visual_projection.parameters()]
        self.optimizer = torch.optim.AdamW([*towers, *self.head.parameters()], lr=RATED_LR, weight_decay=0.01)

    def step(self, index: int, rng: np.random.Generator) -> float:
        pixels, ratings = rated_pixels(rng, RATED_BATCH)
        embedding_ND = self.clip.get_image_features(pixel_values=pixels).pooler_output
        loss = functional.mse_loss(aesthetic_score(embedding_ND, self.head), ratings)
        _descend(self.optimizer, loss, RATED_LR * warmup_cosine(index, self.steps, warmup=50))
        return loss.item()

    def state(self) -> dict[str, Any]:
        return {
            "clip": self.clip.state_dict(),
            "head": self.head.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def load(self, state: dict[str, Any]) -> None:
        self.clip.load_state_dict(state["clip"])
        self.head.load_state_dict(state["head"])
        self.optimizer.load_state_dict(state["optimizer"])

    def finish(self) -> None:
        head = {key: tensor.half() for key, tensor in self.head.state_dict().items()}
        save_clip(self.clip.eval(), WEIGHTS / self.name, lambda folder: torch.save(head, folder / HEAD_FILE))


def build_head(seed: int) -> ScoreHead:
    """LAION's head for embeddings of this world's width, random (fp32), starting at the middle of the scale."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        head = ScoreHead(PROJECTION)
    last = head.layers[-1]
    assert isinstance(last, nn.Linear)
    nn.init.constant_(last.bias, 5.5)
    # In eval mode also while it learns: half of a linear map of 16 numbers dropped would be noise and nothing else.
    return head.eval()


def rated_pixels(rng: np.random.Generator, count: int) -> tuple[Tensor, Tensor]:
    """Normalised pixels [N, 3, 64, 64] and ratings [N]; half of the pictures are drawn cleanly, the others bent."""
    scenes = [draw_scene(rng) for _ in range(count)]
    damage = np.where(rng.random(count) < 0.5, 0.0, rng.random(count))
    ratings = [rating(scene, float(bent)) for scene, bent in zip(scenes, damage, strict=True)]
    pixels = clip_pixels(np.stack([render(scene) for scene in scenes]), blur=True)
    return warp(pixels, torch.from_numpy(damage).float()), torch.tensor(ratings)


def _descend(optimizer: torch.optim.Optimizer, loss: Tensor, lr: float) -> None:
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], 1.0)
    set_lr(optimizer, lr)
    optimizer.step()
