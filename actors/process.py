"""What every actor's process does first, what it asks of Ray, and what it says of itself."""

import os
import resource
import shlex
import sys
import time
from typing import Any

from actors.config import PoolConfig, RoleConfig, RuntimeEnvConfig
from actors.results import ActorVitals

INLINE_BYTES = 1024
"""Ray returns values below 100 kB through the caller's own memory; a group of small images would then pass through the
controller. Actors of this package put everything above this into the object store instead."""
BYTES_PER_KIB = 1024


def actor_options(config: RoleConfig, name: str, namespace: str) -> dict[str, Any]:
    """Ray's options for one actor of a role; `name` is unique within the run's namespace."""
    return {
        "name": name,
        "namespace": namespace,
        "num_cpus": config.num_cpus,
        "num_gpus": config.num_gpus,
        "resources": dict(config.resources),
        # The controller replaces what is lost, with the state that belongs into it; Ray would restart it empty.
        "max_restarts": 0,
        "max_task_retries": 0,
        "runtime_env": _runtime_env(config),
    }


def _runtime_env(config: RoleConfig) -> dict[str, Any]:
    own = config.runtime_env if isinstance(config, PoolConfig) else RuntimeEnvConfig()
    environment: dict[str, Any] = {"env_vars": {**_environment(config.threads), **own.env_vars}}
    if own.py_executable:
        # Ray puts it into a shell's command line as it is.
        environment["py_executable"] = shlex.quote(own.py_executable)
    if own.pip:
        environment["pip"] = list(own.pip)
    return environment


def _environment(threads: int) -> dict[str, str]:
    # Ray gives actors below one CPU a single OpenMP thread; it must be set before the libraries load.
    return {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        # Libraries' remarks on themselves would fill a log nobody reads.
        "PYTHONWARNINGS": "ignore",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "DIFFUSERS_VERBOSITY": "error",
        "RAY_max_direct_call_object_size": str(INLINE_BYTES),
    }


def device_of(config: RoleConfig) -> str:
    """Where an actor of this role computes: on a GPU if and only if it asked for one."""
    return "cuda" if config.num_gpus > 0 else "cpu"


class Started:
    """Measures an actor's start, and sets torch's threads once it is loaded."""

    def __init__(self, role: str, name: str, threads: int) -> None:
        self._role, self._name, self._threads = role, name, threads
        self._began = 0.0
        self._seconds = 0.0

    def __enter__(self) -> "Started":
        self._began = time.monotonic()
        return self

    def __exit__(self, *exception: object) -> None:
        self._seconds = time.monotonic() - self._began
        torch = sys.modules.get("torch")  # a scorer or the harmonizer may do without
        if torch is not None:
            torch.set_num_threads(self._threads)

    @property
    def vitals(self) -> ActorVitals:
        """As of now."""
        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return ActorVitals(
            role=self._role,
            name=self._name,
            pid=os.getpid(),
            threads=self._threads,
            peak_memory_gib=peak_kib * BYTES_PER_KIB / 2**30,
            start_s=self._seconds,
            peak_gpu_gib=_peak_gpu_gib(),
        )


def _peak_gpu_gib() -> float:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0.0
    return float(torch.cuda.max_memory_allocated()) / 2**30
