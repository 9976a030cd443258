"""A small recipe with all its files, and the command line called in this process."""

from pathlib import Path

import pytest
from deploy_helpers import GENEVAL_LINE, Marble, Ran

from actors.run_config import RunConfig
from deploy import cli
from deploy.recipe import load_recipe
from tests.unit.hollow_model import write_hollow_checkpoint, write_hollow_model

RECIPE = """\
run:
  name: small
  iterations: 4
policy:
  base: ./model
  resolution: 64
  max_sequence_length: 0
sampling: {steps: 10}
eval_sampling: {steps: 10}
prompts:
  groups_per_iteration: 4
  group_size: 2
  sources:
    general: {train: ./general_train.txt, heldout: ./general_heldout.txt}
    geneval: {train: ./geneval_train.jsonl, heldout: ./geneval_heldout.jsonl, format: geneval}
rewards:
  align:
    scorer: clipscore
    args: {checkpoint: ./clip}
  geneval:
    scorer: geneval
    args: {detector: "some.module:Detector", score: graded, clip: true}
    applies: [geneval]
learner:
  lr: 1e-3
  timesteps: 3
  updates_per_iteration: 2
checkpoint: {keep_best: 0}
eval: {every: 0}
"""


@pytest.fixture
def small_config(recipe_file: Path) -> RunConfig:
    """The small recipe, loaded."""
    return load_recipe(recipe_file).config


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("MARBLE_RUNS", raising=False)
    return folder


@pytest.fixture
def recipe_file(tmp_path: Path, workdir: Path) -> Path:
    """A valid recipe beside its prompt files and (hollow) model folders; the working directory is another one."""
    folder = tmp_path / "recipe"
    write_hollow_model(folder / "model")
    write_hollow_checkpoint(folder / "clip", "model")
    for split in ("train", "heldout"):
        (folder / f"general_{split}.txt").write_text("".join(f"a thing number {i}\n" for i in range(8)))
        (folder / f"geneval_{split}.jsonl").write_text(GENEVAL_LINE * 8)
    path = folder / "small.yaml"
    path.write_text(RECIPE)
    return path


@pytest.fixture
def marble(capsys: pytest.CaptureFixture[str]) -> Marble:
    """Runs one command line in this process."""

    def call(*args: object) -> Ran:
        capsys.readouterr()
        code = cli.run([str(arg) for arg in args])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return call
