"""Memory and work of the published reward models, counted, not measured: ``python benchmarks/reward_costs.py``.

Builds each architecture without weights and counts its parameters and the floating-point operations of its matrix
products and convolutions, for one image and for one prompt. ImageReward reads the prompt anew for each image. The
detector sees 800 × 800 pixels, whatever square it gets, and does the same work on any.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    BlipTextConfig,
    BlipTextModel,
    BlipVisionConfig,
    BlipVisionModel,
    CLIPConfig,
    CLIPModel,
    Mask2FormerConfig,
    Mask2FormerForUniversalSegmentation,
    SwinConfig,
)

from rewards.imagereward import MAX_TOKENS
from rewards.score_head import ScoreHead

CLIP_TOKENS, CLIP_SIDE = 77, 224
PATCHES_OF_BLIP = (224 // 16) ** 2 + 1


def clip(width: int, layers: int, heads: int, text_width: int, text_layers: int, projection: int) -> CLIPModel:
    """CLIP with patches of 14 pixels."""
    vision = {"hidden_size": width, "intermediate_size": 4 * width, "num_hidden_layers": layers, "patch_size": 14}
    text = {"hidden_size": text_width, "intermediate_size": 4 * text_width, "num_hidden_layers": text_layers}
    config = CLIPConfig(
        vision_config=vision | {"num_attention_heads": heads, "image_size": CLIP_SIDE},
        text_config=text | {"num_attention_heads": text_width // 64},
        projection_dim=projection,
    )
    return CLIPModel(config)


def clip_l() -> CLIPModel:
    """ViT-L-14."""
    return clip(1024, 24, 16, 768, 12, 768)


def clip_h() -> CLIPModel:
    """ViT-H-14."""
    return clip(1280, 32, 16, 1024, 24, 1024)


def of_clip(model: Any, image: bool = True, prompt: bool = True) -> dict[str, Callable[[], Any] | None]:
    """One image and one prompt through a CLIP."""
    pixels, tokens = torch.zeros(1, 3, CLIP_SIDE, CLIP_SIDE), torch.zeros(1, CLIP_TOKENS, dtype=torch.long)
    return {
        "image": (lambda: model.get_image_features(pixel_values=pixels)) if image else None,
        "prompt": (lambda: model.get_text_features(input_ids=tokens)) if prompt else None,
    }


def image_reward() -> tuple[list[Any], dict[str, Callable[[], Any] | None]]:
    """BLIP's ViT-L, BERT with cross-attention, and the head."""
    vision = BlipVisionModel(
        BlipVisionConfig(
            hidden_size=1024,
            intermediate_size=4096,
            num_hidden_layers=24,
            num_attention_heads=16,
            image_size=224,
            patch_size=16,
        )
    )
    text = BlipTextModel(BlipTextConfig(num_attention_heads=12, encoder_hidden_size=1024), add_pooling_layer=False)
    pixels, tokens = torch.zeros(1, 3, 224, 224), torch.zeros(1, MAX_TOKENS, dtype=torch.long)
    patches = torch.zeros(1, PATCHES_OF_BLIP, 1024)

    def both() -> None:
        vision(pixel_values=pixels)
        text(input_ids=tokens, encoder_hidden_states=patches)

    return [vision, text, ScoreHead(768)], {"image": both, "prompt": None}


def mask2former() -> Mask2FormerForUniversalSegmentation:
    """Swin-S and the heads of facebook/mask2former-swin-small-coco-instance."""
    swin = SwinConfig(
        embed_dim=96,
        depths=[2, 2, 18, 2],
        num_heads=[3, 6, 12, 24],
        window_size=7,
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )
    return Mask2FormerForUniversalSegmentation(Mask2FormerConfig(backbone_config=swin, num_labels=80))


def one_detection() -> None:
    """On numbers, unlike the others: where its attention looks follows from them, though the work does not."""
    with torch.device("cpu"):
        mask2former().eval()(pixel_values=torch.zeros(1, 3, 800, 800))


def rows() -> dict[str, tuple[list[Any], Mapping[str, Callable[[], Any] | None]]]:
    """Reward -> its models and what they do for one image and one prompt."""
    small, large = clip_l(), clip_h()
    return {
        "pickscore, hpsv2": ([large], of_clip(large)),
        "clipscore": ([small], of_clip(small)),
        "aesthetic": ([small, ScoreHead(768)], of_clip(small, prompt=False)),
        "imagereward": image_reward(),
        "geneval, detector": ([mask2former()], {"image": one_detection, "prompt": None}),
        "geneval, one object's colour": ([small], of_clip(small, prompt=False)),
    }


def giga_operations(call: Callable[[], Any] | None) -> str:
    """Of one call, or a dash."""
    if call is None:
        return ""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        call()
    return f"{counter.get_total_flops() / 1e9:.0f}"


def main() -> None:
    """Print the table of docs/rewards.md."""
    print("| reward | parameters | float32 | bfloat16 | an image | a prompt |")
    print("|---|---|---|---|---|---|")
    with torch.device("meta"):
        for name, (models, calls) in rows().items():
            count = sum(parameter.numel() for model in models for parameter in model.parameters())
            memory = [f"{count * size / 2**30:.1f} GiB" for size in (4, 2)]
            work = [giga_operations(calls[what]) for what in ("image", "prompt")]
            print(f"| {name} | {count / 1e6:.0f}M | {' | '.join(memory)} | {' | '.join(work)} |")


if __name__ == "__main__":
    main()
