"""HPSv2.1 from open_clip's published file against the published formula on its raw tensors."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from rewards.config import RewardConfig
from rewards.contract import State
from rewards.hpsv2 import Hpsv2Scorer, open_clip_text
from rewards.known import known_image
from rewards.preprocess import Preprocess
from rewards.registry import build_scorer, self_test
from rewards.scorer_args import Hpsv2Args
from tests.unit.rewards import open_clip_format as published
from tests.unit.rewards.published_pixels import padded
from tests.unit.rewards.test_preprocess import smooth_image
from tests.unit.rewards.tiny_clip import MAX_TOKENS, MEAN, SIDE, STD, tiny_tokenizer

PROMPTS = ["red cat", "two", "a sign", "red cat", "one very long prompt that does not fit"]


@pytest.fixture(scope="module")
def tensors() -> dict[str, Tensor]:
    return published.state_dict(seed=3)


@pytest.fixture(scope="module")
def args(tensors: dict[str, Tensor], tmp_path_factory: pytest.TempPathFactory) -> Hpsv2Args:
    folder = tmp_path_factory.mktemp("hpsv2")
    published.save_checkpoint(folder / published.FILE, tensors)
    return Hpsv2Args(checkpoint=str(folder), processor=str(published.save_processor(folder / "laion")), batch_size=2)


@pytest.fixture(scope="module")
def scorer(args: Hpsv2Args) -> Hpsv2Scorer:
    return Hpsv2Scorer(args)


@pytest.fixture(scope="module")
def images_5() -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (5, 48, 64, 3), dtype=np.uint8)


def ids_of(prompt: str) -> list[int]:
    """Start, one token a byte with the last of a word marked, end; too long a text loses what stands before the end."""
    tokenizer = tiny_tokenizer()
    vocabulary = tokenizer.get_vocab()
    words = [[*word[:-1], word[-1] + "</w>"] for word in prompt.lower().split()]
    ids = [vocabulary[token] for word in words for token in word]
    return [tokenizer.bos_token_id, *ids[: MAX_TOKENS - 2], tokenizer.eos_token_id]


def test_score_is_the_published_formula(
    scorer: Hpsv2Scorer, tensors: dict[str, Tensor], images_5: NDArray[np.uint8]
) -> None:
    """PAPER 4. The images are noise: the filter overshoots, and HPSv2's pipeline neither cuts nor rounds."""
    result = scorer(images_5, PROMPTS, [{}] * 5)
    expected = [
        published.cosine(tensors, padded(image, SIDE, MEAN, STD), ids_of(prompt))
        for image, prompt in zip(images_5, PROMPTS, strict=True)
    ]
    assert (result.states == State.SCORED).all()
    np.testing.assert_allclose(result.scores, expected, atol=2e-6)
    assert np.ptp(expected) > 0.05


def test_golden_by_hand(scorer: Hpsv2Scorer, monkeypatch: pytest.MonkeyPatch) -> None:
    """(3, 4) · (4, 3) / (5 · 5) = 24/25, whatever the logit scale."""
    monkeypatch.setattr(scorer, "image_embeddings", lambda images: torch.tensor([[3.0, 4.0]]))
    monkeypatch.setattr(scorer, "text_embeddings", lambda prompts: torch.tensor([[4.0, 3.0]]))
    assert scorer(known_image(32)[None], ["a"], [{}]).scores.tolist() == pytest.approx([0.96], rel=1e-6)


def test_batch_equals_one_by_one(scorer: Hpsv2Scorer, images_5: NDArray[np.uint8]) -> None:
    together = scorer(images_5, PROMPTS, [{}] * 5).scores
    alone = [scorer(images_5[i : i + 1], PROMPTS[i : i + 1], [{}]).scores[0] for i in range(5)]
    np.testing.assert_allclose(together, alone, atol=1e-6)


def test_the_same_twice(scorer: Hpsv2Scorer, images_5: NDArray[np.uint8]) -> None:
    once, again = (scorer(images_5, PROMPTS, [{}] * 5).scores for _ in range(2))
    assert once.tobytes() == again.tobytes()


@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 0.05), ("float16", 0.01)])
def test_half_precision_stays_near(
    args: Hpsv2Args, scorer: Hpsv2Scorer, images_5: NDArray[np.uint8], dtype: str, tolerance: float
) -> None:
    half = Hpsv2Scorer(args.model_copy(update={"dtype": dtype}))
    scores = half(images_5, PROMPTS, [{}] * 5).scores
    assert half.text_embeddings(["a"]).dtype == getattr(torch, dtype)
    np.testing.assert_allclose(scores, scorer(images_5, PROMPTS, [{}] * 5).scores, atol=tolerance)
    assert scores.tolist() != scores.astype(np.float16).tolist(), "the cosine itself is taken in float32"


def test_from_the_recipes_words_to_the_self_test(args: Hpsv2Args) -> None:
    config = RewardConfig(scorer="hpsv2", args={"checkpoint": args.checkpoint, "processor": args.processor})
    assert self_test(build_scorer("hpsv2", config)).states.tolist() == [State.SCORED]


def test_the_file_itself_may_be_named(args: Hpsv2Args, scorer: Hpsv2Scorer, images_5: NDArray[np.uint8]) -> None:
    named = Hpsv2Scorer(args.model_copy(update={"checkpoint": str(Path(args.checkpoint) / published.FILE)}))
    assert named(images_5, PROMPTS, [{}] * 5).scores.tobytes() == scorer(images_5, PROMPTS, [{}] * 5).scores.tobytes()


def test_a_folder_in_the_transformers_format(clip_folder: Path, images_5: NDArray[np.uint8]) -> None:
    """The tiny world's: the same formula and padding, tokens as its own tokenizer gives them."""
    scorer = Hpsv2Scorer(Hpsv2Args(checkpoint=str(clip_folder)))
    assert (scorer(images_5, PROMPTS, [{}] * 5).states == State.SCORED).all()
    curly, straight = scorer.text_embeddings(["a “b”", 'a "b"'])
    assert not torch.equal(curly, straight)


# -- text --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "cleaned"),
    [
        ("a sign that says “OPEN”", 'a sign that says "OPEN"'),
        ("the cat’s hat", "the cat's hat"),
        ("black &amp; white", "black & white"),
        ("black &amp;amp; white", "black & white"),
        ("âœ” done", "✔ done"),
        ("plain, two  words", "plain, two  words"),
    ],
)
def test_text_is_cleaned_as_open_clip_does(prompt: str, cleaned: str) -> None:
    """23 of the OCR prompts in use and 14 of the general ones have curly quotes."""
    assert open_clip_text(prompt) == cleaned


def test_a_prompt_scores_as_its_cleaned_text(scorer: Hpsv2Scorer) -> None:
    curly, straight = scorer.text_embeddings(["a “b”", 'a "b"'])
    assert torch.equal(curly, straight)


# -- pixels ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("height", "width"), [(512, 512), (384, 512), (90, 160), (40, 30), (98, 31)])
def test_pixels_are_the_published_pipelines(height: int, width: int) -> None:
    """FAULTS 13: on black and white noise, where the filter overshoots most; the bound wanted is 1/255."""
    bits = np.random.default_rng(height).integers(0, 2, (height, width, 3))
    image = (bits * 255).astype(np.uint8)
    prepare = Preprocess("pad", 98, 98, (0.5, 0.4, 0.3), (0.2, 0.25, 0.3), rounded=False)
    expected = padded(image, 98, (0.5, 0.4, 0.3), (0.2, 0.25, 0.3))
    torch.testing.assert_close(prepare(image[None])[0], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(("height", "width"), [(512, 512), (384, 512), (512, 300)])
def test_pixels_of_a_picture_are_within_a_level_of_pillows(height: int, width: int) -> None:
    """FAULTS 13: where nothing overshoots, the rounding is all that parts them."""
    image = smooth_image(height, width)
    scale = 98 / max(height, width)
    small = Image.fromarray(image).resize((round(width * scale), round(height * scale)), Image.Resampling.BICUBIC)
    square = Image.new("RGB", (98, 98))
    square.paste(small, ((98 - small.width) // 2, (98 - small.height) // 2))
    ours = Preprocess("pad", 98, 98, (0.0,) * 3, (1.0,) * 3, rounded=False)(image[None])[0]
    assert float((ours.permute(1, 2, 0) - torch.from_numpy(np.asarray(square) / 255)).abs().max()) < 1.01 / 255


# -- a file that does not fit ------------------------------------------------------------------------------------------


def refused(args: Hpsv2Args, tmp_path: Path, content: Any) -> str:
    path = tmp_path / "broken.pt"
    torch.save(content, path)
    with pytest.raises(ValueError, match=re.escape(str(path))) as caught:
        Hpsv2Scorer(args.model_copy(update={"checkpoint": str(path)}))
    return str(caught.value)


def test_missing_extra_and_misshapen_keys_are_named(
    args: Hpsv2Args, tensors: dict[str, Tensor], tmp_path: Path
) -> None:
    broken = dict(tensors)
    del broken["visual.proj"]
    del broken["transformer.resblocks.1.attn.in_proj_weight"]
    broken["score_head.weight"] = torch.ones(2)
    broken["ln_final.bias"] = torch.ones(5)
    broken["visual.transformer.resblocks.0.attn.in_proj_bias"] = torch.ones(3 * published.VISION_WIDTH + 1)
    message = refused(args, tmp_path, {"state_dict": broken})
    assert "2 missing (transformer.resblocks.1.attn.in_proj_weight, visual.proj)" in message
    assert "1 unexpected (score_head.weight)" in message
    assert "2 of another shape (ln_final.bias: [5] does not give text_model.final_layer_norm.bias [32]" in message
    assert "visual.transformer.resblocks.0.attn.in_proj_bias: [145] does not give" in message


def test_a_layer_too_many_is_not_left_out_in_silence(
    args: Hpsv2Args, tensors: dict[str, Tensor], tmp_path: Path
) -> None:
    extra = {key.replace(".1.", ".2."): value for key, value in tensors.items() if key.startswith("transformer")}
    assert "12 unexpected (transformer.resblocks.2.attn.in_proj_bias" in refused(
        args, tmp_path, {"state_dict": tensors | extra}
    )


def test_a_projection_the_wrong_way_round(args: Hpsv2Args, tensors: dict[str, Tensor], tmp_path: Path) -> None:
    """As in the transformers format; a square one (1024 × 1024 in ViT-H-14) would load, so the format must be sure."""
    turned = tensors | {"visual.proj": tensors["visual.proj"].T.contiguous()}
    assert "1 of another shape (visual.proj: [16, 48]" in refused(args, tmp_path, {"state_dict": turned})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"model": {}}, "no state_dict"),
        ({"state_dict": 5}, "no state_dict"),
        ([1, 2], "holds a list"),
        ({"state_dict": {}, "args": Path("x")}, "cannot read"),
        ({"state_dict": {"logit_scale": 4.6}}, "logit_scale: <class 'float'>"),
        ({"state_dict": {"logit_scale": torch.ones(()), 3: torch.ones(2)}}, "1 unexpected (3)"),
        ({3: torch.ones(2)}, "has keys that are no names, 3 for one"),
    ],
)
def test_another_kind_of_file(args: Hpsv2Args, tmp_path: Path, content: Any, message: str) -> None:
    """Nothing in a file is run: what is neither tensor nor plain value is refused."""
    assert message in refused(args, tmp_path, content)


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", b"PK\x03\x04 torn"])
def test_no_checkpoint_at_all(args: Hpsv2Args, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "page.pt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"cannot read {re.escape(str(path))}"):
        Hpsv2Scorer(args.model_copy(update={"checkpoint": str(path)}))


@pytest.mark.parametrize("change", [{"num_attention_heads": 0}, {"hidden_act": "x"}, {"hidden_size": "48"}])
def test_a_configuration_of_no_model(args: Hpsv2Args, tmp_path: Path, change: dict[str, Any]) -> None:
    processor = published.save_processor(tmp_path / "laion")
    config = json.loads((processor / "config.json").read_text(encoding="utf-8"))
    config["vision_config"] |= change
    (processor / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(str(processor))):
        Hpsv2Scorer(args.model_copy(update={"processor": str(processor)}))


def test_an_open_clip_file_needs_a_processor(args: Hpsv2Args) -> None:
    with pytest.raises(ValueError, match="name a processor"):
        Hpsv2Scorer(Hpsv2Args(checkpoint=args.checkpoint))


def test_bad_batches_raise(scorer: Hpsv2Scorer, images_5: NDArray[np.uint8]) -> None:
    """FAULTS 13."""
    wrong: Any = images_5.astype(np.float32) / 255
    with pytest.raises(ValueError, match="float32 with values from 0 to 1"):
        scorer(wrong, PROMPTS, [{}] * 5)
    with pytest.raises(ValueError, match="got 5 images, 4 prompts and 5 metadata"):
        scorer(images_5, PROMPTS[:4], [{}] * 5)
