"""What must be known to get the same scores again: settings, seeds and versions."""

import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from actors.run_config import RunConfig

PACKAGES = ("torch", "diffusers", "transformers", "peft", "onnxruntime", "rapidocr", "ray")
"""Packages whose version can move an image or a score."""


def evaluation_record(config: RunConfig) -> dict[str, Any]:
    """Everything that decides the images of an evaluation, beside the adapter."""
    return {
        "base": config.policy.base,
        "revision": config.policy.revision,
        "sampling": config.eval_sampling.model_dump(mode="json"),
        "dtype": config.policy.dtype,
        "resolution": config.policy.resolution,
        "max_sequence_length": config.policy.max_sequence_length,
        "seed": config.eval.seed,
        "batch_size": config.eval.batch_size,
        **software(),
    }


def launch_record(config: RunConfig, resumed_at: int | None) -> dict[str, Any]:
    """One start of a run, and the machine that its controller is on; a run that was resumed elsewhere has several."""
    machine = {"platform": platform.machine(), "system": platform.system(), "cores": os.cpu_count()}
    return {"time": time.time(), "resumed_at": resumed_at, "machine": machine, **evaluation_record(config)}


def software() -> dict[str, Any]:
    """Versions of Python and of the packages that matter."""
    return {"python": platform.python_version(), "packages": {name: _version(name) for name in PACKAGES}}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None  # e.g. onnxruntime-gpu stands in for onnxruntime
