"""A pool's own Python is looked at before it is given an actor. Row 29 of the faults table."""

import stat
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from actors.config import PoolConfig, RoleConfig
from actors.environments import environment_problems
from actors.process import actor_options
from tests.unit.actors.stand_ins import recipe


def problems(python: str) -> list[str]:
    return environment_problems(recipe(actors={"pools": {"a": {"runtime_env": {"py_executable": python}}}}))


def pretender(folder: Path, says: str) -> str:
    """A program that answers what it is told to."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{says}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_this_python_will_do_and_so_will_none() -> None:
    assert problems(sys.executable) == []
    assert environment_problems(recipe()) == []


@pytest.mark.parametrize(
    ("says", "wrong"),
    [
        ("echo '[[3, 8], \"2.60.0\"]'", "is Python 3.8, this is"),
        (f"echo '[{list(sys.version_info[:2])}, \"2.1.0\"]'", f"has Ray 2.1.0, this is Ray {version('ray')}"),
        (f"echo '[{list(sys.version_info[:2])}, null]'", f"has no Ray, this is Ray {version('ray')}"),
        ("echo hello", "cannot be run as a Python (JSONDecodeError)"),
        ("exit 3", "cannot be run as a Python (CalledProcessError)"),
    ],
)
def test_row_29_one_that_will_not_do_is_told_with_pool_and_reason(tmp_path: Path, says: str, wrong: str) -> None:
    (line,) = problems(pretender(tmp_path, says))
    assert line.startswith(f"actors.pools.a.runtime_env.py_executable: {tmp_path}/python {wrong}")


def test_row_29_a_path_that_is_not_there_is_told(tmp_path: Path) -> None:
    (line,) = problems(str(tmp_path / "gone"))
    assert line.endswith("gone cannot be run as a Python (FileNotFoundError)")


def test_a_pool_asks_ray_for_its_python_packages_and_variables() -> None:
    role = PoolConfig.model_validate({"runtime_env": {"py_executable": "/a b/python", "env_vars": {"X": "1"}}})
    environment = actor_options(role, "n", "s")["runtime_env"]
    assert environment["py_executable"] == "'/a b/python'", "it goes through a shell"
    assert environment["env_vars"]["X"] == "1"
    assert environment["env_vars"]["OMP_NUM_THREADS"] == "1"
    piped = PoolConfig.model_validate({"runtime_env": {"pip": ["tinypack==1.0"]}})
    assert actor_options(piped, "n", "s")["runtime_env"]["pip"] == ["tinypack==1.0"]
    plain = actor_options(RoleConfig(), "n", "s")["runtime_env"]
    assert set(plain) == {"env_vars"}
