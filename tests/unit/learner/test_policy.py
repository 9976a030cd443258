"""Loading, encoding, decoding; bad folders in one line (FAULTS 3, 13)."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from learner import adapters
from learner.config import LoraConfig
from learner.errors import PolicyError
from learner.export import save_lora
from learner.policy import Policy, to_uint8
from tests.unit.learner.batches import policy_config
from tests.unit.learner.tiny_sd3 import LATENT_SHAPE, MAX_TOKENS, TEXT_WIDTHS, tiny_sd3

LORA = LoraConfig(rank=4, alpha=6.0)


@pytest.fixture(scope="module")
def policy(tiny_folder: Path) -> Policy:
    return Policy.load(policy_config(tiny_folder), ("default", "old"))


def test_fp16_weights_without_t5_load_as_frozen_float32(policy: Policy) -> None:
    assert policy.latent_shape == LATENT_SHAPE
    pipeline = policy.pipeline()
    models = [pipeline.transformer, pipeline.vae, pipeline.text_encoder, pipeline.text_encoder_2]
    assert pipeline.text_encoder_3 is None
    assert {p.dtype for model in models for p in model.parameters()} == {torch.float32}
    assert not any(model.training for model in models)
    trainable = [name for model in models for name, p in model.named_parameters() if p.requires_grad]
    assert len(trainable) == 2 * adapters.num_target_modules(policy.transformer)


def test_bfloat16_base(tiny_folder: Path) -> None:
    policy = Policy.load(policy_config(tiny_folder, dtype="bfloat16"), ("default",))
    assert policy.dtype == torch.bfloat16
    velocity = policy.velocity(torch.zeros(1, *LATENT_SHAPE), torch.tensor([0.5]), policy.encode(["a"]))
    assert velocity.dtype == torch.float32
    assert policy.decode(torch.zeros(1, *LATENT_SHAPE)).shape == (1, 32, 32, 3)


def test_parts_can_be_left_out(tiny_folder: Path) -> None:
    policy = Policy.load(policy_config(tiny_folder), (), with_vae=False, with_text=False)
    assert policy.latent_shape == LATENT_SHAPE
    with pytest.raises(ValueError, match="without its VAE"):
        policy.decode(torch.zeros(1, *LATENT_SHAPE))
    with pytest.raises(ValueError, match="without text encoders"):
        policy.encode(["a"])


def test_encoding_is_the_pipelines_own(policy: Policy) -> None:
    prompts = ["a red sign", "two cats"]
    found = policy.encode(prompts)
    expected, _, pooled, _ = policy.pipeline().encode_prompt(
        prompts, None, None, do_classifier_free_guidance=False, max_sequence_length=0
    )
    torch.testing.assert_close(found.prompt_NLD, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(found.pooled_NP, pooled, atol=1e-5, rtol=0)
    assert found.prompt_NLD.shape == (2, MAX_TOKENS, sum(TEXT_WIDTHS))


def test_a_prompts_embedding_does_not_depend_on_company_or_cache(tiny_folder: Path, policy: Policy) -> None:
    fresh = Policy.load(policy_config(tiny_folder), (), with_vae=False)
    alone = fresh.encode(["two cats"])
    together = policy.encode(["a red sign", "two cats", "two cats"])
    again = policy.encode(["two cats"])
    for row in (together.prompt_NLD[1], together.prompt_NLD[2], again.prompt_NLD[0]):
        assert torch.equal(row, alone.prompt_NLD[0])


def test_the_text_cache_is_bounded(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learner.policy.TEXT_CACHE_SIZE", 2)
    policy = Policy.load(policy_config(tiny_folder), (), with_vae=False)
    rows = policy.encode(["a", "b", "c", "a"]).prompt_NLD
    assert torch.equal(rows[0], rows[3])
    assert list(policy._texts) == ["c", "a"]


def test_max_sequence_length_appends_tokens_and_changes_the_image(tiny_folder: Path, policy: Policy) -> None:
    longer = Policy.load(policy_config(tiny_folder, max_sequence_length=5), (), with_vae=False)
    assert longer.encode(["a"]).prompt_NLD.shape[1] == MAX_TOKENS + 5
    x, sigma = torch.ones(1, *LATENT_SHAPE), torch.tensor([0.7])
    with torch.no_grad(), adapters.using(policy.transformer, None):
        short = policy.velocity(x, sigma, policy.encode(["a"]))
        long = longer.velocity(x, sigma, longer.encode(["a"]))
    assert not torch.allclose(short, long, atol=1e-4)


def test_decoding_equals_the_pipeline(policy: Policy) -> None:
    latents = torch.randn(3, *LATENT_SHAPE, generator=torch.Generator().manual_seed(0))
    pipeline = policy.pipeline()
    with torch.no_grad():
        decoded = pipeline.vae.decode(latents / 1.5 + 0.1, return_dict=False)[0]
    expected = pipeline.image_processor.postprocess(decoded, output_type="pt")
    torch.testing.assert_close(policy.decode_float(latents), expected, atol=1e-6, rtol=0)
    bytes_ = np.stack([np.asarray(image) for image in pipeline.image_processor.postprocess(decoded, output_type="pil")])
    assert np.array_equal(policy.decode(latents), bytes_)


def test_quantisation_rounds_and_puts_channels_last() -> None:
    image = torch.zeros(1, 3, 2, 2)
    image[0, 1, 0, 1] = 0.4 / 255 + 100 / 255
    image[0, 2, 1, 0] = 1.0
    found = to_uint8(image)
    assert found.shape == (1, 2, 2, 3)
    assert found[0, 0, 1].tolist() == [0, 100, 0]
    assert found[0, 1, 0].tolist() == [0, 0, 255]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1.01, -0.5, 255.0])
def test_pixels_out_of_range_raise(value: float) -> None:
    """FAULTS 13."""
    image = torch.full((1, 3, 2, 2), 0.5)
    image[0, 0, 0, 0] = value
    with pytest.raises(ValueError, match=r"1 of 12 pixel values are not in \[0, 1\]"):
        to_uint8(image)


def test_latents_that_are_not_finite_raise(policy: Policy) -> None:
    latents = torch.zeros(1, *LATENT_SHAPE)
    latents[0, 0, 0, 0] = float("nan")
    with pytest.raises(ValueError, match="pixel values are not in"):
        policy.decode(latents)


def copied(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])


def drop_weight(folder: Path, part: str, file: str) -> None:
    tensors = load_file(folder / part / file)
    tensors.pop(sorted(tensors)[0])
    save_file(tensors, folder / part / file, metadata={"format": "pt"})


def edit_index(folder: Path, **changes: object) -> None:
    path = folder / "model_index.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def edit_config(folder: Path, part: str, **changes: object) -> None:
    path = folder / part / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_constant_that_older_checkpoints_store_is_no_fault(tiny_folder: Path, tmp_path: Path) -> None:
    folder = copied(tiny_folder, tmp_path)
    file = folder / "text_encoder" / "model.safetensors"
    positions = {"text_model.embeddings.position_ids": torch.arange(8)[None]}
    save_file({**load_file(file), **positions}, file, metadata={"format": "pt"})
    Policy.load(policy_config(folder), ())


@pytest.mark.parametrize(
    ("breakage", "message"),
    [
        (lambda f: (f / "model_index.json").unlink(), "no folder in diffusers' format: it has no model_index.json"),
        (lambda f: (f / "model_index.json").write_text("{"), "cannot load model_index.json"),
        (lambda f: edit_index(f, _class_name="FluxPipeline"), "is a FluxPipeline, expected a StableDiffusion3Pipeline"),
        (
            lambda f: edit_index(f, transformer=["diffusers", "FluxTransformer2DModel"]),
            "expected SD3Transformer2DModel",
        ),
        (lambda f: (f / "model_index.json").write_text("[]"), r"model_index.json"),
        (lambda f: (f / "model_index.json").write_text("3"), r"model_index.json"),
        (lambda f: edit_index(f, transformer=[]), r"has transformer \[\], expected \[library, class\]"),
        (lambda f: edit_index(f, vae=[]), r"has vae \[\], expected \[library, class\]"),
        (lambda f: edit_index(f, vae=[None, None]), "leaves out vae, which a StableDiffusion3Pipeline needs"),
        (lambda f: edit_index(f, text_encoder=None), "leaves out text_encoder, which"),
        (lambda f: shutil.rmtree(f / "vae"), "cannot load vae"),
        (lambda f: cut(f / "transformer" / "diffusion_pytorch_model.safetensors"), "cannot load transformer"),
        (lambda f: cut(f / "text_encoder" / "model.safetensors"), "cannot load text_encoder"),
        (lambda f: (f / "transformer" / "diffusion_pytorch_model.safetensors").unlink(), "cannot load transformer"),
        (
            lambda f: drop_weight(f, "transformer", "diffusion_pytorch_model.safetensors"),
            "transformer lacks 1 weights, first context_embedder.bias",
        ),
        (lambda f: drop_weight(f, "text_encoder_2", "model.safetensors"), "text_encoder_2 lacks 1 weights"),
        (lambda f: drop_weight(f, "vae", "diffusion_pytorch_model.safetensors"), "vae lacks 1 weights"),
        (
            lambda f: edit_config(f, "text_encoder", num_hidden_layers=1),
            "text_encoder has 16 weights that its config.json",
        ),
        (
            lambda f: edit_config(f, "transformer", num_layers=-1),
            "transformer has .* place for, first transformer_blocks",
        ),
        (
            lambda f: edit_config(f, "vae", layers_per_block=0),
            "vae has .* weights that its config.json has no place for",
        ),
        (lambda f: shutil.rmtree(f / "tokenizer"), "tokenizer has none of tokenizer.json, vocab.json"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_broken_folder_is_one_line(
    breakage: Callable[[Path], None], message: str, tiny_folder: Path, tmp_path: Path
) -> None:
    folder = copied(tiny_folder, tmp_path)
    breakage(folder)
    with pytest.raises(PolicyError, match=message) as caught:
        Policy.load(policy_config(folder), ())
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("base", ["/no/such/folder", "./missing", "tests/missing", "missing", "a/b/c"])
def test_a_missing_folder_does_not_ask_the_network(base: str) -> None:
    with pytest.raises(PolicyError, match=f"policy.base: there is no folder {base}"):
        Policy.load(policy_config(Path("x"), base=base), ())


@pytest.mark.parametrize(("resolution", "message"), [(64, "more than .* has positions for, 64"), (48, "48")])
def test_resolution_must_fit_the_base(resolution: int, message: str, tiny_folder: Path) -> None:
    if resolution == 64:
        assert Policy.load(policy_config(tiny_folder, resolution=64), ()).latent_shape == (16, 8, 8)
        resolution = 80
    else:
        assert Policy.load(policy_config(tiny_folder, resolution=48), ()).latent_shape == (16, 6, 6)
        return
    with pytest.raises(PolicyError, match=message):
        Policy.load(policy_config(tiny_folder, resolution=resolution), ())


def saved_lora(folder: Path, lora: LoraConfig = LORA) -> dict[str, torch.Tensor]:
    """A LoRA file with random lora_B."""
    model = tiny_sd3(3).transformer
    adapters.attach(model, lora, ("default",), seed=9)
    tensors = {key: value + 0.1 for key, value in adapters.read(model, "default").items()}
    save_lora(folder, tensors, lora)
    return tensors


def test_init_lora_is_where_every_adapter_starts(tiny_folder: Path, tmp_path: Path) -> None:
    tensors = saved_lora(tmp_path)
    policy = Policy.load(policy_config(tiny_folder, init_lora=str(tmp_path)), ("default", "old"))
    for name in ("default", "old"):
        found = adapters.read(policy.transformer, name)
        assert adapters.hash_tensors(found) == adapters.hash_tensors(tensors)


@pytest.mark.parametrize(
    "lora",
    [
        LoraConfig(rank=2, alpha=6.0),
        LoraConfig(rank=4, alpha=7.0),
        LoraConfig(rank=3, alpha=1.0, targets=("attn.to_q", "attn.to_out.0")),
        LoraConfig(rank=1, alpha=0.5, targets=("transformer_blocks.0.attn.add_k_proj",)),
    ],
    ids=["lower rank", "other alpha", "some layers", "one layer"],
)
def test_init_lora_of_another_form_draws_as_it_did(lora: LoraConfig, tiny_folder: Path, tmp_path: Path) -> None:
    """Held against the LoRA in an adapter of its own form; what it lacks can be trained all the same."""
    tensors = saved_lora(tmp_path, lora)
    own = Policy.load(policy_config(tiny_folder, lora=lora), ("default",), with_vae=False)
    adapters.write(own.transformer, "default", tensors)
    policy = Policy.load(policy_config(tiny_folder, init_lora=str(tmp_path)), ("default", "old"), with_vae=False)
    base = Policy.load(policy_config(tiny_folder), (), with_vae=False)
    x, sigma = torch.randn(2, *LATENT_SHAPE, generator=torch.Generator().manual_seed(4)), torch.tensor([0.9, 0.3])
    with torch.no_grad():
        expected, found, without = (p.velocity(x, sigma, p.encode(["a cat", "b"])) for p in (own, policy, base))
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    assert (expected - without).abs().max() > 1e-3
    for name in ("default", "old"):
        read = adapters.read(policy.transformer, name)
        lacking = [key for key, value in read.items() if ".lora_A." in key and not bool(value.any(1).all())]
        assert lacking == [], "a row of lora_A and a column of lora_B that are both zero would never move"


@pytest.mark.parametrize(
    ("lora", "message"),
    [
        (LoraConfig(rank=8, alpha=6.0), "has rank 8, policy.lora.rank is 4: a LoRA can grow, not shrink"),
        (
            LoraConfig(rank=4, alpha=6.0, targets=("attn.to_q", "ff.net.2")),
            r"adapts 2 layers that policy.lora.targets leaves out, first transformer_blocks.0.ff.net.2$",
        ),
    ],
)
def test_init_lora_that_cannot_be_continued_is_one_line(
    lora: LoraConfig, message: str, tiny_folder: Path, tmp_path: Path
) -> None:
    saved_lora(tmp_path, lora)
    with pytest.raises(PolicyError, match=f"policy.init_lora: {tmp_path} {message}"):
        Policy.load(policy_config(tiny_folder, init_lora=str(tmp_path)), ("default",))


def test_init_lora_of_another_base_names_the_matrix(tiny_folder: Path, tmp_path: Path) -> None:
    tensors = saved_lora(tmp_path)
    key = next(key for key in tensors if ".lora_A." in key)
    save_lora(tmp_path, {**tensors, key: torch.ones(4, 7)}, LORA)
    with pytest.raises(PolicyError, match=rf"is of another base: {key} has shape \[4, 7\], not \[4, \d+\]"):
        Policy.load(policy_config(tiny_folder, init_lora=str(tmp_path)), ("default",))


def test_adapter_names_may_be_attributes_of_modules(tiny_folder: Path) -> None:
    """PEFT keeps adapters in a ModuleDict, which has methods `eval` and `train`."""
    policy = Policy.load(policy_config(tiny_folder), ("old", "eval", "train"), with_vae=False, with_text=False)
    with adapters.using(policy.transformer, "eval"):
        assert adapters.active(policy.transformer) == "eval"
    adapters.write(policy.transformer, "train", adapters.read(policy.transformer, "eval"))
