"""When checkpoints are due, which stay, and what a resumed run starts from. Rows 5, 7 and 26 of the faults table."""

import json
from pathlib import Path

import pytest
import torch

from actors.config import CheckpointConfig
from actors.evaluation import evaluation_path, write_evaluation
from actors.keeper import Keeper, digest
from actors.preflight import PromptSets
from learner import checkpoint
from learner.errors import CheckpointError
from tests.unit.actors.stand_ins import evaluation, prompts

PROMPTS = PromptSets({"plain": prompts("a", "b")}, prompts("h"))


def save(keeper: Keeper, done: int) -> Path:
    extra = keeper.extra({"ema": [0.5]}, done, PROMPTS)
    tensors = {name: {"x": torch.zeros(2)} for name in ("default", "optimizer")}
    return checkpoint.save(keeper.root, done, tensors, {"learner": {}, **extra})


def test_every_nth_iteration_and_the_last_are_due(tmp_path: Path) -> None:
    keeper = Keeper(CheckpointConfig(every=4), tmp_path)
    assert [done for done in range(1, 11) if keeper.is_due(done, 10)] == [4, 8, 10]


def test_row_26_the_best_evaluations_are_kept_and_the_bases_is_none_of_them(tmp_path: Path) -> None:
    keeper = Keeper(CheckpointConfig(keep_best=2), tmp_path)
    before = evaluation({"a": [0.0, 1.0]})
    gains = {2: 0.3, 4: 0.1, 6: 0.5, 8: 0.3}
    kept = {d: keeper.note(before, evaluation({"a": [g, 1 + g]}, done=d, which="ema")) for d, g in gains.items()}
    assert kept == {2: True, 4: True, 6: True, 8: False}
    assert not keeper.note(before, before)
    for done in gains:
        keeper.path(done).mkdir(parents=True)
    assert keeper.best_paths() == [keeper.path(6), keeper.path(2)]


def test_without_keep_best_no_evaluation_is(tmp_path: Path) -> None:
    keeper = Keeper(CheckpointConfig(keep_best=0), tmp_path)
    before = evaluation({"a": [0.0, 1.0]})
    assert not keeper.note(before, evaluation({"a": [1.0, 2.0]}, done=1, which="ema"))


def test_a_resumed_run_starts_from_the_newest_whole_checkpoint(tmp_path: Path) -> None:
    keeper = Keeper(CheckpointConfig(), tmp_path)
    for done in (3, 6):
        save(keeper, done)
    point = Keeper(CheckpointConfig(), tmp_path).resume_point(PROMPTS)
    assert (point.path.name, point.iterations_done, point.harmonizer) == ("000006", 6, {"ema": [0.5]})


def test_row_7_a_torn_checkpoint_is_reported_and_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keeper = Keeper(CheckpointConfig(), tmp_path)
    save(keeper, 3)
    torn = save(keeper, 6)
    (torn / "manifest.json").unlink()
    assert keeper.resume_point(PROMPTS).iterations_done == 3
    assert "000006 is torn" in caplog.text


def test_row_5_without_an_optimizer_file_nothing_is_resumed(tmp_path: Path) -> None:
    keeper = Keeper(CheckpointConfig(), tmp_path)
    (save(keeper, 3) / "optimizer.safetensors").unlink()
    with pytest.raises(CheckpointError, match="no whole checkpoint, only torn ones"):
        keeper.resume_point(PROMPTS)


def test_resuming_from_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nothing to resume: no checkpoint in"):
        Keeper(CheckpointConfig(), tmp_path).resume_point(PROMPTS)


def test_other_prompts_would_not_give_the_same_run(tmp_path: Path) -> None:
    keeper = Keeper(CheckpointConfig(), tmp_path)
    save(keeper, 3)
    other = PromptSets({"plain": prompts("a", "c")}, prompts("h"))
    with pytest.raises(CheckpointError, match="the prompt files have changed"):
        keeper.resume_point(other)
    assert digest(PROMPTS) != digest(PromptSets(PROMPTS.train, prompts("i")))


def test_evaluations_of_iterations_to_come_go_and_the_earlier_count(tmp_path: Path) -> None:
    for done, up in ((0, 0.0), (2, 0.4), (4, 0.9)):
        write_evaluation(tmp_path, evaluation({"a": [up, 1 + up]}, done=done, which="ema" if done else "before"))
    keeper = Keeper(CheckpointConfig(keep_best=1), tmp_path)
    keeper.drop_later_evaluations(2)
    assert not evaluation_path(tmp_path, 4).exists()
    keeper.recall(["a"])
    keeper.path(2).mkdir(parents=True)
    assert keeper.best_paths() == [keeper.path(2)]


def test_a_checkpoints_state_names_no_time_and_no_place(tmp_path: Path) -> None:
    """Row 5: two equal runs leave equal bytes."""
    path = save(Keeper(CheckpointConfig(), tmp_path), 3)
    assert set(json.loads((path / "state.json").read_text())) == {"learner", "harmonizer", "iterations_done", "prompts"}
