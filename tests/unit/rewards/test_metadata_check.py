"""Metadata that a scorer would fail on, told without its models."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rewards.config import RewardConfig
from rewards.metadata_check import MetadataCheck

ROOT = Path(__file__).parents[3]
DOG = {"include": [{"class": "dog", "count": 1}]}


def reward(scorer: str, **keywords: Any) -> RewardConfig:
    return RewardConfig.model_validate({"scorer": scorer, **keywords})


GENEVAL = reward(
    "geneval", args={"detector": "rewards.mask2former:Mask2FormerDetector", "detector_args": {"checkpoint": "a/b"}}
)
OCR = reward("ocr", applies=["signs"])


@pytest.mark.parametrize(
    ("config", "metadata", "says"),
    [
        (GENEVAL, DOG, ""),
        (GENEVAL, {}, ""),
        (GENEVAL, {"include": [{"class": "remote", "count": 1}]}, "the nearest is 'tv remote'"),
        (GENEVAL, {"include": [{"class": "dog", "count": 1, "color": "red"}]}, "none (no classifier)"),
        (GENEVAL, {"include": "dog"}, "include must be a list of clauses"),
        (OCR, {"text": 5}, "metadata text must be a string, got 5"),
        (OCR, {"include": "dog"}, ""),  # another reward's
        (reward("geneval", args={"detector": "tinyworld.nowhere:Detector"}), DOG, ""),
        (reward("geneval", args={"detector": "my.own:Detector"}), DOG, ""),
    ],
)
def test_metadata(config: RewardConfig, metadata: dict[str, Any], says: str) -> None:
    found = MetadataCheck(config)("a prompt", metadata)
    assert says in found
    assert bool(found) == bool(says)


def test_no_torch_is_loaded() -> None:
    """Row 28: prompts are checked in the driver."""
    code = (
        "import sys\n"
        "from rewards.config import RewardConfig\n"
        "from rewards.metadata_check import MetadataCheck\n"
        "for detector in ('rewards.mask2former:Mask2FormerDetector', 'tinyworld.detector:ColourShapeDetector'):\n"
        "    args = {'detector': detector, 'detector_args': {'checkpoint': 'a/b'}}\n"
        "    check = MetadataCheck(RewardConfig(scorer='geneval', args=args))\n"
        "    assert 'nearest' in check('x', {'include': [{'class': 'wug', 'count': 1}]})\n"
        "print([m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
