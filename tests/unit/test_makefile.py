"""What make would do, asked without doing it."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def planned(tmp_path: Path, *words: str) -> str:
    """The commands of a target, in an environment that is not there yet."""
    command = ["make", "-n", f"VENV={tmp_path / 'venv'}", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_pip_gets_its_options_and_no_index_by_default(tmp_path: Path) -> None:
    """Machines that do not reach another index must still install."""
    assert "--extra-index-url" not in planned(tmp_path, "setup")
    assert "constraints.txt --extra-index-url https://x/cpu -e" in planned(
        tmp_path, "setup", "PIP_ARGS=--extra-index-url https://x/cpu"
    )


def test_training_gets_args_and_says_how_it_was_called(tmp_path: Path) -> None:
    for target, recipe in (("train", "tiny"), ("train-long", "tiny_long")):
        plan = planned(tmp_path, target, "ARGS=--resume")
        assert f"-m deploy.cli train deploy/recipes/{recipe}.yaml --resume" in plan
        assert f"MARBLE_MAKE_TARGET={target} " in plan
        assert "pip install" in plan, "a fresh clone sets itself up"
