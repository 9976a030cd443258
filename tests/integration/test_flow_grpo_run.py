"""Whole runs of Flow-GRPO with the real rooms but without processes."""

from pathlib import Path
from typing import Any

import pytest

from actors.ledger_parts import STEPS, read_table
from tests.integration.small_run import SCORERS, Recorder, contents, run, samples, small_config
from tests.unit.actors.in_process import InProcess

LEARNER = {
    "algorithm": "flow_grpo",
    "updates_per_iteration": 2,
    "timesteps": 1,
    "clip_range": 1e-3,
    "old_policy": {"slope": 0.0},
}
ONE_REWARD = {"red": {"scorer": f"{SCORERS}:Channel", "args": {"channel": 0}}}


def config(model: Path, folder: Path, **sections: Any) -> Any:
    return small_config(model, folder, **{"sampling": {"sde": {}}, "learner": LEARNER, **sections})


@pytest.fixture(scope="module")
def specialist(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Recorder]:
    """Four iterations on one reward."""
    folder = tmp_path_factory.mktemp("specialist")
    sections = {"run": {"iterations": 4}, "checkpoint": {"every": 2}, "rewards": ONE_REWARD}
    _, recorder, _ = run(config(model, folder, **sections), folder / "run")
    return folder / "run", recorder


def test_a_specialist_trains_and_says_how_far_it_went(specialist: tuple[Path, Recorder]) -> None:
    """The first update of each iteration is on-policy, the second is not."""
    run_dir, recorder = specialist
    assert all(result.report.applied for result in recorder.iterations)
    steps = read_table(run_dir, STEPS).to_pylist()
    assert [row["clip_fraction"] for row in steps[::2]] == [0.0] * 4
    assert [row["approx_kl"] for row in steps[::2]] == [0.0] * 4
    assert all(row["approx_kl"] > 0 for row in steps[1::2])
    assert {row["weight_red"] for row in steps} == {1.0}
    reports = [result.report for result in recorder.iterations]
    assert all(report.old_hash == report.default_hash for report in reports)


def test_row_20_any_number_of_rollout_actors_gives_the_same_run(
    specialist: tuple[Path, Recorder], model: Path, tmp_path: Path
) -> None:
    sections = {"run": {"iterations": 4}, "checkpoint": {"every": 2}, "rewards": ONE_REWARD}
    actors = {"rollout": {"replicas": 3}}
    run(config(model, tmp_path, actors=actors, **sections), tmp_path / "run", InProcess())
    for name in ("000002", "000004"):
        ours, theirs = (contents(folder / "checkpoints" / name) for folder in (tmp_path / "run", specialist[0]))
        assert ours == theirs
    assert samples(tmp_path / "run") == samples(specialist[0])


def test_row_5_a_resumed_run_is_the_straight_one(
    specialist: tuple[Path, Recorder], model: Path, tmp_path: Path
) -> None:
    sections = {"checkpoint": {"every": 2}, "rewards": ONE_REWARD}
    run(config(model, tmp_path, run={"iterations": 2}, **sections), tmp_path / "run")
    run(config(model, tmp_path, run={"iterations": 4}, **sections), tmp_path / "run", resume=True)
    assert contents(tmp_path / "run/checkpoints/000004") == contents(specialist[0] / "checkpoints/000004")


@pytest.mark.parametrize(
    "sampling", [{"sde": {"window": 2}}, {"sde": {"noise_level": 0.9}, "guidance_scale": 3.0}], ids=["window", "guided"]
)
def test_three_rewards_are_balanced(sampling: dict[str, Any], model: Path, tmp_path: Path) -> None:
    """The harmonizer's own work: it sees gradients, whatever loss they are of."""
    _, recorder, _ = run(config(model, tmp_path, sampling=sampling), tmp_path / "run")
    steps = [step for result in recorder.iterations for step in result.report.steps]
    assert [step.solved for step in steps] == [True, False, False, True]
    assert all(step.applied for step in steps)
    assert all(step.weights_K.sum() == pytest.approx(1.0) for step in steps)
