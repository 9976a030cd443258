"""The machinery of pretraining: exact resume, atomic folders; nothing here trains for real."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tinyworld import loop, pretrain
from tinyworld.pool import PoolSpec, load_pool, scene_at
from tinyworld.preferences import utility
from tinyworld.render import render
from tinyworld.scene import SOURCES, Scene
from tinyworld.train_preference import warp


class Walk:
    """A stage that adds random numbers, and can break off."""

    name = "walk"

    def __init__(self, steps: int, break_at: int | None = None) -> None:
        self.steps, self.break_at = steps, break_at
        self.value = torch.zeros(1, dtype=torch.float64)
        self.finished = False

    def step(self, index: int, rng: np.random.Generator) -> float:
        if index == self.break_at:
            return float("nan")
        self.value += rng.random() + torch.rand(1, dtype=torch.float64)
        return float(self.value)

    def state(self) -> dict[str, Any]:
        return {"value": self.value}

    def load(self, state: dict[str, Any]) -> None:
        self.value = state["value"]

    def finish(self) -> None:
        self.finished = True


def test_a_resumed_stage_repeats_an_uninterrupted_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    straight = Walk(10)
    loop.train(straight, 3, tmp_path / "straight")
    with pytest.raises(FloatingPointError, match="step 6"):
        loop.train(Walk(10, break_at=6), 3, tmp_path / "broken")
    resumed = Walk(10)
    loop.train(resumed, 3, tmp_path / "broken")
    assert resumed.finished
    assert torch.equal(straight.value, resumed.value)


@pytest.mark.parametrize("steps", [0, -1])
def test_a_stage_of_no_steps_writes_no_weights(tmp_path: Path, steps: int) -> None:
    stage = Walk(steps)
    with pytest.raises(ValueError, match=f"stage walk: steps must be at least 1, got {steps}"):
        loop.train(stage, 3, tmp_path)
    assert not stage.finished
    assert list(tmp_path.iterdir()) == []


def test_a_stage_that_is_beyond_its_steps_writes_no_weights(tmp_path: Path) -> None:
    loop.train(Walk(4), 3, tmp_path)
    shorter = Walk(2)
    with pytest.raises(ValueError, match=r"walk\.pt is at step 4 already, beyond the 2 asked for"):
        loop.train(shorter, 3, tmp_path)
    assert not shorter.finished


@pytest.mark.parametrize("steps", ["-1", "0", "x"])
def test_the_command_wants_a_number_of_steps(
    steps: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["pretrain", "--stage", "vae", "--steps", steps])
    monkeypatch.setattr(pretrain, "train", lambda *args: pytest.fail("it trains"))
    with pytest.raises(SystemExit) as caught:
        pretrain.main()
    assert caught.value.code == 2
    assert "argument --steps: " in capsys.readouterr().err


def test_learning_rate_rises_and_falls() -> None:
    factors = [loop.warmup_cosine(index, 1000) for index in range(1000)]
    assert factors[0] == pytest.approx(0.01)
    assert max(factors) == pytest.approx(1.0)
    assert factors[-1] == pytest.approx(0.03, abs=0.01)


def test_pool_pictures_depend_on_their_index_alone(tmp_path: Path) -> None:
    spec = PoolSpec("test", seed=1, size=6, source_weights=(0.2, 0.3, 0.5), unseen_share=0.5)
    images, captions = load_pool(spec, tmp_path)
    again, _ = load_pool(spec, tmp_path)
    _, scene = scene_at(spec, 4)
    assert captions[4] == scene.caption
    np.testing.assert_array_equal(images[4], render(scene))
    np.testing.assert_array_equal(images, again)


def test_tastes_disagree_about_style_and_agree_about_fit_and_craft() -> None:
    spec = PoolSpec("taste", seed=2, size=1, source_weights=(0.4, 0.3, 0.3))
    scenes = [scene_at(spec, index)[1] for index in range(400)]
    pick, hps = ([utility(name, scene, 1.0, 0.0) for scene in scenes] for name in ("pickscore", "hpsv2"))
    assert np.corrcoef(pick, hps)[0, 1] < -0.3
    for name in ("pickscore", "hpsv2"):
        clean = utility(name, scenes[0], 1.0, 0.0)
        assert utility(name, scenes[0], 0.3, 0.0) < clean
        assert utility(name, scenes[0], 1.0, 0.5) < clean
    with pytest.raises(ValueError, match="no preferences"):
        utility("clipscore", scenes[0], 1.0, 0.0)


def test_only_one_taste_likes_muted_objects_and_coloured_plates() -> None:
    """There it disagrees with GenEval, which is surer of vivid objects, and with OCR, which reads light plates."""
    for source, changes in (("ocr", {"sign": "red"}), ("geneval", {"saturation": 0.0})):
        weights = tuple(float(source == name) for name in SOURCES)
        scene = scene_at(PoolSpec("taste", seed=2, size=1, source_weights=weights), 0)[1]
        plain, liked = _restyled(scene, saturation=1.0), _restyled(scene, **{"saturation": 1.0, **changes})
        assert utility("hpsv2", liked, 1.0, 0.0) > utility("hpsv2", plain, 1.0, 0.0) + 0.3
        assert utility("pickscore", liked, 1.0, 0.0) <= utility("pickscore", plain, 1.0, 0.0)


def _restyled(scene: Scene, saturation: float, sign: str | None = None) -> Scene:
    """With another saturation and, where there is a sign, a plate of this colour."""
    plate = None if scene.sign is None else dataclasses.replace(scene.sign, color=sign)
    return dataclasses.replace(scene, sign=plate, style=dataclasses.replace(scene.style, saturation=saturation))


def test_undamaged_pictures_are_not_bent() -> None:
    pixels = torch.rand(2, 3, 64, 64)
    bent = warp(pixels, torch.tensor([0.0, 1.0]))
    torch.testing.assert_close(bent[0], pixels[0], atol=1e-4, rtol=0)
    assert (bent[1] - pixels[1]).abs().mean() > 0.05
