"""metrics.jsonl. Row 32 of the faults table: no gap, no falling numbers, and the restart is marked."""

import json
from pathlib import Path
from typing import Any

import pytest

from actors import tally
from actors.metrics import MetricsLog
from actors.results import ActorVitals
from learner.errors import UserError
from tests.unit.actors.stand_ins import evaluation, harvest, recipe, report, step

TIMINGS_S = {"rollout": 1.0, "learner": 1.0, "total": 4.0, "learner_wait": 3.0}


def lines(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def log_iterations(log: MetricsLog, *iterations: int) -> None:
    config = recipe(rewards={"a": {"scorer": "m:A"}, "b": {"scorer": "m:B"}})
    for i in iterations:
        result = tally.result(
            config, harvest(), report(step(i, True, i), iteration=i), {"a": 0.5, "b": 0.5}, TIMINGS_S, 9
        )
        log.iteration(result, elapsed_s=10.0 * (i + 1))


def test_a_line_says_what_an_iteration_was(tmp_path: Path) -> None:
    log_iterations(MetricsLog(tmp_path), 0)
    (line,) = lines(tmp_path)
    assert (line["event"], line["iteration"], line["done"]) == ("iteration", 0, 1)
    assert line["rewards"] == {"a": 1.5, "b": 5.5}
    assert line["counts"]["b"] == {"scored": 2, "not_applicable": 1, "failed": 1}
    assert line["controller_bytes"] == 9
    assert line["images_per_s"] == 1.0
    assert line["step"]["worst_cosine"] == 0.4


def test_vitals_are_a_line_of_every_actor(tmp_path: Path) -> None:
    actor = ActorVitals("learner rank 0", "learner-0", 7, 1, 1.5, 8.0)
    MetricsLog(tmp_path).vitals([actor], 3, 60.0)
    (line,) = lines(tmp_path)
    assert (line["event"], line["done"]) == ("vitals", 3)
    [said] = line["actors"]
    assert (said["role"], said["peak_memory_gib"], said["peak_gpu_gib"]) == ("learner rank 0", 1.5, 0.0)


def test_unknown_numbers_are_null_so_that_every_line_is_json(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    log_iterations(log, 0)
    log.evaluation(evaluation({"a": [float("nan")]}), 1.0)
    assert "NaN" not in (tmp_path / "metrics.jsonl").read_text()
    assert lines(tmp_path)[1]["means"] == {"a": None}


def test_row_32_a_restart_drops_what_will_be_done_again_and_is_marked(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    log.evaluation(evaluation({"a": [1.0]}), 1.0)
    log_iterations(log, 0, 1, 2)
    log.checkpoint(3, "000003", 31.0)
    log_iterations(log, 3, 4)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"event": "iteration", "iter')  # what kill -9 leaves
    assert MetricsLog(tmp_path).resume(3) == 31.0
    log_iterations(MetricsLog(tmp_path), 3, 4)
    found = lines(tmp_path)
    assert [line["event"] for line in found].count("resume") == 1
    assert [line["iteration"] for line in found if line["event"] == "iteration"] == [0, 1, 2, 3, 4]
    assert [line["done"] for line in found] == sorted(line["done"] for line in found)


def test_resuming_without_a_log_starts_one(tmp_path: Path) -> None:
    assert MetricsLog(tmp_path).resume(2) == 0.0
    assert [line["event"] for line in lines(tmp_path)] == ["resume"]


GOOD = '{"event": "iteration", "iteration": 1, "done": 2, "elapsed_s": 9.0}'
BAD_LINES = {
    "#garbage": "not JSON",
    "": "",
    "3": "expected a JSON object, got int",
    "[]": "expected a JSON object, got list",
    '{"event": "iteration", "elapsed_s": 1.0}': "`done` must be a count of iterations, got None",
    '{"done": "2", "elapsed_s": 1.0}': "`done` must be a count of iterations, got '2'",
    '{"done": 2}': "`elapsed_s` must be seconds, got None",
    '{"done": 2, "elapsed_s": NaN}': "`elapsed_s` must be seconds, got nan",
    "[" * 100_000: "not JSON .nested too deeply",
    "1" * 5000: "not JSON .a number is too long",
}


@pytest.mark.parametrize("bad", BAD_LINES, ids=lambda bad: bad[:20])
def test_a_bad_line_in_the_middle_stops_a_resume_before_anything_is_lost(tmp_path: Path, bad: str) -> None:
    """Rows 5 and 32: later events are not thrown away over it."""
    path, log = tmp_path / "metrics.jsonl", MetricsLog(tmp_path)
    log_iterations(log, 0)
    with path.open("a") as file:
        file.write(f"{bad}\n{GOOD}\n")
    before = path.read_bytes()
    if BAD_LINES[bad]:
        with pytest.raises(UserError, match=f"metrics.jsonl, line 2: {BAD_LINES[bad]}"):
            log.resume(2)
        assert path.read_bytes() == before
    else:
        log.resume(2)
        assert [line["done"] for line in lines(tmp_path)] == [1, 2, 2], "an empty line is none"


@pytest.mark.parametrize("torn", ["{", '{"event": "iteration", "iter', '\n\n{"done": 3, "rew', "\x00\x00", "\n"])
def test_a_half_written_last_line_is_none(tmp_path: Path, torn: str) -> None:
    log_iterations(MetricsLog(tmp_path), 0)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(torn)
    assert MetricsLog(tmp_path).resume(1) == 10.0
    assert [line["event"] for line in lines(tmp_path)] == ["iteration", "resume"]


def test_a_last_line_that_is_whole_but_no_event_is_no_torn_one(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(f'{GOOD}\n{{"done": null}}\n')
    with pytest.raises(UserError, match="line 2: `done` must be a count"):
        MetricsLog(tmp_path).read()


def test_a_text_with_other_line_breaks_is_one_line(tmp_path: Path) -> None:
    """A scorer's reason may hold anything; str.splitlines breaks at U+2028."""
    log = MetricsLog(tmp_path)
    log.checkpoint(1, "a\u2028b\x0cc", 1.0)
    log.checkpoint(2, "x", 2.0)
    assert [line["name"] for line in MetricsLog(tmp_path).read()] == ["a\u2028b\x0cc", "x"]
