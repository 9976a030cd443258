"""From a recipe's words to a scorer."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewards.clipscore import ClipscoreScorer
from rewards.config import ARGS_OF_BUILT_IN, GenevalArgs, RewardConfig
from rewards.contract import RewardResult, State
from rewards.geneval import GenevalScorer
from rewards.known import known_image
from rewards.ocr import OcrScorer
from rewards.pickscore import PickscoreScorer
from rewards.registry import applicable, build_scorer, can_score, known_scorers, self_test
from rewards.results import Cell, collect, from_scores
from tests.unit.rewards.fakes import PixelScorer

FAKES = "tests.unit.rewards.fakes"


def geneval_config(**args: object) -> RewardConfig:
    return RewardConfig(scorer="geneval", args={"detector": f"{FAKES}:PixelDetector"} | args)


def test_built_in_scorers_start_and_pass_their_self_test(clip_folder: Path) -> None:
    """FAULTS 12: a scorer that is broken shows here, before the first step."""
    clip = build_scorer("align", RewardConfig(scorer="clipscore", args={"checkpoint": str(clip_folder)}))
    assert isinstance(clip, ClipscoreScorer)
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
    assert known_scorers() == (*ARGS_OF_BUILT_IN, "pixel")
    assert isinstance(build_scorer("mine", RewardConfig(scorer="pixel")), PixelScorer)


@pytest.mark.parametrize(
    ("scorer", "args", "message"),
    [
        ("genevl", {}, r"rewards\.mine\.scorer: no scorer 'genevl'; did you mean geneval\?"),
        ("nothing_like_it", {}, r"no scorer 'nothing_like_it' \(known: pickscore, hpsv2, clipscore"),
        (f"{FAKES}:PixelScore", {}, r"rewards\.mine\.scorer: .* did you mean PixelScorer"),
        ("no_such_module:Thing", {}, "No module named 'no_such_module'"),
        (f"{FAKES}:PixelScorer", {"offst": 1}, r"rewards\.mine\.args do not fit .*offst"),
        (f"{FAKES}:NotAScorer", {}, "built NotAScorer, which is not callable"),
        (f"{FAKES}:painted", {"values": 1}, "args do not fit"),
        (f"{FAKES}:FailsToStart", {"siz": 1}, r"args do not fit .*'siz'; it takes \(size: int = 1\)"),
        (f"{FAKES}:FAKES", {}, f"{FAKES} has no FAKES"),
        ("tests.unit.rewards.test_reward_registry:INCLUDE", {}, "INCLUDE is dict, not a class"),
    ],
)
def test_what_cannot_be_built_says_why(scorer: str, args: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_scorer("mine", RewardConfig(scorer=scorer, args=args))


def test_a_constructors_own_error_is_not_taken_for_wrong_args() -> None:
    with pytest.raises(TypeError, match="weights are of another type"):
        build_scorer("mine", RewardConfig(scorer=f"{FAKES}:FailsToStart", args={"size": 2}))


def announce(monkeypatch: pytest.MonkeyPatch, **points: str) -> None:
    """Entry points of group marble.rewards, as if packages were installed."""
    found = [EntryPoint(name.rstrip("_"), value, "marble.rewards") for name, value in points.items()]
    monkeypatch.setattr("rewards.registry.entry_points", lambda group: found if group == "marble.rewards" else [])


def test_an_entry_point_that_breaks_fails_alone_with_its_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS 12: whatever it raises; the others are not even imported."""
    (tmp_path / "broken_entry_module.py").write_text("raise RuntimeError('libcudnn.so.9 is too old')\n")
    monkeypatch.syspath_prepend(tmp_path)
    announce(monkeypatch, broken="broken_entry_module:Scorer", gone=f"{FAKES}:Gone", pixel=f"{FAKES}:PixelScorer")
    assert isinstance(build_scorer("mine", RewardConfig(scorer="pixel")), PixelScorer)
    with pytest.raises(ValueError, match=r"rewards\.mine\.scorer: entry point broken = .*RuntimeError: libcudnn"):
        build_scorer("mine", RewardConfig(scorer="broken"))
    with pytest.raises(ValueError, match=r"entry point gone = .*has no attribute 'Gone'"):
        build_scorer("mine", RewardConfig(scorer="gone"))


def test_a_package_cannot_take_a_built_in_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Installing something must not change what a recipe means."""
    announce(monkeypatch, geneval=f"{FAKES}:PixelScorer")
    assert known_scorers() == tuple(ARGS_OF_BUILT_IN)
    with pytest.warns(
        RuntimeWarning, match=f"'geneval' is the built-in one; entry point geneval = {FAKES}:PixelScorer"
    ):
        assert isinstance(build_scorer("mine", geneval_config()), GenevalScorer)


def test_two_packages_of_one_name_are_not_guessed_between(monkeypatch: pytest.MonkeyPatch) -> None:
    announce(monkeypatch, pixel=f"{FAKES}:PixelScorer", pixel_=f"{FAKES}:SlowScorer")
    assert known_scorers()[-1:] == ("pixel",)
    with pytest.raises(ValueError, match=r"'pixel' is announced more than once .*PixelScorer.*SlowScorer.*instead"):
        build_scorer("mine", RewardConfig(scorer="pixel"))
    announce(monkeypatch, pixel=f"{FAKES}:PixelScorer", pixel_=f"{FAKES}:PixelScorer")
    assert isinstance(build_scorer("mine", RewardConfig(scorer="pixel")), PixelScorer)


def test_a_module_that_is_not_there_says_what_to_do() -> None:
    """FAULTS 29: the worker is another process, perhaps elsewhere; the shell's folder is not on its path."""
    with pytest.raises(ValueError, match=r"No module named 'my_rewards'; install its package where the scorer runs"):
        build_scorer("mine", RewardConfig(scorer="my_rewards:Sharpness"))


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("import no_such_library", "No module named 'no_such_library'$"),
        ("def broken(:", "SyntaxError: invalid syntax"),
        ("raise OSError('libGL.so.1 is missing')", "OSError: libGL"),
    ],
)
def test_a_dotted_path_that_breaks_on_import_names_the_cause(
    line: str, cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAULTS 12: a library that it needs and lacks is not taken for the module itself."""
    (tmp_path / "breaks_on_import.py").write_text(f"{line}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=rf"rewards\.mine\.scorer: 'breaks_on_import:S' cannot be imported: {cause}"):
        build_scorer("mine", RewardConfig(scorer="breaks_on_import:S"))


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
    config = RewardConfig(scorer="clipscore", args={"checkpoint": "no/such/folder"})
    with pytest.raises(ValueError, match="no checkpoint folder 'no/such/folder'"):
        build_scorer("align", config)


def test_built_in_scorers_know_the_range_of_their_scores(clip_folder: Path, ocr_strict: OcrScorer) -> None:
    """Reward servers tell it."""
    args = {"checkpoint": str(clip_folder)}
    clip = build_scorer("clip", RewardConfig(scorer="clipscore", args=args))
    pick = build_scorer("pick", RewardConfig(scorer="pickscore", args=args))
    assert isinstance(clip, ClipscoreScorer)
    assert isinstance(pick, PickscoreScorer)
    assert clip.score_range == (-1.0, 1.0)
    low, high = pick.score_range
    assert (-low, high) == (high, pytest.approx(pick.logit_scale / 26))
    assert ocr_strict.score_range == (0.0, 1.0)
    ranges = [
        GenevalScorer(GenevalArgs.model_validate(geneval_config(**options).args)).score_range
        for options in ({}, {"clip": True}, {"score": "correct"})
    ]
    assert ranges == [(-np.inf, 1.0), (0.0, 1.0), (0.0, 1.0)]


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


SIGNS = RewardConfig(scorer="ocr", applies=("signs",))


@pytest.mark.parametrize(
    ("config", "source", "prompt", "metadata", "expected"),
    [
        (SIGNS, "signs", 'says "A"', {}, True),
        (SIGNS, "plain", 'says "A"', {}, False),  # another source
        (SIGNS, "signs", "says A", {}, False),
        (SIGNS, "signs", "says A", {"text": "A"}, True),
        (SIGNS, "signs", "says A", {"text": 5}, True),  # wrong, which is told by MetadataCheck
        (geneval_config(), "any", "a dog", INCLUDE, True),
        (geneval_config(), "any", "a dog", {}, False),
        (geneval_config(), "any", "a dog", {"include": "dog"}, True),
        (RewardConfig(scorer="my.own:Scorer"), "any", "x", {}, True),
        (RewardConfig(scorer="my.own:Scorer", when="quoted"), "any", "x", {}, False),
    ],
)
def test_what_a_scorer_needs_decides_whether_it_can_score(
    config: RewardConfig, source: str, prompt: str, metadata: dict[str, Any], expected: bool
) -> None:
    """FAULTS 9: beyond where it applies."""
    assert can_score(config, source, prompt, metadata) == expected


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
