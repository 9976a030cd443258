"""Models of the held-out scorers: they judge runs and never train them, so nothing of them is the training scorers'.

``heldout_clip`` has an architecture, a seed and a stream of pictures of its own. ``aesthetic`` is an image tower with a
head in the format of LAION's predictor; its text tower is only there because the format has one. ``strict_detector`` is
a small network (``spot_net``) where GenEval's training detector is a rule about colours.
"""

from typing import Final

import torch
from transformers import CLIPConfig, CLIPModel, CLIPVisionConfig

from tinyworld.pipeline import PROJECTION, build_text_config
from tinyworld.scene import SIZE
from tinyworld.tokenizer import build_tokenizer

HELDOUT: Final = ("heldout_clip", "aesthetic", "strict_detector")
"""Folders of the held-out scorers' weights."""
HEAD_FILE: Final = "head.pth"
"""Of ``aesthetic``: the head, as LAION's is published, beside the CLIP."""


def build_heldout_clip(seed: int) -> CLIPModel:
    """Narrower and deeper than ``pipeline.build_clip``, random weights (fp32)."""
    return _build(seed, text_width=96, text_layers=4)


def build_aesthetic_clip(seed: int) -> CLIPModel:
    """The image tower of :func:`build_heldout_clip` with the smallest text tower."""
    return _build(seed, text_width=32, text_layers=1)


def _build(seed: int, text_width: int, text_layers: int) -> CLIPModel:
    vision = CLIPVisionConfig(
        hidden_size=96,
        intermediate_size=288,
        projection_dim=PROJECTION,
        num_hidden_layers=5,
        num_attention_heads=3,
        image_size=SIZE,
        patch_size=8,
        hidden_act="gelu",
    )
    text = build_text_config(build_tokenizer(), text_width, text_layers)
    config = CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=PROJECTION)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = CLIPModel(config)
    return model.eval()
