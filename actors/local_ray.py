"""Starts a quiet local Ray, or joins a running one: `--address`, RAY_ADDRESS, or the cluster of a `ray job submit`.

The driver imports no torch, so it never initialises CUDA. Whatever the cluster says about authentication is left alone.
"""

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray

from actors.remote import one_line
from actors.run_config import RunConfig
from actors.team import Identity
from learner.errors import UserError

ROOT = Path(__file__).parents[1]
"""The clone: what workers on other machines need of it is shipped."""
MIN_CPUS = 2
"""Logical CPUs of a local Ray; roles ask for shares of them that say nothing about the machine."""
LATENT_CHANNELS, VAE_FACTOR, FLOAT_BYTES = 16, 8, 4
ITERATIONS_IN_STORE = 3
"""The iteration at work, what of the last one is not yet freed, and room for adapters."""
STORE_BASE_BYTES = 192 * 2**20
MAX_STORE_SHARE = 0.3
"""Of the machine's memory; Ray's own default."""
JOB_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Set by Ray in the entry point of a submitted job, whose runtime environment then holds for its workers."""
LOCAL_VARIABLES = {
    # Usage reports would go out over a network that need not be there.
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray gives up on its own processes after a minute, which a machine with other work can take to start them.
    "RAY_raylet_start_wait_time_s": "300",
    "RAY_worker_register_timeout_seconds": "300",
    "RAY_health_check_timeout_ms": "60000",
}
"""Environment of a Ray that is started here, where the user does not say otherwise."""
NOT_SHIPPED = [
    ".git",
    ".venv",
    ".reward-envs",
    "runs",
    "cache",
    "tests",
    "docs",
    "benchmarks",
    "tinyworld/work",
    "**/__pycache__",
]
"""Kept out of the working_dir that workers of a joined cluster get (Ray's limit is 100 MB)."""
WORKER_LOGS_VARIABLE = "MARBLE_WORKER_LOGS"
"""Set to 1, everything workers print appears in the driver's terminal too."""


def new_identity(run_name: str) -> Identity:
    """A run id that no other run has, not even one of the same name."""
    return Identity(f"{run_name}-{secrets.token_hex(3)}")


@contextmanager
def connected(config: RunConfig, address: str | None = None) -> Iterator[None]:
    """Ray for the length of a block; what was started here ends with it, what was joined lives on.

    Raises:
        UserError: no Ray at the address.
    """
    if ray.is_initialized():
        yield
        return
    with _quiet():
        if address is None and _inside_cluster():
            _join("auto", {})
        elif address is not None:
            _join(address, {"working_dir": str(ROOT), "excludes": NOT_SHIPPED})
        else:
            _start_local(config)
    try:
        yield
    finally:
        ray.shutdown()


def _inside_cluster() -> bool:
    """Whether a submitted job or the environment names a cluster."""
    return JOB_VARIABLE in os.environ or bool(os.environ.get("RAY_ADDRESS"))


def _join(address: str, runtime_env: dict[str, Any]) -> None:
    try:
        ray.init(
            address=address,
            # A submitted job brings its own; setting another one here would clash with it.
            runtime_env=None if JOB_VARIABLE in os.environ else runtime_env or None,
            **_logging(),
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UserError(f"--address {address}: no Ray cluster could be joined ({_reason(error)})") from error


def _reason(error: BaseException) -> str:
    """Why a cluster could not be joined; Ray hides a refused token behind a plain failure to connect."""
    if "AuthToken" in str(error.__cause__):
        return "it wants a token: set RAY_AUTH_MODE=token, with the token in RAY_AUTH_TOKEN or ~/.ray/auth_token"
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _start_local(config: RunConfig) -> None:
    for name, value in LOCAL_VARIABLES.items():
        os.environ.setdefault(name, value)
    try:
        ray.init(
            address="local",  # without it Ray would join whatever cluster it finds on this machine
            num_cpus=max(MIN_CPUS, os.cpu_count() or 1),
            object_store_memory=store_bytes(config),
            include_dashboard=False,
            **_logging(),
        )
    except Exception as error:  # Ray raises a bare one when its own processes do not come up
        ray.shutdown()
        raise UserError(f"Ray could not be started on this machine: {one_line(error)}") from error


def _logging() -> dict[str, Any]:
    return {
        "log_to_driver": os.environ.get(WORKER_LOGS_VARIABLE) == "1",
        "logging_level": logging.ERROR,
    }


def store_bytes(config: RunConfig) -> int:
    """Object store for a few iterations' images and latents, within Ray's usual share of the memory."""
    pixels = config.policy.resolution**2
    image = 3 * pixels
    latent = LATENT_CHANNELS * (pixels // VAE_FACTOR**2) * FLOAT_BYTES
    wanted = STORE_BASE_BYTES + ITERATIONS_IN_STORE * config.num_samples * (image + latent)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(wanted, int(memory * MAX_STORE_SHARE))


@contextmanager
def _quiet() -> Iterator[None]:
    """Ray's own remarks on how it was started; errors still come through."""
    logger = logging.getLogger("ray")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
