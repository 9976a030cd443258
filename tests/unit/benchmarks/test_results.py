"""benchmarks/results.py: the command beside the tables makes the same comparison again."""

import json
import shlex
from pathlib import Path

import pytest
import typer

from benchmarks.results import command_line, machines, section
from deploy.cli import app
from deploy.compare import command
from deploy.compare.order import Asked
from deploy.compare.session import ASKED, Session
from learner.errors import UserError


@pytest.mark.parametrize(
    "settings",
    [
        {"methods": ("marble", "single_ocr"), "minutes": 10.0},
        {"methods": ("uniform",), "iterations": 8, "tuning_iterations": 3, "sets": ("learner.lr=1e-4",)},
        {"methods": ("no_ema",), "iterations": 8, "lr_factors": (1.0, 0.25), "probe_every": 5},
        {"methods": ("uniform",), "iterations": 8, "sets": ("harmonizer={ema: {rho: 0.5}}", "run.name=a-b")},
        {
            "methods": (),
            "sweep": ("refresh.n=1,2", "learner.old_policy={slope: 0},{slope: 1}"),
            "iterations": 8,
            "tuning_iterations": 0,
            "probe_every": 0,
        },
    ],
)
def test_the_command_asks_for_the_same(
    settings: dict[str, object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wanted = Asked.model_validate({"recipe": "deploy/recipes/tiny.yaml", "seeds": (1, 2), **settings})
    seen: list[Asked] = []

    def run(session: Session) -> list[object]:
        seen.append(session.asked)
        return []

    monkeypatch.setattr(Session, "run", run)
    words = shlex.split(command_line(wanted))
    assert words[:2] == ["marble", "compare"]
    with pytest.raises(UserError, match="has no finished run yet"):
        typer.main.get_command(app).main([*words[1:], "--dir", str(tmp_path)], standalone_mode=False)
    assert seen == [wanted]


def test_a_folder_without_a_comparison_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no comparison"):
        section(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"seconds": "long"}'])
def test_a_damaged_summary_is_one_line(text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wanted = Asked(recipe="deploy/recipes/tiny.yaml", methods=("marble",), seeds=(1,))
    (tmp_path / ASKED).write_text(wanted.model_dump_json())
    path = tmp_path / "tuning" / "marble-lr1" / "summary.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    monkeypatch.setattr(Session, "tables_of", lambda session: ["a table"])
    with pytest.raises(UserError, match=r"marble-lr1/summary\.json is damaged"):
        section(tmp_path)


def test_the_machine_is_the_runs_own(tmp_path: Path) -> None:
    assert machines(tmp_path) == "a machine not on record"
    records = {
        "runs/marble-seed1": [{"machine": {"platform": "riscv64", "cores": 3}}],
        "tuning/marble-lr1": [
            {"machine": {"platform": "riscv64", "cores": 3}},
            {"machine": {"platform": "riscv64", "cores": 64}},
            {"python": "3.11"},
        ],
    }
    for name, lines in records.items():
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "launches.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert machines(tmp_path) == "riscv64, 3 cores; riscv64, 64 cores; a machine not on record"
    (tmp_path / "runs/marble-seed1/launches.jsonl").write_text("{")
    with pytest.raises(UserError, match=r"marble-seed1/launches\.jsonl: "):
        machines(tmp_path)


def test_the_default_of_tuning_is_the_settings_own() -> None:
    assert Asked(recipe="r", methods=(), seeds=(1,)).tuning_iterations == command.DEFAULT_TUNING
