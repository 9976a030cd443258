"""The displays: what they say, where they write, and that they survive a run's odd moments."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from deploy_helpers import evaluation, iteration
from PIL import Image
from rich.console import Console

from actors.results import IterationResult
from actors.run_config import RunConfig
from deploy.progress import plain, view
from deploy.progress.fanout import Fanout
from deploy.progress.live import LiveListener
from deploy.progress.pictures import PictureListener, evaluation_dir, write_grid
from deploy.progress.plain import PlainListener
from deploy.progress.tensorboard import TensorBoardListener, iteration_scalars


def play(listener: Fanout, config: RunConfig, iterations: int = 3) -> None:
    """A short run's events."""
    listener.on_stage("start", "actors")
    listener.on_start(config, None)
    listener.on_evaluation(evaluation(0, "before"))
    for index in range(iterations):
        listener.on_stage("rollout", f"{index}/12")
        listener.on_iteration(iteration(index))
    listener.on_checkpoint(Path("checkpoints/000003"))
    listener.on_warning("a scorer was replaced")
    listener.on_evaluation(evaluation(3, "ema", shift=0.1))
    listener.close()


def test_plain_prints_one_line_per_event(small_config: RunConfig) -> None:
    stream = io.StringIO()
    play(Fanout([PlainListener(stream)]), small_config)
    lines = stream.getvalue().splitlines()
    assert lines[1] == "run small: 4 iterations of 8 images, rewards align, geneval"
    assert lines[2] == "evaluation of the base (12s): align 0.650 | geneval 0.500"
    assert [line.split(" | ")[0] for line in lines if line.startswith("iteration")] == [
        f"iteration {i}/4" for i in (1, 2, 3)
    ]
    second = next(line for line in lines if line.startswith("iteration 2/4"))
    for part in (
        "3.7 s",
        "2.2 images/s",
        "left 19s",
        "align 0.510 (+0.005) α 0.40",
        "step norm 0.250",
        "worst cosine +0.200",
    ):
        assert part in second
    assert "warning: a scorer was replaced" in lines
    assert lines[-1] == "evaluation after 3 iterations (12s): align 0.750 (+0.100) | geneval 0.500 (+0.000)"
    assert sum(line.startswith("rollout") for line in lines) == 1, "stages are told once"


def test_plain_tells_failures_skipped_steps_and_breaks_silence(
    small_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    listener = PlainListener(stream)
    listener.on_start(small_config, None)
    listener.on_iteration(iteration(0, failed=2, applied=False))
    assert "FAILED 2" in stream.getvalue()
    assert "no step: no reward has signal" in stream.getvalue()
    listener.on_stage("evaluation", "1/9")
    listener.on_stage("evaluation", "2/9")
    assert "2/9" not in stream.getvalue()
    monkeypatch.setattr(plain, "STAGE_INTERVAL_S", 0.0)
    listener.on_stage("evaluation", "3/9")
    assert "3/9" in stream.getvalue()


def test_live_shows_rewards_alpha_and_time_left(small_config: RunConfig, tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120, color_system=None)
    listener = LiveListener(console, tmp_path)
    play(Fanout([listener]), small_config)
    with console.capture() as capture:
        console.print(listener.render())
    shown = capture.get()
    for part in (
        "small",
        "iteration 3/4",
        "2.2 images/s",
        "left 16s",
        "held out",
        "0.650",
        "0.750",
        "██████████",
        "worst cosine +0.200",
    ):
        assert part in shown
    assert "warning: a scorer was replaced" in console.file.getvalue()  # type: ignore[attr-defined]


def test_live_before_anything_happened(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    listener = LiveListener(console, tmp_path)
    listener.close()
    with console.capture() as capture:
        console.print(listener.render())
    assert "no step yet" in capture.get()


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Curves as TensorBoard reads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder), purge_orphaned_data=True)
    accumulator.Reload()
    return {tag: [(e.step, e.value) for e in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]}


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_reads_every_curve_back(small_config: RunConfig, tmp_path: Path) -> None:
    play(Fanout([TensorBoardListener(tmp_path)]), small_config)
    curves = scalars(tmp_path)
    assert [step for step, _ in curves["train/align"]] == [1, 2, 3]
    assert [value for _, value in curves["train/geneval"]] == pytest.approx([0.4, 0.42, 0.44])
    assert [step for step, _ in curves["heldout/align"]] == [0, 3]
    assert curves["cosine/geneval"][0][1] == pytest.approx(0.2)
    expected = {
        "alpha/align",
        "step/kl",
        "step/grad_norm",
        "step/worst_cosine",
        "seconds/rollout",
        "gradient_norm/align",
    }
    assert expected <= set(curves)


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_drops_what_a_resumed_run_does_again(small_config: RunConfig, tmp_path: Path) -> None:
    """Row 32: no falling or doubled step numbers after a resume."""
    play(Fanout([TensorBoardListener(tmp_path)]), small_config)
    again = TensorBoardListener(tmp_path, resumed_at=1)
    again.on_start(small_config, None)
    again.on_iteration(iteration(1))
    again.close()
    assert [step for step, _ in scalars(tmp_path)["train/align"]] == [1, 2]


def test_curves_of_an_amortised_iteration_have_no_cosine() -> None:
    names = dict(iteration_scalars(iteration(2, solved=False)))
    assert "cosine/align" not in names
    assert np.isnan(names["step/worst_cosine"])


def test_pictures_lie_in_a_folder_per_evaluation_and_in_one_grid(small_config: RunConfig, tmp_path: Path) -> None:
    play(Fanout([PictureListener(tmp_path)]), small_config)
    index = json.loads((evaluation_dir(tmp_path, 3) / "samples.json").read_text())
    assert [entry["file"] for entry in index["samples"]] == ["general-0.png", "geneval-0.png"]
    assert index["samples"][0]["scores"] == {"align": 0.6}
    assert index["samples"][1]["scores"] == {"align": pytest.approx(0.8), "geneval": 0.0}
    with Image.open(evaluation_dir(tmp_path, 0) / "geneval-0.png") as picture:
        assert picture.size == (16, 16)
    with Image.open(tmp_path / "before_after.png") as grid:
        grid.load()
        assert grid.width > 2 * 2 * 192
        assert grid.getpixel((12 + 5, 12 + 5)) == (40, 40, 40), "the picture itself, enlarged"
    assert not list(tmp_path.glob("*.tmp.png"))


def test_a_grid_needs_a_base_picture_of_the_same_prompt(tmp_path: Path) -> None:
    listener = PictureListener(tmp_path)
    listener.on_evaluation(evaluation(5, "ema"))
    assert not (tmp_path / "before_after.png").exists()
    other = evaluation_dir(tmp_path, 0)
    other.mkdir()
    (other / "samples.json").write_text('{"iteration": 0, "which": "before", "samples": []}')
    write_grid(other, evaluation_dir(tmp_path, 5), tmp_path / "before_after.png")
    assert not (tmp_path / "before_after.png").exists()


def test_trends_pass_over_iterations_without_a_score() -> None:
    trend = view.Trend()
    trend.add(float("nan"))
    assert np.isnan(trend.start)
    for value in (1.0, 2.0, float("nan"), 3.0, 4.0, 5.0, 6.0, 7.0):
        trend.add(value)
    assert (trend.start, trend.now) == (3.0, 5.0)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0s"), (59.6, "1m00s"), (125, "2m05s"), (3725, "1h02m"), (float("nan"), "-")]
)
def test_durations(seconds: float, text: str) -> None:
    assert view.duration(seconds) == text


def test_an_iteration_without_a_total_time_is_summed() -> None:
    result = iteration(0)
    parts = {k: v for k, v in result.timings_s.items() if k not in ("total",)}
    bare = IterationResult(**{**result.__dict__, "timings_s": {**parts, "learner_wait": 9.0}})
    assert view.total_seconds(bare) == pytest.approx(3.7)
