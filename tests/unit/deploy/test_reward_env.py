"""Environments for scorers with clashing packages: what they hold, what stands behind, and what fails."""

import subprocess
from pathlib import Path

import pytest

from deploy.reward_env import BEHIND, REQUIREMENTS, build
from learner.errors import UserError
from tests.unit.deploy.tiny_package import environment


def says(python: Path, code: str) -> str:
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_each_has_its_own_packages_first_and_ours_behind_them(tmp_path: Path) -> None:
    """numpy is not installed anew: pip finds that what stands behind will do."""
    pythons = [environment(tmp_path, version, "numpy>=1") for version in ("1.0", "2.0")]
    code = "import tinypack, numpy, ray; print(tinypack.VERSION, numpy.__file__)"
    shown = [says(python, code).split() for python in pythons]
    assert [version for version, _ in shown] == ["1.0", "2.0"]
    import numpy as np

    assert {file for _, file in shown} == {np.__file__}
    files = {path.name for path in (tmp_path / "envs/1.0/lib").glob("python*/site-packages/*")}
    assert files == {"tinypack.py", "tinypack-1.0.dist-info", "__pycache__", BEHIND} - (
        set() if "__pycache__" in files else {"__pycache__"}
    )


def test_what_cannot_be_installed_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"1\.0\.txt: pip failed: ERROR: .*no-such-package"):
        environment(tmp_path, "1.0", "no-such-package")
    assert list((tmp_path / "envs").iterdir()) == []


def test_a_name_without_requirements_is_told_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nope\.txt does not exist; there are paddleocr"):
        build("nope", REQUIREMENTS / "nope.txt", tmp_path)
