"""ImageReward from its published files against the published formula on their raw tensors."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from rewards.config import RewardConfig
from rewards.contract import State
from rewards.imagereward import ImagerewardScorer, hidden_state, image_reward
from rewards.registry import build_scorer, self_test
from rewards.scorer_args import ImagerewardArgs
from tests.unit.rewards import blip_format as published
from tests.unit.rewards.blip_format import CLIP_MEAN, CLIP_STD, SIDE
from tests.unit.rewards.published_pixels import cropped

PROMPTS = ["red cats", "Two", "a sign ж é", "red cats", "one very long prompt that does not fit into so few"]


@pytest.fixture(scope="module")
def tensors() -> dict[str, Tensor]:
    return published.state_dict(seed=4)


@pytest.fixture(scope="module")
def args(tensors: dict[str, Tensor], tmp_path_factory: pytest.TempPathFactory) -> ImagerewardArgs:
    folder = tmp_path_factory.mktemp("imagereward")
    published.save_checkpoint(folder / "model", tensors)
    published.save_tokenizer(folder / "bert")
    return ImagerewardArgs(checkpoint=str(folder / "model"), tokenizer=str(folder / "bert"), batch_size=2)


@pytest.fixture(scope="module")
def scorer(args: ImagerewardArgs) -> ImagerewardScorer:
    return ImagerewardScorer(args)


@pytest.fixture(scope="module")
def images_5() -> NDArray[np.uint8]:
    """52 × 35 becomes 47 × 32: of 15 rows too many torchvision cuts 8 above."""
    return np.random.default_rng(0).integers(0, 256, (5, 52, 35, 3), dtype=np.uint8)


def test_score_is_the_published_formula(
    scorer: ImagerewardScorer, tensors: dict[str, Tensor], images_5: NDArray[np.uint8]
) -> None:
    """PAPER 4."""
    result = scorer(images_5, PROMPTS, [{}] * 5)
    expected = [
        published.score(tensors, cropped(image, SIDE, CLIP_MEAN, CLIP_STD, cut="torchvision"), prompt)
        for image, prompt in zip(images_5, PROMPTS, strict=True)
    ]
    assert (result.states == State.SCORED).all()
    np.testing.assert_allclose(result.scores, expected, rtol=1e-5, atol=5e-5)
    assert np.ptp(expected) > 1


def test_image_and_prompt_both_count(tensors: dict[str, Tensor]) -> None:
    """Of the random checkpoint itself: otherwise the test above would show little."""
    black, white = torch.zeros(3, SIDE, SIDE), torch.ones(3, SIDE, SIDE)
    same, other_image, other_text = (
        published.score(tensors, pixels, prompt) for pixels, prompt in ((black, "cat"), (white, "cat"), (black, "dog"))
    )
    assert abs(same - other_image) > 1e-3
    assert abs(same - other_text) > 1e-3


@pytest.mark.parametrize(("raw", "expected"), [(0.0, -0.1617799), (0.16717362830052426, 0.0), (1.20051312, 1.0)])
def test_golden_by_hand(raw: float, expected: float) -> None:
    """(0 − 0.16717363)/1.03333950 = −0.16177997, which users met as what a dead head gives; mean + deviation is 1."""
    assert image_reward(torch.tensor([raw])).tolist() == pytest.approx([expected], abs=1e-6)


def test_batch_equals_one_by_one(scorer: ImagerewardScorer, images_5: NDArray[np.uint8]) -> None:
    together = scorer(images_5, PROMPTS, [{}] * 5).scores
    alone = [scorer(images_5[i : i + 1], PROMPTS[i : i + 1], [{}]).scores[0] for i in range(5)]
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=5e-5)


def test_a_long_prompt_is_cut_at_35_tokens(scorer: ImagerewardScorer, images_5: NDArray[np.uint8]) -> None:
    """33 words of one letter between start and end: what follows has no effect."""
    texts = [" ".join("a" * 33 + tail) for tail in ("xyz", "bc")] + [" ".join("a" * 32 + "b")]
    scores = scorer(np.repeat(images_5[:1], 3, axis=0), texts, [{}] * 3).scores
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)
    assert abs(scores[0] - scores[2]) > 1e-4


def test_nan_is_a_failure_of_its_sample_alone(
    scorer: ImagerewardScorer, images_5: NDArray[np.uint8], monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAULTS 8."""
    healthy = scorer(images_5, PROMPTS, [{}] * 5)
    head = scorer._head

    def broken(hidden_ND: Tensor) -> Tensor:
        return torch.where(hidden_ND[:, 0] == marked, torch.nan, head(hidden_ND))

    seen: list[Tensor] = []
    monkeypatch.setattr(scorer, "_head", lambda hidden: (seen.append(hidden[:, 0]), head(hidden))[1])
    scorer(images_5, PROMPTS, [{}] * 5)
    marked = torch.cat(seen)[2]
    monkeypatch.setattr(scorer, "_head", broken)
    result = scorer(images_5, PROMPTS, [{}] * 5)
    assert result.states.tolist() == [0, 0, State.FAILED, 0, 0]
    others = [0, 1, 3, 4]
    assert result.scores[others].tobytes() == healthy.scores[others].tobytes()


@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 1.0), ("float16", 0.1)])
def test_half_precision_stays_near(
    args: ImagerewardArgs, scorer: ImagerewardScorer, images_5: NDArray[np.uint8], dtype: str, tolerance: float
) -> None:
    """Of scores from 0 to 12: the random checkpoint exaggerates."""
    half = ImagerewardScorer(args.model_copy(update={"dtype": dtype}))
    assert half._vision.dtype == half._text.dtype == getattr(torch, dtype)
    scores = half(images_5, PROMPTS, [{}] * 5).scores
    np.testing.assert_allclose(scores, scorer(images_5, PROMPTS, [{}] * 5).scores, atol=tolerance)


def test_from_the_recipes_words_to_the_self_test(args: ImagerewardArgs) -> None:
    config = RewardConfig(scorer="imagereward", args={"checkpoint": args.checkpoint, "tokenizer": args.tokenizer})
    assert self_test(build_scorer("imagereward", config)).states.tolist() == [State.SCORED]


def test_what_transformers_returns() -> None:
    """FAULTS 12: an output object or a tuple; anything else is an error, not a guess."""
    tensor = torch.ones(2, 3, 4)
    assert hidden_state(SimpleNamespace(last_hidden_state=tensor)) is tensor
    assert hidden_state((tensor, None)) is tensor
    for other in (tensor, [tensor], (), SimpleNamespace(hidden=tensor)):
        with pytest.raises(TypeError, match="without a last_hidden_state"):
            hidden_state(other)


def test_bad_batches_raise(scorer: ImagerewardScorer, images_5: NDArray[np.uint8]) -> None:
    """FAULTS 13."""
    wrong: Any = images_5[0]
    with pytest.raises(ValueError, match="a single image needs a leading axis"):
        scorer(wrong, PROMPTS, [{}] * 5)
    with pytest.raises(ValueError, match="got 5 images, 3 prompts and 5 metadata"):
        scorer(images_5, PROMPTS[:3], [{}] * 5)


# -- files that do not fit ---------------------------------------------------------------------------------------------


def refused(args: ImagerewardArgs, tmp_path: Path, content: Any) -> str:
    folder = published.save_checkpoint(tmp_path / "broken", content)
    with pytest.raises(ValueError, match=re.escape(str(folder))) as caught:
        ImagerewardScorer(args.model_copy(update={"checkpoint": str(folder)}))
    return str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("blip.visual_encoder.norm.bias", None, "1 missing (blip.visual_encoder.norm.bias)"),
        (
            "blip.text_encoder.encoder.layer.1.crossattention.self.key.weight",
            None,
            "1 missing (blip.text_encoder.encoder.layer.1.crossattention.self.key.weight)",
        ),
        ("mlp.layers.7.bias", None, "1 missing (mlp.layers.7.bias)"),
        ("blip.visual_encoder.pos_embed", None, "blip.visual_encoder.pos_embed is missing"),
        ("blip.text_encoder.pooler.dense.weight", torch.ones(2, 2), "1 unexpected (blip.text_encoder.pooler.dense"),
        ("blip.visual_encoder.head.bias", torch.ones(2), "1 unexpected (blip.visual_encoder.head.bias)"),
        ("optimizer.step", torch.ones(2), "1 unexpected (optimizer.step)"),
        ("mlp.layers.0.weight", torch.ones(1024, 31), "mlp.layers.0.weight: [1024, 31] does not give"),
        ("blip.visual_encoder.blocks.1.attn.qkv.bias", torch.ones(3), "blocks.1.attn.qkv.bias: [3] does not give"),
        (
            "blip.text_encoder.embeddings.word_embeddings.weight",
            torch.ones(published.VOCAB_SIZE - 2, published.TEXT_WIDTH),
            "word_embeddings.weight: [58, 32] does not give embeddings.word_embeddings.weight [60, 32]",
        ),
    ],
)
def test_keys_that_do_not_fit_are_named(
    args: ImagerewardArgs, tensors: dict[str, Tensor], tmp_path: Path, key: str, value: Tensor | None, message: str
) -> None:
    """None takes the key out."""
    broken = tensors | {key: value}
    assert message in refused(args, tmp_path, {name: kept for name, kept in broken.items() if kept is not None})


def test_what_no_score_needs_may_be_left_out(args: ImagerewardArgs, tensors: dict[str, Tensor], tmp_path: Path) -> None:
    needed = {k: v for k, v in tensors.items() if "_proj." not in k and "position_ids" not in k}
    assert len(tensors) - len(needed) == 5
    folder = published.save_checkpoint(tmp_path / "smaller", needed)
    ImagerewardScorer(args.model_copy(update={"checkpoint": str(folder)}))


def test_no_configuration(args: ImagerewardArgs, tensors: dict[str, Tensor], tmp_path: Path) -> None:
    folder = published.save_checkpoint(tmp_path / "bare", tensors)
    (folder / "med_config.json").write_text(json.dumps({"hidden_size": 32}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"cannot read a text encoder's configuration from .*vocab_size"):
        ImagerewardScorer(args.model_copy(update={"checkpoint": str(folder)}))


@pytest.mark.parametrize("change", [{"num_attention_heads": 5}, {"hidden_size": "32"}, {"hidden_act": "x"}])
def test_a_configuration_of_no_model(
    args: ImagerewardArgs, tensors: dict[str, Tensor], tmp_path: Path, change: dict[str, Any]
) -> None:
    folder = published.save_checkpoint(tmp_path / "odd", tensors)
    config = json.loads((folder / "med_config.json").read_text(encoding="utf-8"))
    (folder / "med_config.json").write_text(json.dumps(config | change), encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(str(folder / "med_config.json"))):
        ImagerewardScorer(args.model_copy(update={"checkpoint": str(folder)}))


def test_a_tokenizer_that_cannot_be_read(args: ImagerewardArgs, tmp_path: Path) -> None:
    """Whatever the library raises, the folder is named."""
    folder = published.save_tokenizer(tmp_path / "bert")
    (folder / "tokenizer.json").write_text('{"model": 3}', encoding="utf-8")
    with pytest.raises(ValueError, match=f"cannot load a tokenizer from {re.escape(str(folder))}"):
        ImagerewardScorer(args.model_copy(update={"tokenizer": str(folder)}))


def test_a_tokenizer_of_another_vocabulary(args: ImagerewardArgs, clip_folder: Path) -> None:
    with pytest.raises(ValueError, match="tokens with BLIP's two, the text encoder 60"):
        ImagerewardScorer(args.model_copy(update={"tokenizer": str(clip_folder)}))


def test_no_such_folder(args: ImagerewardArgs, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no checkpoint folder"):
        ImagerewardScorer(args.model_copy(update={"checkpoint": str(tmp_path / "nowhere")}))
