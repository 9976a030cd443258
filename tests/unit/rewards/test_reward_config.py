"""Reward configuration: what is refused at load, with its path."""

import subprocess
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from rewards.config import GenevalArgs, OcrArgs, RewardConfig

CLIP = {"checkpoint": "weights", "kind": "pickscore"}


def test_defaults() -> None:
    config = RewardConfig(scorer="ocr")
    assert config.applies is None
    assert config.when == "always"
    assert config.args == {}


@pytest.mark.parametrize(
    ("config", "where", "message"),
    [
        ({"scorer": "clip", "args": CLIP | {"knd": 1}}, ("args", "knd"), "Extra inputs are not permitted"),
        ({"scorer": "clip", "args": {"checkpoint": "x"}}, ("args", "kind"), "Field required"),
        ({"scorer": "clip", "args": {"kind": "hpsv2"}}, ("args", "checkpoint"), "Field required"),
        ({"scorer": "clip", "args": CLIP | {"kind": "clip"}}, ("args", "kind"), "'pickscore', 'hpsv2' or 'clipscore'"),
        ({"scorer": "clip", "args": CLIP | {"batch_size": 0}}, ("args", "batch_size"), "greater than or equal to 1"),
        (
            {"scorer": "clip", "args": CLIP | {"kind": "hpsv2", "scale": "published"}},
            ("args", "scale"),
            "pickscore only, hpsv2 has one score",
        ),
        ({"scorer": "ocr", "args": {"match": "exact"}}, ("args", "match"), "'published' or 'strict'"),
        ({"scorer": "ocr", "args": {"upsample": 8}}, ("args", "upsample"), "greater than or equal to 32"),
        ({"scorer": "geneval", "args": {"detector": "tiny"}}, ("args", "detector"), "should match pattern"),
        ({"scorer": "geneval"}, ("args", "detector"), "Field required"),
        ({"scorer": "ocr", "args": {"upsample": "128"}}, ("args", "upsample"), "valid integer"),
        ({"scorer": "ocr", "args": {"min_confidence": "0.3"}}, ("args", "min_confidence"), "valid number"),
        ({"scorer": "ocr", "args": {"num_threads": 1.0}}, ("args", "num_threads"), "valid integer"),
        ({"scorer": "clip", "args": CLIP | {"batch_size": True}}, ("args", "batch_size"), "valid integer"),
        ({"scorer": "clip", "args": CLIP | {"checkpoint": 5}}, ("args", "checkpoint"), "valid string"),
        ({"scorer": "geneval", "args": {"detector": "a:B", "clip": "yes"}}, ("args", "clip"), "valid boolean"),
        ({"scorer": "geneval", "args": {"detector": "a:B", "clip": 1}}, ("args", "clip"), "valid boolean"),
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
    assert RewardConfig(scorer="ocr", args={"min_confidence": 1}).args == {"min_confidence": 1}


def test_frozen() -> None:
    config = RewardConfig(scorer="ocr")
    with pytest.raises(ValidationError, match="frozen"):
        config.scorer = "clip"  # type: ignore[misc]


def test_round_trip_through_json() -> None:
    """A resolved recipe is written and read back."""
    config = RewardConfig(scorer="ocr", args={"match": "strict"}, applies=("ocr",), when="quoted")
    assert RewardConfig.model_validate_json(config.model_dump_json()) == config


def test_parity_is_the_default() -> None:
    """PAPER 4: unclipped, published matching; the tiny recipe asks for its own."""
    assert GenevalArgs(detector="a:B").clip is False
    assert GenevalArgs(detector="a:B").score == "graded"
    assert OcrArgs().match == "published"


def test_most_of_the_package_needs_no_torch() -> None:
    """A recipe is checked, text is read and objects are judged without paying for it."""
    modules = "rewards.config, rewards.registry, rewards.safe, rewards.ocr, rewards.geneval"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
