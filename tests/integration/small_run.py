"""A run small enough for tests: a random SD3 pipeline of 32x32 pixels, two prompt sources, cheap scorers."""

import hashlib
import json
from pathlib import Path
from typing import Any

from actors.controller import Controller, SilentListener
from actors.ledger_parts import SAMPLES, read_table
from actors.remote import Remote
from actors.results import EvaluationResult, IterationResult, RunSummary
from actors.run_config import RunConfig
from tests.unit.actors.in_process import InProcess

SCORERS = "tests.integration.fake_scorers"
SHIPPED_LEARNER = {"updates_per_iteration": 2, "timesteps": 1, "kl_beta": 0.25, "kl_fraction": 0.25}
"""The shipped recipes' kind of step: two updates on each batch, KL on a drawn share of the cells."""


def write_prompts(folder: Path) -> dict[str, Any]:
    """Files of two sources; returns their configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    # The tiny tokenizers have one token per character and room for six.
    plain = [f"{colour} {thing}" for colour in ("red", "tan", "sky", "ash", "jet", "sea") for thing in ("cat", "dog")]
    signs = [f'a "{text}"' for text in ("AB", "CD", "EF", "GH", "IJ", "KL")]
    (folder / "plain.txt").write_text("\n".join(plain) + "\n")
    (folder / "signs.txt").write_text("\n".join(signs) + "\n")
    (folder / "plain_held.txt").write_text("oak cat\noak dog\noak fox\n")
    (folder / "signs_held.txt").write_text('a "MN"\na "OP"\n')
    return {
        "plain": {"train": str(folder / "plain.txt"), "heldout": str(folder / "plain_held.txt")},
        "signs": {"train": str(folder / "signs.txt"), "heldout": str(folder / "signs_held.txt")},
    }


def small_config(model: Path, folder: Path, **sections: Any) -> RunConfig:
    """A recipe; each keyword replaces or, for mappings, updates a section."""
    data: dict[str, Any] = {
        "run": {"name": "small", "seed": 7, "iterations": 2},
        "policy": {
            "base": str(model),
            "resolution": 32,
            "max_sequence_length": 0,
            "lora": {"rank": 4, "alpha": 8, "targets": ["attn.to_q", "attn.to_v"]},
        },
        "sampling": {"steps": 4},
        "eval_sampling": {"steps": 4},
        "prompts": {"groups_per_iteration": 4, "group_size": 4, "sources": write_prompts(folder / "prompts")},
        "rewards": {
            "red": {"scorer": f"{SCORERS}:Channel", "args": {"channel": 0}},
            "dark": {"scorer": f"{SCORERS}:Channel", "args": {"channel": 2, "sign": -1.0}},
            "contrast": {"scorer": f"{SCORERS}:Contrast", "applies": ["signs"], "when": "quoted"},
        },
        "harmonizer": {"refresh": {"n": 3}},
        "learner": {"lr": 1e-2, "timesteps": 2, "updates_per_iteration": 1, "micro_batch_size": 8},
        "eval": {"every": 0, "batch_size": 3},
        "checkpoint": {"every": 3, "keep_best": 0},
        "actors": {"start_timeout_s": 90},
    }
    for name, value in sections.items():
        data[name] = (
            {**data[name], **value} if isinstance(value, dict) and name in data and name != "rewards" else value
        )
    return RunConfig.model_validate_json(json.dumps(data))


class Recorder(SilentListener):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__([])
        self.iterations: list[IterationResult] = []
        self.evaluations: list[EvaluationResult] = []
        self.checkpoints: list[Path] = []
        self.stages: list[tuple[str, str]] = []

    def on_stage(self, stage: str, detail: str) -> None:
        self.stages.append((stage, detail))

    def on_iteration(self, result: IterationResult) -> None:
        self.iterations.append(result)

    def on_evaluation(self, result: EvaluationResult) -> None:
        self.evaluations.append(result)

    def on_checkpoint(self, path: Path) -> None:
        self.checkpoints.append(path)


def run(
    config: RunConfig, run_dir: Path, remote: InProcess | None = None, recorder: Recorder | None = None, **more: Any
) -> tuple[RunSummary, Recorder, InProcess]:
    """A run in a folder, made if missing."""
    run_dir.mkdir(exist_ok=True)
    remote, recorder = remote or InProcess(), recorder or Recorder()
    import torch

    torch.set_num_threads(1)  # as the actors' processes have it
    as_remote: Remote = remote
    with Controller(config, run_dir, recorder, remote=as_remote, spawn=remote.spawn, **more) as controller:
        summary = controller.run()
    assert remote.alive() == []
    return summary, recorder, remote


def contents(checkpoint: Path) -> dict[str, str]:
    """Hash of every file."""
    return {
        str(path.relative_to(checkpoint)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(checkpoint.rglob("*"))
        if path.is_file()
    }


def kept_images(file: Path, num_images: int) -> list[str]:
    """What :class:`fake_scorers.Keeps` noted of the first so many images of training, the self-test's left out."""
    return sorted(file.read_text().splitlines()[1 : 1 + num_images])


def samples(run_dir: Path) -> list[dict[str, Any]]:
    return read_table(run_dir, SAMPLES).to_pylist()
