"""The aesthetic predictor against the published formula: CLIP's image embedding, length one, five linear layers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from rewards.aesthetic import AestheticScorer, aesthetic_score
from rewards.config import RewardConfig
from rewards.contract import State
from rewards.registry import build_scorer, self_test
from rewards.score_head import load_head
from rewards.scorer_args import AestheticArgs
from tests.unit.rewards.head_format import apply_head, head_by_hand, head_state
from tests.unit.rewards.published_pixels import cropped
from tests.unit.rewards.tiny_clip import EMBED, MEAN, SIDE, STD

FILE = "sac+logos+ava1-l14-linearMSE.pth"


@pytest.fixture(scope="module")
def head() -> dict[str, Tensor]:
    return head_state(EMBED, seed=2)


@pytest.fixture(scope="module")
def args(clip_folder: Path, head: dict[str, Tensor], tmp_path_factory: pytest.TempPathFactory) -> AestheticArgs:
    path = tmp_path_factory.mktemp("aesthetic") / FILE
    torch.save(head, path)
    return AestheticArgs(checkpoint=str(clip_folder), head=str(path), batch_size=2)


@pytest.fixture(scope="module")
def scorer(args: AestheticArgs) -> AestheticScorer:
    return AestheticScorer(args)


@pytest.fixture(scope="module")
def images_5() -> NDArray[np.uint8]:
    """57 × 39: resized to 46 × 32, so 14 columns too many; 35 × 52 would be 15, where the two roundings part."""
    return np.random.default_rng(0).integers(0, 256, (5, 39, 57, 3), dtype=np.uint8)


def published_score(folder: Path, head: dict[str, Tensor], image: NDArray[np.uint8]) -> float:
    """encode_image, divided by its norm, and the head, one by one."""
    from transformers import CLIPModel

    model = CLIPModel.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        tower = model.vision_model
        pixels = cropped(image, SIDE, MEAN, STD, cut="torchvision")[None]
        embedding = model.visual_projection.weight @ tower.post_layernorm(tower(pixels).last_hidden_state[0, 0])
        return float(apply_head(head, embedding / embedding.norm()))


@pytest.mark.parametrize("shape", [(39, 57), (52, 35), (32, 32)])
def test_score_is_the_published_formula(
    scorer: AestheticScorer, head: dict[str, Tensor], clip_folder: Path, shape: tuple[int, int]
) -> None:
    """PAPER 4. 52 × 35 becomes 47 × 32: of 15 rows too many torchvision cuts 8 above, transformers 7."""
    images = np.random.default_rng(1).integers(0, 256, (3, *shape, 3), dtype=np.uint8)
    result = scorer(images, ["", "a", "b"], [{}] * 3)
    expected = [published_score(clip_folder, head, image) for image in images]
    assert (result.states == State.SCORED).all()
    np.testing.assert_allclose(result.scores, expected, atol=2e-5)
    assert np.ptp(expected) > 0.001


def test_golden_by_hand() -> None:
    """(3, 4) has length 5 and becomes (0.6, 0.8); 2 · 0.6 + 3 · 0.8 + 1.5 = 5.1."""
    head = load_head(head_by_hand(2, [2.0, 3.0], bias=1.5), 2, Path("by hand"))
    assert aesthetic_score(torch.tensor([[3.0, 4.0]]), head).tolist() == pytest.approx([5.1], rel=1e-6)


def test_the_prompt_plays_no_part(scorer: AestheticScorer, images_5: NDArray[np.uint8]) -> None:
    once, other = (scorer(images_5, prompts, [{}] * 5).scores for prompts in (["a"] * 5, list("vwxyz")))
    assert once.tobytes() == other.tobytes()


def test_batch_equals_one_by_one(scorer: AestheticScorer, images_5: NDArray[np.uint8]) -> None:
    together = scorer(images_5, ["a"] * 5, [{}] * 5).scores
    alone = [scorer(images_5[i : i + 1], ["a"], [{}]).scores[0] for i in range(5)]
    np.testing.assert_allclose(together, alone, atol=5e-6)


def test_nan_is_a_failure_of_its_sample_alone(
    scorer: AestheticScorer, images_5: NDArray[np.uint8], monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAULTS 8."""
    healthy = scorer(images_5, ["a"] * 5, [{}] * 5)
    broken = scorer.image_embeddings(images_5).clone()
    broken[2, 0] = torch.nan
    monkeypatch.setattr(scorer, "image_embeddings", lambda images: broken)
    result = scorer(images_5, ["a"] * 5, [{}] * 5)
    assert result.states.tolist() == [0, 0, State.FAILED, 0, 0]
    others = [0, 1, 3, 4]
    assert result.scores[others].tobytes() == healthy.scores[others].tobytes()


def test_half_precision_stays_near(args: AestheticArgs, scorer: AestheticScorer, images_5: NDArray[np.uint8]) -> None:
    """CLIP computes in it, the head in float32."""
    half = AestheticScorer(args.model_copy(update={"dtype": "bfloat16"}))
    assert half.image_embeddings(images_5).dtype == torch.bfloat16
    scores = half(images_5, ["a"] * 5, [{}] * 5).scores
    np.testing.assert_allclose(scores, scorer(images_5, ["a"] * 5, [{}] * 5).scores, atol=0.05)


def test_from_the_recipes_words_to_the_self_test(args: AestheticArgs) -> None:
    config = RewardConfig(scorer="aesthetic", args={"checkpoint": args.checkpoint, "head": str(Path(args.head).parent)})
    assert self_test(build_scorer("aesthetic", config)).states.tolist() == [State.SCORED]


def test_bad_batches_raise(scorer: AestheticScorer, images_5: NDArray[np.uint8]) -> None:
    """FAULTS 13."""
    wrong: Any = images_5.transpose(0, 3, 1, 2)
    with pytest.raises(ValueError, match="the channels come last"):
        scorer(wrong, ["a"] * 5, [{}] * 5)
    with pytest.raises(ValueError, match="got 5 images, 5 prompts and 1 metadata"):
        scorer(images_5, ["a"] * 5, [{}])


def test_a_head_that_does_not_fit_names_its_keys(args: AestheticArgs, head: dict[str, Tensor], tmp_path: Path) -> None:
    broken = dict(head)
    del broken["layers.6.bias"]
    broken["layers.0.weight"] = torch.ones(1024, EMBED + 1)
    broken["layers.9.weight"] = torch.ones(1)
    torch.save(broken, tmp_path / FILE)
    named = r"1 missing \(layers\.6\.bias\); 1 unexpected \(layers\.9\.weight\)"
    with pytest.raises(ValueError, match=named) as caught:
        AestheticScorer(args.model_copy(update={"head": str(tmp_path)}))
    assert "layers.0.weight: [1024, 17] does not give layers.0.weight [1024, 16]" in str(caught.value)


def test_a_head_that_is_not_there(args: AestheticArgs, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no file sac\+logos\+ava1-l14-linearMSE\.pth"):
        AestheticScorer(args.model_copy(update={"head": str(tmp_path)}))
