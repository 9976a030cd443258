"""What CLIP-family scoring costs beside the bare model: ``python benchmarks/clip_overhead.py [--json] [options]``.

A randomly weighted CLIP of a published size scores images of 512 pixels, 24 to a prompt as in training, from bytes to
cells. The bare model gets the same pixels and tokens ready made, in the same passes. They take turns; `clip_ratio` is
the ratio of the fastest turns, for the dearer of the two pipelines (CLIP's crop, HPSv2's padding).
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor
from transformers import CLIPConfig, CLIPModel, PreTrainedTokenizerFast

from rewards.clip import ClipScorer, features
from rewards.clip_checkpoint import ClipCheckpoint
from rewards.preprocess import Preprocess
from rewards.scorer_args import ClipArgs

SIDE, MAX_TOKENS, IMAGES_A_PROMPT, SEED = 224, 77, 24, 0
VOCAB_SIZE = 49408
SIZES = {
    # (vision width, layers, heads, patch), (text width, layers, heads), projection
    "vit_b_32": ((768, 12, 12, 32), (512, 12, 8), 512),
    "vit_l_14": ((1024, 24, 16, 14), (768, 12, 12), 768),
    "vit_h_14": ((1280, 32, 16, 14), (1024, 24, 16), 1024),
}
CROP = Preprocess("crop", SIDE, SIDE)
PAD = replace(CROP, fit="pad", rounded=False)


class Cosine(ClipScorer):
    """The plainest score of a CLIP."""

    def score(self, cosine_N: Tensor) -> Tensor:
        """The cosines [N] themselves."""
        return cosine_N


def random_clip(size: str, device: str, dtype: str) -> ClipCheckpoint:
    """A CLIP of a published size with random weights and a tokenizer of numbers."""
    (width, layers, heads, patch), (text_width, text_layers, text_heads), projection = SIZES[size]
    vision = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads, "patch_size": patch}
    text = {"hidden_size": text_width, "num_hidden_layers": text_layers, "num_attention_heads": text_heads}
    config = CLIPConfig(
        vision_config=vision | {"intermediate_size": 4 * width, "image_size": SIDE},
        text_config=text | {"intermediate_size": 4 * text_width, "vocab_size": VOCAB_SIZE},
        projection_dim=projection,
    )
    torch.manual_seed(SEED)
    model = CLIPModel(config).to(device=device, dtype=getattr(torch, dtype)).eval()
    return ClipCheckpoint(model, _tokenizer(), MAX_TOKENS, CROP)


def _tokenizer() -> PreTrainedTokenizerFast:
    """Words are numbers below 100; the special tokens have CLIP's own ids, so that its text tower finds the end."""
    start, end = VOCAB_SIZE - 2, VOCAB_SIZE - 1
    words = {str(number): number for number in range(100)} | {"<s>": start, "</s>": end}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", start), ("</s>", end)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="</s>", model_max_length=MAX_TOKENS
    )


def bare_forward(scorer: Cosine, images: NDArray[np.uint8], prompts: list[str], batch_size: int) -> Callable[[], None]:
    """The model alone on ready pixels and tokens, in the scorer's own passes."""
    checkpoint, device = scorer._checkpoint, scorer._device
    model: Any = checkpoint.model
    passes = range(0, len(images), batch_size)
    pixels = [checkpoint.preprocess(images[i : i + batch_size], device).to(model.dtype) for i in passes]
    unique = list(dict.fromkeys(prompts))
    tokens = checkpoint.tokenizer(unique, padding="max_length", max_length=MAX_TOKENS, return_tensors="pt").to(device)

    def call() -> None:
        with torch.inference_mode():
            embedded = [features(model.get_image_features(pixel_values=part)) for part in pixels]
            embedded.append(features(model.get_text_features(**{name: tokens[name] for name in tokens})))
            torch.cat(embedded).float().cpu()

    return call


def measure(
    size: str | None = None,
    num_images: int = 256,
    device: str | None = None,
    dtype: str = "float32",
    batch_size: int = 32,
    rounds: int = 4,
) -> dict[str, Any]:
    """Ratios of scoring to the bare model, for both pipelines.

    Args:
        size: of SIZES; None is ViT-L-14 on a GPU and ViT-B-32 on a CPU, where it takes a minute a round.
        num_images: of 512 × 512 pixels.
        device: of torch; None is the GPU if there is one.
        dtype: of the model.
        batch_size: images a pass.
        rounds: turns of each; the fastest counts. The bare model has two a round.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    size = size or ("vit_b_32" if device == "cpu" else "vit_l_14")
    images = np.random.default_rng(SEED).integers(0, 256, (num_images, 512, 512, 3), dtype=np.uint8)
    prompts = [f"{i // IMAGES_A_PROMPT % 100} 7 12" for i in range(num_images)]
    checkpoint = random_clip(size, device, dtype)
    args = ClipArgs.model_validate({"checkpoint": size, "device": device, "dtype": dtype, "batch_size": batch_size})
    scorers = {name: Cosine(args, replace(checkpoint, preprocess=p)) for name, p in (("crop", CROP), ("pad", PAD))}
    calls = {"bare": bare_forward(scorers["crop"], images, prompts, batch_size)}
    for name, scorer in scorers.items():
        calls[name] = lambda scorer=scorer: scorer(images, prompts, [{}] * num_images)
    ratios = _ratios(calls, rounds)
    settings = {"size": size, "num_images": num_images, "device": device, "dtype": dtype, "batch_size": batch_size}
    return {"clip_ratio": max(ratios.values()), "ratios": ratios, **settings}


def _ratios(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Each call to the bare model, which has a turn before every other one. Fastest turns: work that is always the same
    is only ever slowed down by others, and a turn takes long enough for them to come."""
    others = [name for name in calls if name != "bare"]
    times: dict[str, list[float]] = {name: [] for name in calls}
    for name in others * rounds:
        for each in ("bare", name):
            times[each].append(_seconds(calls[each]))
    return {name: min(times[name]) / min(times["bare"]) for name in others}


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> int:
    """Command line; exit code 1 when the ratio is above the bound of 1.1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--device")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = measure(args.size, args.images, args.device, args.dtype, args.batch_size, args.rounds)
    if args.json:
        print(json.dumps(found))
    else:
        print(f"{found['size']} on {found['device']} in {found['dtype']}, {found['num_images']} images of 512 pixels")
        for name, ratio in found["ratios"].items():
            print(f"{name:5} {ratio:.3f} × the bare model")
    return int(found["clip_ratio"] > 1.1)


if __name__ == "__main__":
    sys.exit(main())
