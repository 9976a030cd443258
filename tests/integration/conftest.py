"""Fixtures of whole runs."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random SD3 pipeline on disk; read only."""
    from tests.unit.learner.tiny_sd3 import save_tiny_sd3

    return save_tiny_sd3(tmp_path_factory.mktemp("model") / "pipeline", seed=3)
