"""metrics.jsonl. Row 32 of the faults table: no gap, no falling numbers, and the restart is marked."""

import json
from pathlib import Path
from typing import Any

from actors import tally
from actors.metrics import MetricsLog
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
