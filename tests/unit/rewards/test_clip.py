"""CLIPScore and PickScore against the published formula, written out step by step on the checkpoint's own weights."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from rewards.clip import cosines, features
from rewards.clipscore import ClipscoreScorer
from rewards.config import RewardConfig
from rewards.contract import State
from rewards.pickscore import PickscoreScorer, pick_score
from rewards.registry import build_scorer, self_test
from rewards.scorer_args import ClipscoreArgs, PickscoreArgs
from tests.unit.rewards.published_pixels import cropped
from tests.unit.rewards.tiny_clip import LOGIT_SCALE, MAX_TOKENS, MEAN, SIDE, STD

PROMPTS = ["red cat", "two", "a sign", "red cat", "one very long prompt that does not fit"]


@pytest.fixture(scope="module")
def images_5() -> NDArray[np.uint8]:
    """Read-only, as images out of an object store are."""
    images = np.random.default_rng(0).integers(0, 256, (5, 48, 64, 3), dtype=np.uint8)
    images.flags.writeable = False
    return images


@pytest.fixture(scope="module")
def scorer(clip_folder: Path) -> ClipscoreScorer:
    return ClipscoreScorer(ClipscoreArgs(checkpoint=str(clip_folder), batch_size=2))


def published_cosine(folder: Path, image: NDArray[np.uint8], prompt: str) -> float:
    """Cosine of one image and one text, from the towers, projections and normalisations one by one."""
    from transformers import CLIPModel, CLIPTokenizer

    model = CLIPModel.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = CLIPTokenizer.from_pretrained(folder)
    ids = tokenizer(prompt, truncation=True, max_length=MAX_TOKENS).input_ids
    with torch.no_grad():
        hidden = model.text_model(input_ids=torch.tensor([ids])).last_hidden_state[0, ids.index(tokenizer.eos_token_id)]
        text = model.text_projection.weight @ hidden
        pixels = cropped(image, SIDE, MEAN, STD)[None]
        tower = model.vision_model
        hidden = tower.post_layernorm(tower(pixel_values=pixels).last_hidden_state[0, 0])
        vision = model.visual_projection.weight @ hidden
        return float((text / text.norm()) @ (vision / vision.norm()))


def metadata(n: int) -> list[dict[str, Any]]:
    return [{} for _ in range(n)]


def test_clipscore_is_the_published_formula(
    scorer: ClipscoreScorer, clip_folder: Path, images_5: NDArray[np.uint8]
) -> None:
    """PAPER 4; FAULTS 12 (the pooled, projected features are used whatever transformers returns)."""
    result = scorer(images_5, PROMPTS, metadata(5))
    expected = [published_cosine(clip_folder, i, p) for i, p in zip(images_5, PROMPTS, strict=True)]
    assert (result.states == State.SCORED).all()
    np.testing.assert_allclose(result.scores, expected, rtol=1e-5, atol=1e-5)
    assert np.ptp(result.scores) > 0.01  # the images and prompts do differ


@pytest.mark.parametrize(("scale", "factor"), [("training", LOGIT_SCALE / 26), ("published", LOGIT_SCALE)])
def test_pickscore_is_the_published_formula(
    clip_folder: Path, images_5: NDArray[np.uint8], scale: str, factor: float
) -> None:
    """PAPER 4."""
    args = PickscoreArgs.model_validate({"checkpoint": str(clip_folder), "scale": scale})
    result = PickscoreScorer(args)(images_5, PROMPTS, metadata(5))
    expected = [factor * published_cosine(clip_folder, i, p) for i, p in zip(images_5, PROMPTS, strict=True)]
    assert (result.states == State.SCORED).all()
    # fp16 storage rounds logit_scale = ln 50 by up to 1e-3.
    np.testing.assert_allclose(result.scores, expected, rtol=2e-3)
    assert np.ptp(result.scores) > 0.01 * factor


def test_golden_by_hand() -> None:
    """(3, 4) · (4, 3) / (5 · 5) = 24/25, and logit_scale 100."""
    cosine = cosines(torch.tensor([[3.0, 4.0]]), torch.tensor([[4.0, 3.0]]))
    assert cosine.tolist() == pytest.approx([0.96], rel=1e-6)
    assert pick_score(cosine, 100.0, "published").tolist() == pytest.approx([96.0], rel=1e-6)
    assert pick_score(cosine, 100.0, "training").tolist() == pytest.approx([96.0 / 26.0], rel=1e-6)


@pytest.mark.parametrize("name", ["pickscore", "clipscore"])
def test_from_the_recipes_words_to_the_self_test(name: str, clip_folder: Path) -> None:
    config = RewardConfig(scorer=name, args={"checkpoint": str(clip_folder)})
    assert self_test(build_scorer(name, config)).states.tolist() == [State.SCORED]


def test_batch_equals_one_by_one(scorer: ClipscoreScorer, images_5: NDArray[np.uint8]) -> None:
    together = scorer(images_5, PROMPTS, metadata(5)).scores
    alone = [scorer(images_5[i : i + 1], PROMPTS[i : i + 1], metadata(1)).scores[0] for i in range(5)]
    np.testing.assert_allclose(together, alone, atol=1e-6)


def test_text_embedding_does_not_depend_on_its_company(scorer: ClipscoreScorer) -> None:
    """FAULTS 8: to the last bit, whatever prompts stand beside it."""
    alone = scorer.text_embeddings(["red cat"])[0]
    among = scorer.text_embeddings([f"prompt {i}" for i in range(11)] + ["red cat"])[-1]
    assert torch.equal(alone, among)


def test_long_prompt_is_cut_where_the_model_ends(scorer: ClipscoreScorer, images_5: NDArray[np.uint8]) -> None:
    """Twelve positions hold ten letters between start and end: what follows has no effect."""
    twice = np.repeat(images_5[:1], 3, axis=0)
    scores = scorer(twice, ["abcdefghijX", "abcdefghijYZ", "abcdefghi"], metadata(3)).scores
    assert scores[0] == scores[1]
    assert scores[0] != scores[2]


def test_stored_fp16_computes_in_fp32(scorer: ClipscoreScorer, clip_folder: Path) -> None:
    from safetensors.torch import load_file

    assert {t.dtype for t in load_file(clip_folder / "model.safetensors").values()} == {torch.float16}
    assert scorer.text_embeddings(["a"]).dtype == torch.float32


@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 0.05), ("float16", 0.01)])
def test_half_precision_stays_near(
    scorer: ClipscoreScorer, clip_folder: Path, images_5: NDArray[np.uint8], dtype: str, tolerance: float
) -> None:
    half = ClipscoreScorer(ClipscoreArgs.model_validate({"checkpoint": str(clip_folder), "dtype": dtype}))
    assert half.text_embeddings(["a"]).dtype == getattr(torch, dtype)
    scores = half(images_5, PROMPTS, metadata(5)).scores
    np.testing.assert_allclose(scores, scorer(images_5, PROMPTS, metadata(5)).scores, atol=tolerance)


def test_nan_is_a_failure_of_its_sample_alone(
    scorer: ClipscoreScorer, images_5: NDArray[np.uint8], monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAULTS 8."""
    healthy = scorer(images_5, PROMPTS, metadata(5))
    embed = scorer.image_embeddings

    def broken(images_NHWC: NDArray[np.uint8]) -> torch.Tensor:
        embeddings = embed(images_NHWC).clone()
        embeddings[2, 0] = torch.nan
        return embeddings

    monkeypatch.setattr(scorer, "image_embeddings", broken)
    result = scorer(images_5, PROMPTS, metadata(5))
    assert result.states.tolist() == [0, 0, State.FAILED, 0, 0]
    assert "nan" in result.reasons[2]
    others = [0, 1, 3, 4]
    assert result.scores[others].tobytes() == healthy.scores[others].tobytes()


def test_features_of_either_transformers() -> None:
    """FAULTS 12: version 4 returns a tensor, version 5 an object; anything else is an error, not a guess."""
    tensor = torch.ones(2, 3)
    assert features(tensor) is tensor
    assert features(SimpleNamespace(pooler_output=tensor)) is tensor
    with pytest.raises(TypeError, match="tuple"):
        features((tensor,))


def test_threads_do_not_mix(scorer: ClipscoreScorer, images_5: NDArray[np.uint8]) -> None:
    """FAULTS 11."""
    expected = [scorer(images_5[i : i + 1], PROMPTS[i : i + 1], metadata(1)).scores[0] for i in range(5)]
    got: dict[int, float] = {}

    def work(i: int) -> None:
        for _ in range(3):
            got[i] = scorer(images_5[i : i + 1], PROMPTS[i : i + 1], metadata(1)).scores[0]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [got[i] for i in range(5)] == expected


def test_empty_batch_has_no_cells(scorer: ClipscoreScorer) -> None:
    assert len(scorer(np.zeros((0, 8, 8, 3), dtype=np.uint8), [], []).scores) == 0


def test_bad_images_raise(scorer: ClipscoreScorer, images_5: NDArray[np.uint8]) -> None:
    """FAULTS 13."""
    wrong: Any = images_5.astype(np.float32) / 127.5 - 1
    with pytest.raises(ValueError, match=r"float32 with values from -1 to 1"):
        scorer(wrong, PROMPTS, metadata(5))
    with pytest.raises(ValueError, match="got 5 images, 4 prompts and 5 metadata"):
        scorer(images_5, PROMPTS[:4], metadata(5))
