"""From a recipe's words to a scorer."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewards.clip import ClipScorer
from rewards.config import RewardConfig
from rewards.contract import RewardResult, State
from rewards.geneval import GenevalScorer
from rewards.known import known_image
from rewards.ocr import OcrScorer
from rewards.registry import applicable, build_scorer, known_scorers, self_test
from rewards.results import Cell, collect, from_scores
from tests.unit.rewards.fakes import PixelScorer

FAKES = "tests.unit.rewards.fakes"


def geneval_config(**args: object) -> RewardConfig:
    return RewardConfig(scorer="geneval", args={"detector": f"{FAKES}:PixelDetector"} | args)


def test_built_in_scorers_start_and_pass_their_self_test(clip_folder: Path) -> None:
    """FAULTS 12: a scorer that is broken shows here, before the first step."""
    clip = build_scorer(
        "pickscore", RewardConfig(scorer="clip", args={"checkpoint": str(clip_folder), "kind": "pickscore"})
    )
    assert isinstance(clip, ClipScorer)
    assert self_test(clip).states.tolist() == [State.SCORED]
    geneval = build_scorer("geneval", geneval_config(clip=True))
    assert isinstance(geneval, GenevalScorer)
    assert geneval.args.clip
    assert self_test(geneval, side=64).scores.tolist() == [0.0]


def test_ocr_self_test_reads_the_known_text() -> None:
    ocr = build_scorer("ocr", RewardConfig(scorer="ocr", args={"match": "strict", "upsample": 256}))
    assert isinstance(ocr, OcrScorer)
    assert self_test(ocr, side=64).scores.tolist() == [1.0]


def test_dotted_path_gets_its_args() -> None:
    scorer = build_scorer("mine", RewardConfig(scorer=f"{FAKES}:PixelScorer", args={"offset": 3.0}))
    assert isinstance(scorer, PixelScorer)
    assert scorer.offset == 3.0


def test_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("pixel", f"{FAKES}:PixelScorer", "marble.rewards")
    monkeypatch.setattr("rewards.registry.entry_points", lambda group: [point] if group == "marble.rewards" else [])
    assert known_scorers() == ("clip", "ocr", "geneval", "pixel")
    assert isinstance(build_scorer("mine", RewardConfig(scorer="pixel")), PixelScorer)


@pytest.mark.parametrize(
    ("scorer", "args", "message"),
    [
        ("genevl", {}, r"rewards\.mine\.scorer: no scorer 'genevl'; did you mean geneval\?"),
        ("nothing_like_it", {}, r"no scorer 'nothing_like_it' \(known: clip, ocr, geneval"),
        (f"{FAKES}:PixelScore", {}, r"rewards\.mine\.scorer: .* did you mean PixelScorer"),
        ("no_such_module:Thing", {}, "No module named 'no_such_module'"),
        (f"{FAKES}:PixelScorer", {"offst": 1}, r"rewards\.mine\.args do not fit .*offst"),
        (f"{FAKES}:NotAScorer", {}, "built NotAScorer, which is not callable"),
        (f"{FAKES}:painted", {"values": 1}, "args do not fit"),
    ],
)
def test_what_cannot_be_built_says_why(scorer: str, args: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_scorer("mine", RewardConfig(scorer=scorer, args=args))


def test_a_built_in_scorers_args_are_not_guessed_at() -> None:
    """Also where the configuration was made without being checked."""
    config = RewardConfig.model_construct(scorer="ocr", args={"upsample": "128"})
    with pytest.raises(ValueError, match="valid integer"):
        build_scorer("ocr", config)


def test_a_module_that_breaks_on_import_names_the_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS 12: the library that moved, not just the scorer that needs it."""
    (tmp_path / "broken_reward_module.py").write_text("from collections import no_such_name\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"cannot import name 'no_such_name' from 'collections'"):
        build_scorer("mine", RewardConfig(scorer="broken_reward_module:Scorer"))
    sys.modules.pop("broken_reward_module", None)


def test_a_missing_checkpoint_names_it() -> None:
    config = RewardConfig(scorer="clip", args={"checkpoint": "no/such/folder", "kind": "hpsv2"})
    with pytest.raises(ValueError, match="no CLIP checkpoint folder 'no/such/folder'"):
        build_scorer("hpsv2", config)


QUOTED = 'says "A"'
INCLUDE: dict[str, Any] = {"include": [{"class": "dog", "count": 1}]}


@pytest.mark.parametrize(
    ("options", "source", "prompt", "metadata", "expected"),
    [
        ({}, "general", "a dog", {}, True),
        ({"applies": ("ocr",)}, "ocr", "a dog", {}, True),
        ({"applies": ("ocr",)}, "general", QUOTED, {}, False),
        ({"when": "quoted"}, "general", QUOTED, {}, True),
        ({"when": "quoted"}, "general", 'says ""', {}, False),
        ({"when": "quoted"}, "general", 'a lone " quote', {}, False),
        ({"when": "quoted"}, "general", "a sign", {"text": "A"}, True),
        ({"when": "quoted"}, "general", "a sign", {"text": 5}, True),
        ({"applies": ("ocr", "x"), "when": "quoted"}, "ocr", "no quotes", {}, False),
        ({"applies": ("ocr", "x"), "when": "quoted"}, "y", QUOTED, {}, False),
        ({"when": "metadata"}, "geneval", "a dog", INCLUDE, True),
        ({"when": "metadata"}, "geneval", "a dog", {"tag": "counting"}, False),
        ({"when": "metadata"}, "geneval", "a dog", {"include": []}, False),
    ],
)
def test_applicable(
    options: dict[str, Any], source: str, prompt: str, metadata: dict[str, Any], expected: bool
) -> None:
    """FAULTS 9: by source first, then by prompt."""
    assert applicable(RewardConfig(scorer="ocr", **options), source, prompt, metadata) is expected


def test_self_test_raises_the_scorers_own_error() -> None:
    class Broken(PixelScorer):
        def __call__(self, images_NHWC: Any, prompts: Any, metadata: Any) -> RewardResult:
            raise OSError("weights are gone")

    with pytest.raises(OSError, match="weights are gone"):
        self_test(Broken())


def test_self_test_of_a_failed_cell_raises_its_reason() -> None:
    def failed(images_NHWC: Any, prompts: Any, metadata: Any) -> RewardResult:
        return collect([Cell.failed("no GPU")])

    with pytest.raises(RuntimeError, match="failed on the known image: no GPU"):
        self_test(failed)


def test_self_test_of_a_wrong_answer() -> None:
    def two(images_NHWC: Any, prompts: Any, metadata: Any) -> RewardResult:
        return from_scores([1.0, 2.0])

    with pytest.raises(RuntimeError, match="not one cell"):
        self_test(two)


def test_not_applicable_is_an_answer_to_the_self_test() -> None:
    def choosy(images_NHWC: Any, prompts: Any, metadata: Any) -> RewardResult:
        return collect([Cell.not_applicable("photos only")])

    assert self_test(choosy).states.tolist() == [State.NOT_APPLICABLE]


@pytest.mark.parametrize("side", [32, 64, 256])
def test_known_image_is_a_sign(side: int) -> None:
    image = known_image(side)
    assert image.shape == (side, side, 3)
    assert image.dtype == np.uint8
    assert image.min() < 60
    assert image[0, 0].tolist() == [255, 255, 255]


def test_known_image_has_a_least_size() -> None:
    with pytest.raises(ValueError, match="at least 32 pixels"):
        known_image(16)
