"""Fixtures of the learner's tests."""

from pathlib import Path

import pytest
import torch

from tests.unit.learner.tiny_sd3 import save_tiny_sd3


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """The models are too small for threads to pay."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved tiny SD3 pipeline; read only."""
    return save_tiny_sd3(tmp_path_factory.mktemp("tiny_sd3") / "pipeline", seed=3)
