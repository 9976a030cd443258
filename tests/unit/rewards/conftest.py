"""Fixtures of the rewards' tests."""

from pathlib import Path

import pytest

from rewards.config import OcrArgs
from rewards.ocr import OcrScorer


@pytest.fixture(scope="session")
def clip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved tiny random CLIP checkpoint; read only."""
    import torch

    from tests.unit.rewards.tiny_clip import save_tiny_clip

    torch.set_num_threads(1)  # the model is too small for threads to pay
    return save_tiny_clip(tmp_path_factory.mktemp("clip") / "checkpoint", seed=5)


@pytest.fixture(scope="session")
def mask2former_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved tiny random Mask2Former checkpoint; read only."""
    import torch

    from tests.unit.rewards.tiny_mask2former import SEED, save_tiny_mask2former

    torch.set_num_threads(1)
    return save_tiny_mask2former(tmp_path_factory.mktemp("mask2former") / "checkpoint", SEED)


@pytest.fixture(scope="session")
def ocr_strict() -> OcrScorer:
    """A real reader under the strict rule."""
    return OcrScorer(OcrArgs(match="strict"))
