"""docs/examples/colorfulness: installed as a user would, found by its name, and scoring what its formula says."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rewards.config import RewardConfig
from rewards.contract import State
from rewards.registry import build_scorer, known_scorers, self_test
from rewards.safe import score_safely

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "docs/examples/colorfulness"
MAX_LINES = 30


def test_the_reward_is_as_short_as_the_docs_say() -> None:
    assert len((EXAMPLE / "marble_colorfulness.py").read_text(encoding="utf-8").splitlines()) <= MAX_LINES


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example, installed by pip into a folder of its own that is on the path for one test."""
    source, target = tmp_path / "source", tmp_path / "site-packages"
    shutil.copytree(EXAMPLE, source)  # pip builds beside the sources
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    monkeypatch.syspath_prepend(target)


@pytest.mark.usefixtures("installed")
def test_installed_it_is_a_scorer_by_name() -> None:
    assert "colorfulness" in known_scorers()
    scorer = build_scorer("colour", RewardConfig(scorer="colorfulness", args={"scale": 10.0}))
    assert self_test(scorer, side=64).scores.tolist() == [0.0], "the known image is black on white"
    images = np.zeros((3, 2, 2, 3), np.uint8)
    images[0] = (200, 100, 50)
    images[1] = [[(255, 0, 0)] * 2, [(0, 255, 0)] * 2]
    result = score_safely(scorer, images, ["a", "b", "a Monochrome cat"], [{}] * 3, [True] * 3)
    # One colour: rg = 100, yb = 100, no spread. Half red, half green: rg = ±255, yb = 127.5 everywhere.
    expected = [0.3 * np.hypot(100, 100) / 10, (255 + 0.3 * 127.5) / 10]
    np.testing.assert_allclose(result.scores[:2], expected, rtol=1e-6)
    assert result.states.tolist() == [State.SCORED, State.SCORED, State.NOT_APPLICABLE]
    with pytest.raises(
        ValueError, match=r"rewards\.colour\.args do not fit marble_colorfulness:Colorfulness: .*'scal'"
    ):
        build_scorer("colour", RewardConfig(scorer="colorfulness", args={"scal": 1.0}))


def test_every_recipe_fragment_of_the_docs_is_a_valid_reward() -> None:
    """YAML blocks of the two pages that hold a `rewards:` section."""
    import yaml

    found = 0
    for page in ("writing_rewards.md", "http_rewards.md"):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        for block in re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            for config in yaml.safe_load(block)["rewards"].values():
                RewardConfig.model_validate(config)
                found += 1
    assert found >= 4
