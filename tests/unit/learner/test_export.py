"""LoRA files: plain diffusers gives the policy's image at full strength; incomplete files are refused (FAULTS 3)."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import StableDiffusion3Pipeline
from safetensors import safe_open
from safetensors.torch import save_file

from learner import adapters
from learner.config import SD3_ATTENTION_TARGETS, LoraConfig, SamplingConfig
from learner.errors import UserError
from learner.export import FILE_NAME, METADATA_KEY, load_lora, save_lora
from learner.noise import generator, sample_seed
from learner.policy import Policy
from learner.sampler import sample_latents
from learner.types import RolloutTask
from tests.unit.learner.batches import policy_config

EVERY_LINEAR = (
    *SD3_ATTENTION_TARGETS,
    *(f"attn2.{name}" for name in ("to_q", "to_k", "to_v", "to_out.0")),
    *("ff.net.0.proj", "ff.net.2", "ff_context.net.0.proj", "ff_context.net.2"),
)
TASK = RolloutTask("eval", 0, 7, np.array([0, 1]), ("a red sign", "two cats"))


def trained(folder: Path, lora: LoraConfig, seed: int = 1) -> tuple[Policy, dict[str, torch.Tensor]]:
    """A policy whose `default` has random lora_A and lora_B."""
    policy = Policy.load(policy_config(folder, lora=lora), ("default",))
    tensors = adapters.read(policy.transformer, "default")
    draws = generator(seed)
    for value in tensors.values():
        value.normal_(std=0.2, generator=draws)
    adapters.write(policy.transformer, "default", tensors)
    return policy, tensors


def plain_pipeline(folder: Path) -> StableDiffusion3Pipeline:
    """As a user without this project loads it."""
    pipeline = StableDiffusion3Pipeline.from_pretrained(
        folder, text_encoder_3=None, tokenizer_3=None, dtype=torch.float32
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def draw(pipeline: StableDiffusion3Pipeline) -> torch.Tensor:
    """[2, 3, 32, 32] in [0, 1], by seed only."""
    images: torch.Tensor = pipeline(
        prompt=list(TASK.prompts),
        num_inference_steps=4,
        guidance_scale=1.0,
        height=32,
        width=32,
        max_sequence_length=0,
        generator=[torch.Generator().manual_seed(sample_seed(7, "eval", 0, i)) for i in (0, 1)],
        output_type="pt",
    ).images
    return images


@pytest.mark.parametrize(
    "lora",
    [LoraConfig(rank=4, alpha=8.0), LoraConfig(rank=3, alpha=4.5), LoraConfig(rank=2, alpha=4.0, targets=EVERY_LINEAR)],
    ids=["double", "half", "every-linear"],
)
def test_plain_diffusers_gives_the_policys_image(lora: LoraConfig, tiny_folder: Path, tmp_path: Path) -> None:
    """FAULTS 3: within 1e-5 before quantisation, not the base's image, and the scaling reads back as alpha / rank."""
    policy, tensors = trained(tiny_folder, lora)
    save_lora(tmp_path, tensors, lora)
    pipeline = plain_pipeline(tiny_folder)
    base = draw(pipeline)
    pipeline.load_lora_weights(tmp_path)
    expected = policy.decode_float(sample_latents(policy, TASK, SamplingConfig(steps=4)))
    found = draw(pipeline)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert (found - base).abs().max() > 1e-2
    scalings = {s for m in pipeline.transformer.modules() for s in getattr(m, "scaling", {}).values()}
    assert scalings == {lora.alpha / lora.rank}


def test_reading_back_gives_the_same_bits(tiny_folder: Path, tmp_path: Path) -> None:
    lora = LoraConfig(rank=4, alpha=6.0)
    _, tensors = trained(tiny_folder, lora)
    file = save_lora(tmp_path / "deep" / "er", tensors, lora, {"max_sequence_length": "0"})
    for path in (file, file.parent, str(file)):
        loaded = load_lora(path)
        assert (loaded.rank, loaded.alpha) == (4, 6.0)
        assert adapters.hash_tensors(loaded.tensors) == adapters.hash_tensors(tensors)
    assert len(loaded.modules) == len(tensors) // 2
    with safe_open(file, "pt") as opened:
        assert opened.metadata()["max_sequence_length"] == "0"
    assert [path.name for path in file.parent.iterdir()] == [FILE_NAME]


def small() -> dict[str, torch.Tensor]:
    return {"transformer.x.lora_A.weight": torch.ones(2, 5), "transformer.x.lora_B.weight": torch.ones(3, 2)}


def test_without_alpha_it_is_the_rank(tmp_path: Path) -> None:
    save_file(small(), tmp_path / "other.safetensors")
    assert load_lora(tmp_path).alpha == 2.0


def with_metadata(**fields: object) -> dict[str, str]:
    return {METADATA_KEY: json.dumps({f"transformer.{key}": value for key, value in fields.items()})}


@pytest.mark.parametrize(
    ("tensors", "metadata", "message"),
    [
        (lambda t: dict(list(t.items())[:1]), {}, r"lacks transformer.x.lora_B.weight, the partner of"),
        (lambda t: {**t, "text_encoder.y.lora_A.weight": torch.ones(1)}, {}, r"no LoRA of an SD3 .*\['text_encoder"),
        (lambda t: {"lora_unet_x.lora_down.weight": torch.ones(1)}, {}, r"\['lora_unet_x"),
        (lambda t: {}, {"format": "pt"}, "it is empty"),
        (
            lambda t: {**t, **{k.replace("x", "y"): torch.ones(4, 4) for k in t}},
            {},
            r"different ranks \(2, 4\); one is supported",
        ),
        (lambda t: t, with_metadata(rank_pattern={"x": 3}), "uses rank_pattern, which is not supported"),
        (lambda t: t, with_metadata(use_dora=True, r=2), "uses use_dora"),
        (lambda t: t, with_metadata(r=7), "says rank 7 but holds matrices of rank 2"),
        (lambda t: t, {METADATA_KEY: "{"}, "broken lora_adapter_metadata"),
        (lambda t: t, {METADATA_KEY: "[]"}, "broken lora_adapter_metadata: expected an object, got list"),
        (lambda t: t, {METADATA_KEY: "null"}, "expected an object, got NoneType"),
        (lambda t: t, {METADATA_KEY: "3"}, "expected an object, got int"),
        (lambda t: t, {METADATA_KEY: "[" * 100_000}, "broken lora_adapter_metadata: nested too deeply"),
        (lambda t: t, with_metadata(r="2"), "says rank '2' but holds matrices of rank 2"),
        (lambda t: t, with_metadata(r=None), "says rank None but holds"),
        (lambda t: t, with_metadata(r=True), "says rank True but holds"),
        (lambda t: t, with_metadata(lora_alpha="x"), "says lora_alpha 'x', which is no positive number"),
        (lambda t: t, with_metadata(lora_alpha=None), "says lora_alpha None"),
        (lambda t: t, with_metadata(lora_alpha=True), "says lora_alpha True"),
        (lambda t: t, with_metadata(lora_alpha=0), "says lora_alpha 0, which"),
        (lambda t: t, with_metadata(lora_alpha=-3), "says lora_alpha -3, which"),
        (lambda t: t, with_metadata(lora_alpha=float("nan")), "says lora_alpha nan"),
        (lambda t: t, with_metadata(lora_alpha=float("inf")), "says lora_alpha inf"),
        (lambda t: {k: torch.tensor(1.0) for k in t}, {}, r"x.lora_A.weight is no matrix of real numbers: shape \[\]"),
        (lambda t: {k: torch.ones(3) for k in t}, {}, r"x.lora_A.weight is no matrix of real numbers: shape \[3\]"),
        (lambda t: {k: torch.ones(2, 2, 1) for k in t}, {}, r"no matrix of real numbers: shape \[2, 2, 1\]"),
        (lambda t: {k: v[:0] if "_A" in k else v[:, :0] for k, v in t.items()}, {}, r"no matrix .* shape \[0, 5\]"),
        (lambda t: {k: v.int() for k, v in t.items()}, {}, r"no matrix of real numbers: shape \[2, 5\], int32"),
        (lambda t: {k: v.to(torch.complex64) for k, v in t.items()}, {}, "no matrix of real numbers: .* complex64"),
        (lambda t: {k: v * float("nan") for k, v in t.items()}, {}, "x.lora_A.weight holds values that are not finite"),
    ],
)
def test_files_that_cannot_be_continued_are_refused(
    tensors: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]],
    metadata: dict[str, str],
    message: str,
    tmp_path: Path,
) -> None:
    save_file(tensors(small()), tmp_path / FILE_NAME, metadata=metadata)
    with pytest.raises(UserError, match=message):
        load_lora(tmp_path)


def test_files_that_are_not_there_or_broken(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no LoRA file or folder"):
        load_lora(tmp_path / "none")
    with pytest.raises(UserError, match="holds 0 safetensors files"):
        load_lora(tmp_path)
    (tmp_path / FILE_NAME).write_bytes(b"junk" * 10)
    with pytest.raises(UserError, match="no readable safetensors file"):
        load_lora(tmp_path)
