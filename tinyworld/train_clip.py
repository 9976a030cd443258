"""Stage ``clip``: the scorer ``clipscore``, contrastively on pictures and captions with hard negative captions.

It learns from seen and unseen prompts: a reward judges what the generator has never drawn as well as anything else.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from transformers import CLIPModel, CLIPTokenizer

from tinyworld.loop import set_lr, warmup_cosine
from tinyworld.negatives import corrupt
from tinyworld.pipeline import WEIGHTS, build_clip, image_processor, save_clip
from tinyworld.pool import PoolSpec, load_pool
from tinyworld.tokenizer import MAX_TOKENS, build_tokenizer

CLIP_POOL = PoolSpec("clip", seed=13, size=30_000, source_weights=(0.35, 0.25, 0.4), unseen_share=0.25)
BATCH = 96
LR = 1e-3
MAX_LOGIT_SCALE = 4.6
"""Logarithm of 100, CLIP's own limit."""


class ClipStage:
    """Contrastive training; the n-th picture competes for 2n captions, half of them hard negatives."""

    name = "clip"

    def __init__(self, seed: int, steps: int, work: Path) -> None:
        self.steps = steps
        self.clip = build_clip(seed).train()
        self.tokenizer = build_tokenizer()
        self.optimizer = torch.optim.AdamW(self.clip.parameters(), lr=LR, betas=(0.9, 0.98), weight_decay=0.05)
        self.images, self.captions = load_pool(CLIP_POOL, work)

    def step(self, index: int, rng: np.random.Generator) -> float:
        picked = np.sort(rng.choice(len(self.captions), BATCH, replace=False))
        captions = [self.captions[i] for i in picked]
        texts = [*captions, *(corrupt(caption, rng) for caption in captions)]
        image_ND = embed_images(self.clip, clip_pixels(self.images[picked], blur=True))
        text_MD = embed_texts(self.clip, self.tokenizer, texts)
        loss = contrastive_loss(self.clip.logit_scale.exp() * image_ND @ text_MD.T, texts)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.clip.parameters(), 1.0)
        set_lr(self.optimizer, LR * warmup_cosine(index, self.steps))
        self.optimizer.step()
        self.clip.logit_scale.data.clamp_(max=MAX_LOGIT_SCALE)
        return loss.item()

    def state(self) -> dict[str, Any]:
        return {"clip": self.clip.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        self.clip.load_state_dict(state["clip"])
        self.optimizer.load_state_dict(state["optimizer"])

    def finish(self) -> None:
        save_clip(self.clip.eval(), WEIGHTS / "clipscore")


def contrastive_loss(logits_NM: torch.Tensor, texts: Sequence[str]) -> torch.Tensor:
    """CLIP's symmetric loss over N pictures and M texts, of which the first N are the pictures' own captions."""
    count = len(logits_NM)
    own = torch.arange(count)
    # The same caption may occur twice in a batch; its twin is no negative.
    twin_NM = torch.tensor([[text == caption for text in texts] for caption in texts[:count]])
    twin_NM[own, own] = False
    logits_NM = logits_NM.masked_fill(twin_NM, -1e4)
    of_image = functional.cross_entropy(logits_NM, own)
    return 0.5 * (of_image + functional.cross_entropy(logits_NM[:, :count].T, own))


def embed_images(clip: CLIPModel, pixels: torch.Tensor) -> torch.Tensor:
    """Unit embeddings [N, D] of normalised pixels [N, 3, H, W]."""
    return functional.normalize(clip.get_image_features(pixel_values=pixels).pooler_output, dim=-1)


def embed_texts(clip: CLIPModel, tokenizer: CLIPTokenizer, texts: Sequence[str]) -> torch.Tensor:
    """Unit embeddings [M, D] of texts."""
    batch = tokenizer(list(texts), padding="max_length", truncation=True, max_length=MAX_TOKENS, return_tensors="pt")
    features = clip.get_text_features(input_ids=batch.input_ids, attention_mask=batch.attention_mask)
    return functional.normalize(features.pooler_output, dim=-1)


def clip_pixels(images: np.ndarray[Any, Any], blur: bool = False) -> torch.Tensor:
    """uint8 [N, H, W, 3] to CLIP's normalised [N, 3, H, W].

    With ``blur`` each picture is blended with its blurred self by a random share: generated pictures are less crisp
    than drawn ones, and the scorers must not see that as a wrong caption.
    """
    processor = image_processor()
    pixels = torch.tensor(images).permute(0, 3, 1, 2).float() / 255
    if blur:
        soft = functional.avg_pool2d(functional.pad(pixels, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
        share = torch.rand(len(pixels), 1, 1, 1)
        pixels = (pixels + share * (soft - pixels) + 0.02 * torch.rand(1) * torch.randn_like(pixels)).clamp(0, 1)
    mean = torch.tensor(processor.image_mean).view(3, 1, 1)
    std = torch.tensor(processor.image_std).view(3, 1, 1)
    return (pixels - mean) / std
