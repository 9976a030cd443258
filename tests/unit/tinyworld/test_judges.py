"""Held-out scorers of the tiny world: their stages, what they are taught, and the two tables about them.

A few steps each; how well the shipped weights judge is printed by tinyworld.judge_report.
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rewards.config import RewardConfig
from rewards.detection import ColorClassifier, Detection, Detector
from rewards.registry import build_scorer
from tinyworld import loop, pretrain, train_clip, train_detector, train_judges
from tinyworld.aesthetics import HIGHEST, LOWEST, rating
from tinyworld.judge_report import Pictures, bend, pictures, read_right, within_groups
from tinyworld.judges import HEAD_FILE, HELDOUT, build_aesthetic_clip, build_heldout_clip
from tinyworld.palette import COLORS, SHAPES, tone
from tinyworld.pipeline import build_clip
from tinyworld.render import render
from tinyworld.scene import Item, Scene, Style
from tinyworld.spot_net import CELL
from tinyworld.strict_detector import NearestTone, StrictDetector
from tinyworld.train_detector import DetectorStage, spot_loss, targets, without_half
from tinyworld.train_judges import AestheticStage, HeldoutClipStage, draw_scene

STYLE = Style(0.6, "solid", 0.45, 0.5, 0.0, 0.0, 0.5)
TWO = Scene("geneval", "", STYLE, (Item("square", "red", 16.0, 32.0, 11.0), Item("ring", "blue", 48.0, 33.0, 12.0)))


# -- stages ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Small batches, and another place for what is written."""
    monkeypatch.setattr(train_judges, "WEIGHTS", tmp_path)
    monkeypatch.setattr(train_detector, "FOLDER", tmp_path / "strict_detector")
    for module, name in ((train_judges, "CLIP_BATCH"), (train_judges, "RATED_BATCH"), (train_detector, "BATCH")):
        monkeypatch.setattr(module, name, 6)
    train_judges.save_clip(build_heldout_clip(1), tmp_path / "heldout_clip")
    return tmp_path


@pytest.mark.filterwarnings("ignore")  # the libraries' own deprecations
@pytest.mark.parametrize("stage", [HeldoutClipStage, AestheticStage, DetectorStage], ids=lambda s: s.name)
def test_a_resumed_stage_repeats_an_uninterrupted_one_and_its_scorer_loads(
    stage: Any, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    start = {path.name: path.read_bytes() for path in (weights / "heldout_clip").iterdir()}
    states = []
    for folder, lives in (("straight", (3,)), ("broken", (2, 3))):
        for name, data in start.items():
            (weights / "heldout_clip" / name).write_bytes(data)
        for steps in lives:
            made = stage(0, 3, tmp_path)
            _run(made, steps, tmp_path / folder)
        states.append(torch.load(tmp_path / folder / f"{stage.name}.pt", weights_only=True)["stage"])
    flat = [{k: v for part in s.values() for k, v in part.items() if isinstance(v, torch.Tensor)} for s in states]
    assert flat[0].keys() == flat[1].keys()
    assert all(torch.equal(flat[0][key], flat[1][key]) for key in flat[0])
    _loads(stage.name, weights)


def _run(stage: Any, steps: int, work: Path) -> None:
    """Up to a step; the break is an error of the last life's own."""
    if steps == stage.steps:
        loop.train(stage, 0, work)
        return
    step = stage.step

    def breaking(index: int, rng: np.random.Generator) -> float:
        return float("nan") if index == steps else float(step(index, rng))

    stage.step = breaking
    with pytest.raises(FloatingPointError):
        loop.train(stage, 0, work)


def _loads(name: str, weights: Path) -> None:
    images = np.stack([render(TWO)] * 2)
    if name == "strict_detector":
        assert len(StrictDetector(str(weights / name))(images)) == 2
        return
    args = {"checkpoint": str(weights / name)}
    if name == "aesthetic":
        args["head"] = str(weights / name / HEAD_FILE)
    scorer = build_scorer(name, RewardConfig(scorer="aesthetic" if name == "aesthetic" else "clipscore", args=args))
    scores = scorer(images, ["a red square"] * 2, [{}] * 2).scores
    assert np.isfinite(scores).all()


def test_every_stage_has_its_steps_and_those_of_held_out_scorers_their_names() -> None:
    assert pretrain.STAGES.keys() == pretrain.STEPS.keys()
    assert set(HELDOUT) < pretrain.STAGES.keys()


def test_the_held_out_clip_is_another_model_than_the_training_one() -> None:
    training, heldout = build_clip(0), build_heldout_clip(train_judges.SEED_OFFSET)
    shapes = [{k: v.shape for k, v in model.vision_model.state_dict().items()} for model in (training, heldout)]
    assert shapes[0] != shapes[1]
    assert train_judges.HeldoutClipStage.name != train_clip.ClipStage.name, "the name seeds the stream of pictures"


def test_the_aesthetic_tower_is_the_held_out_clips() -> None:
    shapes = [
        {k: v.shape for k, v in model.vision_model.state_dict().items()}
        for model in (build_aesthetic_clip(0), build_heldout_clip(0))
    ]
    assert shapes[0] == shapes[1]


# -- what they are taught ----------------------------------------------------------------------------------------------


def restyled(**changes: Any) -> Scene:
    return dataclasses.replace(TWO, style=dataclasses.replace(STYLE, **changes))


def test_ratings_fall_with_damage_and_with_whatever_shouts() -> None:
    best = rating(TWO, 0.0)
    assert best > rating(TWO, 0.3) > rating(TWO, 0.9)
    assert best > rating(restyled(saturation=1.0), 0.0) + 0.5
    assert best > rating(restyled(saturation=0.0), 0.0) + 0.5
    assert best > rating(restyled(background="checks", strength=1.0), 0.0) + 2.0


def test_ratings_span_most_of_the_scale() -> None:
    rng = np.random.default_rng(0)
    ratings = [rating(draw_scene(rng), float(rng.random())) for _ in range(400)]
    assert min(ratings) >= LOWEST
    assert max(ratings) <= HIGHEST
    assert np.std(ratings) > 1.2


def test_targets_stand_in_the_cells_of_the_centres() -> None:
    points, places = targets(TWO, 0.75, cut=None)
    assert [tuple(at) for at in np.argwhere(points)] == [(1, 4, 2), (5, 4, 6)]
    assert points[SHAPES.index("square"), 4, 2] == 0.75
    np.testing.assert_allclose(places[:, 4, 6], (0.0, 1 / CELL, 12 / CELL))
    cut, _ = targets(TWO, 1.0, cut=1)
    assert [tuple(at) for at in np.argwhere(cut)] == [(1, 4, 2)], "what lost a half is no object"


def test_the_loss_is_least_at_the_target() -> None:
    sure, places = (torch.from_numpy(part)[None] for part in targets(TWO, 0.75, cut=None))
    at_target = torch.logit(sure.clamp(1e-6, 1 - 1e-6))
    best = spot_loss(at_target, places, sure, places)
    assert best < 1e-3
    assert spot_loss(at_target + 1.0 * (sure > 0), places, sure, places) > best + 1e-3
    assert spot_loss(at_target, places + 0.1, sure, places) > best + 0.1
    elsewhere = places + torch.where(sure.amax(1, keepdim=True) > 0, 0.0, 9.0)
    assert spot_loss(at_target, elsewhere, sure, places) == best, "places count where something is"


@pytest.mark.parametrize("seed", range(6))
def test_half_of_an_object_goes(seed: int) -> None:
    image = render(TWO)
    cut = without_half(image, TWO.items[0], np.random.default_rng(seed))
    red, left = ((picture[..., 0] > 150) & (picture[..., 2] < 120) for picture in (image, cut))
    assert 0.4 < left.sum() / red.sum() < 0.6
    assert np.array_equal(image[:, 36:], cut[:, 36:]), "the other one stays"


def test_the_tone_with_most_votes_is_the_colour() -> None:
    rng = np.random.default_rng(5)
    scenes = [scene for scene in (draw_scene(rng) for _ in range(200)) if scene.items]
    right = total = 0
    for scene in scenes:
        found = [_detected(item) for item in scene.items]
        names = NearestTone()(render(scene), found)
        right += sum(name == item.color for name, item in zip(names, scene.items, strict=True))
        total += len(names)
    assert right / total > 0.97


@pytest.mark.parametrize("rgb", [(0, 255, 255), (255, 0, 255), (128, 128, 128), (255, 255, 255)])
def test_what_has_no_tone_of_the_palette_is_of_none_of_its_colours(rgb: tuple[int, int, int]) -> None:
    image = np.full((64, 64, 3), rgb, np.uint8)
    assert NearestTone()(image, [Detection("circle", 1.0, (8.0, 8.0, 40.0, 40.0))]) == ["none"]
    assert set(COLORS) < set(NearestTone().colors), "and none of the palette's names is lost"


@pytest.mark.parametrize("box", [(63.9, 63.9, 64.0, 64.0), (64.0, 64.0, 64.0, 64.0), (0.0, 0.0, 0.0, 0.0)])
def test_a_box_at_the_border_has_the_colour_that_is_there(box: tuple[float, float, float, float]) -> None:
    image = np.full((64, 64, 3), tone("blue", 1.0), np.uint8)
    assert NearestTone()(image, [Detection("circle", 1.0, box)]) == ["blue"]


def _detected(item: Item) -> Detection:
    x, y, r = item.x, item.y, item.radius
    return Detection(item.shape, 1.0, (x - r, y - r, x + r, y + r))


# -- the report --------------------------------------------------------------------------------------------------------


def test_correlations_are_those_within_groups() -> None:
    """Groups of other levels say nothing; a scorer that skips a group is compared on the others."""
    scores = np.array([[0.0, 1.0, 10.0, 12.0, 5.0, 5.0], [1.0, 0.0, -90.0, -92.0, 3.0, 9.0], [2.0, 4.0] + [np.nan] * 4])
    found = within_groups(scores, np.array([0, 0, 1, 1, 2, 2]))
    assert found[0, 0] == pytest.approx(1.0)
    expected = -(0.5 + 2.0) / np.sqrt((0.5 + 2.0) * (0.5 + 2.0 + 18.0))
    assert found[0, 1] == found[1, 0] == pytest.approx(expected)
    assert found[0, 2] == pytest.approx(1.0)
    assert np.isnan(within_groups(np.ones((2, 4)), np.array([0, 0, 1, 1]))[0, 1])


def test_pictures_are_read_right_only_with_all_their_objects() -> None:
    class Knows:
        classes = SHAPES

        def __call__(self, images: Any) -> Any:
            return [[_detected(item) for item in TWO.items], [_detected(TWO.items[0])]]

    images = np.stack([render(TWO)] * 2)
    assert read_right(Knows(), NearestTone(), Pictures([TWO, TWO], images, np.zeros(2))) == 0.5


@pytest.mark.parametrize(("bent", "low", "high"), [(0.0, 0.88, 1.0), (0.9, 0.0, 0.3)])
def test_the_shipped_detector_reads_clean_pictures_and_few_spoilt_ones(bent: float, low: float, high: float) -> None:
    found = pictures(5, 150, bent, geneval=True)
    assert low <= read_right(StrictDetector(), NearestTone(), found) <= high


def test_it_keeps_the_protocols_at_any_size() -> None:
    assert isinstance(StrictDetector(), Detector)
    assert isinstance(NearestTone(), ColorClassifier)
    assert StrictDetector().classes == SHAPES
    picture = np.stack([render(TWO)])
    sizes = (picture, picture.repeat(2, axis=1).repeat(2, axis=2))
    small, large = (StrictDetector(min_sureness=0.3)(images)[0] for images in sizes)
    assert [item.class_name for item in large] == [item.class_name for item in small] == ["square", "ring"]
    for one, other in zip(small, large, strict=True):
        np.testing.assert_allclose(2 * np.array(one.box_xyxy), other.box_xyxy)


def test_no_damage_bends_nothing() -> None:
    images = np.stack([render(TWO)] * 2)
    bent = bend(images, np.array([0.0, 1.0]), 3)
    assert np.abs(bent[0].astype(int) - images[0]).max() <= 1
    assert np.abs(bent[1].astype(int) - images[1]).mean() > 3
