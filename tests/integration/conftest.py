"""Fixtures of whole runs, and the one local Ray that the quick tests share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random SD3 pipeline on disk; read only."""
    from tests.unit.learner.tiny_sd3 import save_tiny_sd3

    return save_tiny_sd3(tmp_path_factory.mktemp("model") / "pipeline", seed=3)


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    """A local Ray whose workers find this clone."""
    import logging

    import ray

    from actors.local_ray import LOCAL_VARIABLES

    for name, value in LOCAL_VARIABLES.items():
        os.environ.setdefault(name, value)
    logging.getLogger("ray").setLevel(logging.ERROR)
    ray.init(
        address="local",
        num_cpus=4,
        object_store_memory=200 * 2**20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}},
    )
    yield
    ray.shutdown()
