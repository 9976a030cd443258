"""Whole runs on real Ray processes, held against the same run in one process, bit for bit."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actors.controller import Controller
from actors.ensemble import MemberLostError
from actors.ledger_parts import STEPS, read_table
from actors.results import ActorVitals, IterationResult, RunSummary
from actors.run_config import RunConfig
from tests.integration.on_ray import names_in, wait_until
from tests.integration.small_run import (
    SCORERS,
    SHIPPED_LEARNER,
    Recorder,
    contents,
    kept_images,
    run,
    samples,
    small_config,
)

ROOT = Path(__file__).parents[2]
PATIENT = {"start_timeout_s": 900, "rollout_timeout_s": 600}
"""On a machine with other work, the imports of all actors can take minutes."""


class KillRollout(Recorder):
    """Kills a rollout actor's process after the first iteration; keeps an eye on the object store."""

    controller: Controller
    vitals: tuple[ActorVitals, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self.store: list[tuple[int, int]] = []

    def on_iteration(self, result: IterationResult) -> None:
        super().on_iteration(result)
        if result.done in (4, 8):
            self.store.append(settled_store_use())
        if result.done == 1:
            self.vitals = self.controller.vitals()
            os.kill(next(v.pid for v in self.vitals if v.name == "rollout-0"), signal.SIGKILL)


def store_use() -> tuple[int, int]:
    """(objects, bytes) in the object store."""
    import ray
    from ray._private import internal_api

    api: Any = internal_api
    address = ray.get_runtime_context().gcs_address
    stats = api.get_memory_info_reply(api.get_state_from_address(address)).store_stats
    return stats.num_local_objects, stats.object_store_bytes_used


def settled_store_use() -> tuple[int, int]:
    """The least of some seconds: the raylet frees in batches, once a second."""
    uses = []
    for _ in range(6):
        time.sleep(0.5)
        uses.append(store_use())
    return min(uses)


@dataclass
class OnRay:
    """A run of eight iterations with two rollout actors, of which one was killed."""

    run_dir: Path
    summary: RunSummary
    recorder: KillRollout
    loads: int
    names_left: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def on_ray(local_ray: None, model: Path, tmp_path_factory: pytest.TempPathFactory) -> OnRay:
    folder = tmp_path_factory.mktemp("on_ray")
    (folder / "run").mkdir()
    loads = folder / "loads"
    config = counted(model, folder, loads, rollout={"replicas": 2}, pools={"red": {"replicas": 2}})
    recorder = KillRollout()
    with Controller(config, folder / "run", recorder) as controller:
        recorder.controller = controller
        summary = controller.run()
    wait_until(lambda: names_in(controller.identity) == [])
    return OnRay(folder / "run", summary, recorder, len(loads.read_text().splitlines()))


def counted(model: Path, folder: Path, loads: Path, **actors: Any) -> RunConfig:
    """Eight iterations of the small run, with scorers that count their loads."""
    rewards = {
        "red": {"scorer": f"{SCORERS}:Channel", "args": {"channel": 0, "loads": str(loads)}},
        "dark": {"scorer": f"{SCORERS}:Channel", "args": {"channel": 2, "sign": -1.0, "loads": str(loads)}},
    }
    return small_config(
        model,
        folder,
        run={"iterations": 8},
        rewards=rewards,
        checkpoint={"every": 8},
        actors={**PATIENT, **actors},
    )


def test_rows_1_and_20_two_rollout_actors_and_a_killed_one_are_bit_equal_to_one_process(
    on_ray: OnRay, model: Path, tmp_path: Path
) -> None:
    """The whole run: scores of all images, adapters, moments, EMA, ᾱ; the replacement drew with the current adapter."""
    summary, _, _ = run(counted(model, tmp_path, tmp_path / "loads"), tmp_path / "run")
    assert [w for w in on_ray.recorder.warnings if w.startswith("rollout-0:")], "it was killed and replaced"
    name = "checkpoints/000008"
    assert contents(on_ray.run_dir / name) == contents(tmp_path / "run" / name)
    assert samples(on_ray.run_dir) == samples(tmp_path / "run")
    assert dict(on_ray.summary.rewards) == dict(summary.rewards)


def test_row_30_every_scorer_is_loaded_once_per_replica(on_ray: OnRay) -> None:
    assert on_ray.loads == 3


def test_only_references_and_scores_pass_through_the_controller(on_ray: OnRay) -> None:
    assert max(result.controller_bytes for result in on_ray.recorder.iterations) < 40_000


def test_row_31_the_object_store_does_not_grow(on_ray: OnRay) -> None:
    """Though the listener keeps every report and picture."""
    earlier, later = on_ray.recorder.store
    assert later[0] <= earlier[0] + 1, f"(objects, bytes) after four and eight iterations: {earlier}, {later}"


def test_row_28_every_role_is_a_process_of_its_own_with_its_threads(on_ray: OnRay) -> None:
    vitals = {v.name: v for v in on_ray.recorder.vitals}
    assert sorted(vitals) == [
        "harmonizer",
        "learner-0",
        "reward.dark-0",
        "reward.red-0",
        "reward.red-1",
        "rollout-0",
        "rollout-1",
    ]
    assert len({v.pid for v in vitals.values()} | {os.getpid()}) == 8
    assert all(v.threads == 1 for v in vitals.values())


# -- long -------------------------------------------------------------------------------------------------------------

DRIVER = """\
import sys
from pathlib import Path
from actors.controller import Controller, SilentListener
from actors.run_config import RunConfig

config = RunConfig.model_validate_json(Path(sys.argv[1]).read_text())
listener = SilentListener()
with Controller(config, Path(sys.argv[2]), listener, resume=sys.argv[3] == "resume") as controller:
    controller.run()
print(listener.warnings)
"""


def drive(folder: Path, config: RunConfig, how: str) -> "subprocess.Popen[str]":
    """A driver in a process of its own, which starts its own Ray."""
    (folder / "config.json").write_text(config.model_dump_json())
    (folder / "run").mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(folder / "config.json"), str(folder / "run"), how],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MARBLE_TEST_FOLDER": str(folder)},
    )


def processes_of(folder: Path) -> list[str]:
    """Command lines of processes that a driver of this folder has started, itself included."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"MARBLE_TEST_FOLDER={folder}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


def wait_for_no_process(folder: Path) -> None:
    deadline_s = time.monotonic() + 180
    while processes_of(folder) and time.monotonic() < deadline_s:
        time.sleep(0.2)
    assert processes_of(folder) == []


@pytest.mark.slow
@pytest.mark.parametrize("settings", ["small", "shipped"])
def test_row_5_three_iterations_kill_9_and_three_more_are_six_straight(
    model: Path, tmp_path: Path, settings: str, request: pytest.FixtureRequest
) -> None:
    """Rows 7, 22 and 32 too: a torn checkpoint is passed over, no orphan outlives the killed driver, no gap is left.

    shipped: two ranks, two updates on each batch, KL on a share of the cells, as in the recipes that come with this.
    """
    shipped = settings == "shipped"
    sections: dict[str, Any] = {"run": {"iterations": 6}, **({"learner": SHIPPED_LEARNER} if shipped else {})}
    actors = {**PATIENT, **({"learner": {"replicas": 2}, "rollout": {"replicas": 2}} if shipped else {})}
    config = small_config(model, tmp_path, actors=actors, **sections)
    first = drive(tmp_path, config, "fresh")
    manifest = tmp_path / "run/checkpoints/000003/manifest.json"
    while not manifest.exists() and first.poll() is None:
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert first.returncode == -signal.SIGKILL
    wait_for_no_process(tmp_path)
    torn = manifest.parent.with_name("000005")
    torn.mkdir(exist_ok=True)
    (torn / "default.safetensors").write_bytes(b"cut off")
    second = drive(tmp_path, config, "resume")
    out, err = second.communicate(timeout=1800)
    assert second.returncode == 0, err
    assert "its lock has been taken over" in out
    assert "000005 is torn: it has no manifest.json" in err
    assert not torn.exists(), "cleared away with the old ones"
    straight = tmp_path / "straight"
    straight.mkdir()
    if shipped:  # two ranks need processes
        request.getfixturevalue("local_ray")
        (straight / "run").mkdir()
        with Controller(small_config(model, straight, actors=actors, **sections), straight / "run", Recorder()) as c:
            c.run()
    else:
        run(small_config(model, straight, **sections), straight / "run")
    assert contents(tmp_path / "run/checkpoints/000006") == contents(straight / "run/checkpoints/000006")
    assert samples(tmp_path / "run") == samples(straight / "run")
    events = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [e["iteration"] for e in events if e["event"] == "iteration"] == list(range(6))
    wait_for_no_process(tmp_path)


@pytest.mark.slow
def test_two_learner_ranks_give_the_same_first_images_and_gradients(
    local_ray: None, model: Path, tmp_path: Path
) -> None:
    """Row 15 in a run: the split over ranks shows in rounding only, and in no byte of the first iteration's images."""
    rows, images, cells = [], [], []
    for ranks in (1, 2):
        folder = tmp_path / f"ranks{ranks}"
        (folder / "run").mkdir(parents=True)
        rewards = {
            "red": {"scorer": f"{SCORERS}:Keeps", "args": {"file": str(folder / "images")}},
            "dark": {"scorer": f"{SCORERS}:Channel", "args": {"channel": 2, "sign": -1.0}},
            "contrast": {"scorer": f"{SCORERS}:Contrast", "applies": ["signs"], "when": "quoted"},
        }
        config = small_config(
            model,
            folder,
            run={"iterations": 2},
            prompts={"groups_per_iteration": 4, "group_size": 4, "chunk_size": None},
            rewards=rewards,
            learner=SHIPPED_LEARNER,
            actors={**PATIENT, "learner": {"replicas": ranks}},
        )
        with Controller(config, folder / "run", Recorder()) as controller:
            controller.run()
        rows.append(read_table(folder / "run", STEPS).to_pylist())
        cells.append(samples(folder / "run")[:16])
        images.append(kept_images(folder / "images", 16))
    assert len(set(images[0])) == 16
    assert images[0] == images[1]
    assert [_without_advantages(row) for row in cells[0]] == [_without_advantages(row) for row in cells[1]]
    one, two = rows[0][0], rows[1][0]
    for name in ("red", "dark", "contrast"):
        assert two[f"norm_{name}"] == pytest.approx(one[f"norm_{name}"], rel=1e-5)
    np.testing.assert_allclose(two["pairwise_cosines"], one["pairwise_cosines"], atol=1e-5)
    assert rows[1][1]["loss"] == pytest.approx(rows[0][1]["loss"], rel=1e-3)
    assert rows[1][1]["kl"] == pytest.approx(rows[0][1]["kl"], rel=1e-3)


def _without_advantages(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if not key.startswith("advantage")}


class KillRank(Recorder):
    """Kills the second learner rank after the first iteration."""

    controller: Controller

    def on_iteration(self, result: IterationResult) -> None:
        super().on_iteration(result)
        pid = next(v.pid for v in self.controller.vitals() if v.name == "learner-1")
        os.kill(pid, signal.SIGKILL)
        self.killed_s = time.monotonic()


@pytest.mark.slow
def test_row_22_a_killed_learner_rank_is_named_within_a_minute_and_nobody_is_left(
    local_ray: None, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    config = small_config(model, tmp_path, actors={**PATIENT, "learner": {"replicas": 2}})
    recorder = KillRank()
    with Controller(config, tmp_path / "run", recorder) as controller:
        recorder.controller = controller
        with pytest.raises(MemberLostError, match="learner rank 1 was lost during training iteration 1"):
            controller.run()
    assert time.monotonic() - recorder.killed_s < 60
    wait_until(lambda: names_in(controller.identity) == [])
