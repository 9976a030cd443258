"""Reward configuration: what is refused at load, with its path."""

import re
import subprocess
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from rewards.config import GenevalArgs, OcrArgs, RewardConfig
from rewards.scorer_args import AestheticArgs, ClipscoreArgs, Hpsv2Args, ImagerewardArgs, PickscoreArgs

MASK2FORMER, CLIP_COLORS = "rewards.mask2former:Mask2FormerDetector", "rewards.clip_colors:ClipColors"


def test_defaults() -> None:
    config = RewardConfig(scorer="ocr")
    assert config.applies is None
    assert config.when == "always"
    assert config.args == OcrArgs().model_dump(mode="json", exclude={"device"}), "which its pool decides"


@pytest.mark.parametrize(
    ("config", "where", "message"),
    [
        ({"scorer": "pickscore", "args": {"scal": 1}}, ("args", "scal"), "Extra inputs are not permitted"),
        ({"scorer": "pickscore", "args": {"scale": "raw"}}, ("args", "scale"), "'training' or 'published'"),
        ({"scorer": "hpsv2", "args": {"scale": "published"}}, ("args", "scale"), "Extra inputs are not permitted"),
        ({"scorer": "hpsv2", "args": {"checkpoint": ""}}, ("args", "checkpoint"), "at least 1 character"),
        ({"scorer": "clipscore", "args": {"batch_size": 0}}, ("args", "batch_size"), "greater than or equal to 1"),
        ({"scorer": "clipscore", "args": {"dtype": "int8"}}, ("args", "dtype"), "'float32', 'bfloat16' or 'float16'"),
        ({"scorer": "aesthetic"}, ("args", "head"), "Field required"),
        ({"scorer": "unifiedreward"}, ("args", "base_url"), "Field required"),
        ({"scorer": "unifiedreward", "args": {"base_url": "host:8000"}}, ("args", "base_url"), "no address like http:"),
        (
            {"scorer": "unifiedreward", "args": {"base_url": "http://h/v1", "question": "Rate it."}},
            ("args",),
            "question must contain {prompt}",
        ),
        ({"scorer": "ocr", "args": {"match": "exact"}}, ("args", "match"), "'published' or 'strict'"),
        ({"scorer": "ocr", "args": {"upsample": 8}}, ("args", "upsample"), "greater than or equal to 32"),
        ({"scorer": "geneval", "args": {"detector": "tiny"}}, ("args", "detector"), "should match pattern"),
        ({"scorer": "geneval"}, ("args", "detector"), "Field required"),
        ({"scorer": "ocr", "args": {"upsample": "128"}}, ("args", "upsample"), "valid integer"),
        ({"scorer": "ocr", "args": {"min_confidence": "0.3"}}, ("args", "min_confidence"), "valid number"),
        ({"scorer": "ocr", "args": {"num_threads": 1.0}}, ("args", "num_threads"), "valid integer"),
        ({"scorer": "clipscore", "args": {"batch_size": True}}, ("args", "batch_size"), "valid integer"),
        ({"scorer": "hpsv2", "args": {"checkpoint": 5}}, ("args", "checkpoint"), "valid string"),
        ({"scorer": "geneval", "args": {"detector": "a:B", "clip": "yes"}}, ("args", "clip"), "valid boolean"),
        ({"scorer": "geneval", "args": {"detector": "a:B", "clip": 1}}, ("args", "clip"), "valid boolean"),
        (
            {
                "scorer": "geneval",
                "args": {"detector": MASK2FORMER, "detector_args": {"checkpoint": "a/b", "short_side": "8"}},
            },
            ("args", "detector_args", "short_side"),
            "valid integer",
        ),
        (
            {"scorer": "ocr", "args": {"engine": "paddleocr", "line_width": 160}},
            ("args",),
            "line_width belongs to engine rapidocr, got 160 for paddleocr",
        ),
        (
            {"scorer": "geneval", "args": {"detector": "a:B", "colors_args": {"checkpoint": "a/b"}}},
            ("args",),
            "colors_args need colors, the classifier they are for, got checkpoint",
        ),
        ({"scorer": "a b"}, ("scorer",), "neither a scorer's name nor a dotted path"),
        ({"scorer": "x:"}, ("scorer",), "neither a scorer's name nor a dotted path"),
        ({"scorer": "ocr", "when": "sometimes"}, ("when",), "'always', 'quoted' or 'metadata'"),
        ({"scorer": "ocr", "applies": []}, ("applies",), "at least 1 item"),
        ({"scorer": "ocr", "weight": 1}, ("weight",), "Extra inputs are not permitted"),
    ],
)
def test_refused_with_its_path(config: dict[str, Any], where: tuple[str, ...], message: str) -> None:
    """FAULTS 24: also inside the args of a built-in scorer."""
    with pytest.raises(ValidationError) as caught:
        RewardConfig.model_validate(config)
    [error] = caught.value.errors()
    assert error["loc"] == where
    assert message in error["msg"]


@pytest.mark.parametrize("scorer", ["my.package:Scorer", "module:Scorer", "my-reward", "pixel_2"])
def test_args_of_others_are_their_own_affair(scorer: str) -> None:
    assert RewardConfig(scorer=scorer, args={"anything": 1}).args == {"anything": 1}


def test_whole_numbers_are_numbers() -> None:
    """Strict does not mean fussy: 1 is a fine value of a real number."""
    assert RewardConfig(scorer="ocr", args={"min_confidence": 1}).args["min_confidence"] == 1


def test_a_device_is_filled_in_wherever_none_is_named() -> None:
    """Also of GenEval's parts; anyone else's detector has its own ideas."""
    parts = {"detector_args": {"checkpoint": "a/b", "device": "cuda:1"}, "colors_args": {"checkpoint": "a/b"}}
    ours = RewardConfig(scorer="geneval", args={"detector": MASK2FORMER, "colors": CLIP_COLORS, **parts})
    assert "device" not in ours.args["colors_args"]
    there = ours.on("cuda").args
    assert (there["detector_args"]["device"], there["colors_args"]["device"]) == ("cuda:1", "cuda")
    assert "device" not in there
    assert RewardConfig(scorer="ocr").on("cpu").args == OcrArgs().model_dump(mode="json")
    for foreign in (RewardConfig(scorer="a:B"), RewardConfig(scorer="geneval", args={"detector": "a:B"})):
        assert foreign.on("cuda") == foreign


def test_frozen() -> None:
    config = RewardConfig(scorer="ocr")
    with pytest.raises(ValidationError, match="frozen"):
        config.scorer = "hpsv2"  # type: ignore[misc]


def test_round_trip_through_json() -> None:
    """A resolved recipe is written and read back."""
    config = RewardConfig(scorer="ocr", args={"match": "strict"}, applies=("ocr",), when="quoted")
    assert RewardConfig.model_validate_json(config.model_dump_json()) == config


def test_parity_is_the_default() -> None:
    """PAPER 4: unclipped, published matching; the tiny recipe asks for its own."""
    assert GenevalArgs(detector="a:B").clip is False
    assert GenevalArgs(detector="a:B").score == "graded"
    assert OcrArgs().match == "published"


def test_a_scorer_without_checkpoint_is_the_published_one_pinned() -> None:
    """FAULTS 27: hub ids with the commits whose scores are published."""
    for args in (PickscoreArgs(), Hpsv2Args(), ClipscoreArgs(), ImagerewardArgs(), AestheticArgs(head="x")):
        pinned = [value for name, value in args if name.endswith("revision") and value is not None]
        assert "/" in args.checkpoint
        assert pinned
        assert all(re.fullmatch("[0-9a-f]{40}", str(commit)) for commit in pinned)


def test_a_named_checkpoint_takes_nothing_of_the_published_one() -> None:
    """The commit of another repository, or a processor from the hub, would be a puzzle at best."""
    named = PickscoreArgs(checkpoint="./mine")
    assert (named.revision, named.processor, named.processor_revision) == (None, None, None)
    both = PickscoreArgs(checkpoint="./mine", processor="./other")
    assert (both.processor, both.processor_revision) == ("./other", None)
    assert ImagerewardArgs(checkpoint="./mine").tokenizer is None


def test_a_named_part_takes_no_commit_of_the_published_one() -> None:
    """FAULTS 27: the same for what stands beside the checkpoint; the rest stays published."""
    clip = PickscoreArgs(processor="someone/else")
    assert (clip.processor, clip.processor_revision, clip.revision) == ("someone/else", None, PickscoreArgs().revision)
    text = ImagerewardArgs(tokenizer="someone/else")
    assert (text.tokenizer_revision, text.revision) == (None, ImagerewardArgs().revision)
    for args in (clip, text, PickscoreArgs(), Hpsv2Args(checkpoint="a/b", revision="c", processor="d/e")):
        assert type(args).model_validate(args.model_dump()) == args, "as in a resolved recipe"
    assert PickscoreArgs(processor="someone/else", processor_revision="abc").processor_revision == "abc"


def test_most_of_the_package_needs_no_torch() -> None:
    """A recipe is checked, text is read and objects are judged without paying for it."""
    modules = "rewards.config, rewards.registry, rewards.safe, rewards.ocr, rewards.geneval"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
