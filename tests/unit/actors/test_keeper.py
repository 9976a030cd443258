"""When checkpoints are due, which stay, and what a resumed run starts from. Rows 5, 7 and 26 of the faults table."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

from actors.config import CheckpointConfig
from actors.evaluation import evaluation_path, write_evaluation
from actors.keeper import Keeper, digest
from actors.preflight import PromptSets
from harmonizer.config import HarmonizerConfig
from harmonizer.harmonizer import Harmonizer
from learner import checkpoint
from learner.errors import CheckpointError
from tests.unit.actors.stand_ins import NAN, evaluation, prompts

NAMES = ("a",)


def harmonizer(**settings: Any) -> Harmonizer:
    return Harmonizer(NAMES, HarmonizerConfig(**settings))


HARMONIZER = harmonizer().state_dict()

PROMPTS = PromptSets({"plain": prompts("a", "b")}, prompts("h"))


def save(keeper: Keeper, done: int, balance: dict[str, Any] = HARMONIZER) -> Path:
    extra = keeper.extra(balance, done, PROMPTS)
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


def test_the_best_is_the_best_of_the_followed_rewards(tmp_path: Path) -> None:
    """A training reward that still rises does not count where held-out ones are followed."""
    keeper = Keeper(CheckpointConfig(keep_best=1), tmp_path, followed=("judge", "other"))
    before = evaluation({"a": [0.0, 1.0], "judge": [0.0, 2.0], "other": [0.0, 4.0]})
    for done, a, judge, other in ((2, 0.1, 0.6, 0.0), (4, 0.5, 0.0, 0.8), (6, 9.0, 0.2, 0.2)):
        scores = {"a": [a, a + 1], "judge": [judge, judge + 2], "other": [other, other + 4]}
        keeper.note(before, evaluation(scores, done=done, which="ema"))
        keeper.path(done).mkdir(parents=True)
    assert keeper.best_paths() == [keeper.path(2)], "0.6 / 1 beats 0.8 / 2: each in units of its spread on the base"


def test_row_26_an_evaluation_without_a_scored_cell_of_a_followed_reward_is_never_the_best(tmp_path: Path) -> None:
    keeper = Keeper(CheckpointConfig(keep_best=1), tmp_path, followed=("judge",))
    before = evaluation({"a": [0.0, 1.0], "judge": [0.0, 1.0]})
    assert not keeper.note(before, evaluation({"a": [5.0, 6.0], "judge": [NAN, NAN]}, done=2, which="ema"))
    assert keeper.note(before, evaluation({"a": [0.0, 1.0], "judge": [-1.0, 0.0]}, done=4, which="ema"))


def test_without_keep_best_no_evaluation_is(tmp_path: Path) -> None:
    keeper = Keeper(CheckpointConfig(keep_best=0), tmp_path)
    before = evaluation({"a": [0.0, 1.0]})
    assert not keeper.note(before, evaluation({"a": [1.0, 2.0]}, done=1, which="ema"))


def test_a_resumed_run_starts_from_the_newest_whole_checkpoint(tmp_path: Path) -> None:
    keeper = Keeper(CheckpointConfig(), tmp_path)
    for done in (3, 6):
        save(keeper, done)
    point = Keeper(CheckpointConfig(), tmp_path).resume_point(PROMPTS, harmonizer())
    assert (point.path.name, point.iterations_done, point.harmonizer) == ("000006", 6, HARMONIZER)


def test_row_7_a_torn_checkpoint_is_reported_and_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keeper = Keeper(CheckpointConfig(), tmp_path)
    save(keeper, 3)
    torn = save(keeper, 6)
    (torn / "manifest.json").unlink()
    assert keeper.resume_point(PROMPTS, harmonizer()).iterations_done == 3
    assert "000006 is torn" in caplog.text


def test_row_5_without_an_optimizer_file_nothing_is_resumed(tmp_path: Path) -> None:
    keeper = Keeper(CheckpointConfig(), tmp_path)
    (save(keeper, 3) / "optimizer.safetensors").unlink()
    with pytest.raises(CheckpointError, match="no whole checkpoint, only torn ones"):
        keeper.resume_point(PROMPTS, harmonizer())


def test_resuming_from_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nothing to resume: no checkpoint in"):
        Keeper(CheckpointConfig(), tmp_path).resume_point(PROMPTS, harmonizer())


def changed(state: dict[str, Any], key: str, value: object) -> dict[str, Any]:
    return {**state, key: value} if value is not None else {k: v for k, v in state.items() if k != key}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("iterations_done", None, "has no count `iterations_done`, got None"),
        ("iterations_done", "6", "has no count `iterations_done`, got '6'"),
        ("harmonizer", None, "has no mapping `harmonizer`"),
        ("harmonizer", [], "has no mapping `harmonizer`"),
        (
            "harmonizer",
            {"ema": [1.0], "method": {}, "refresh": {}},
            "does not fit: harmonizer state lacks reward_names, norms",
        ),
        ("harmonizer", {**HARMONIZER, "ema": ["x"]}, "does not fit: "),
        ("harmonizer", {**HARMONIZER, "ema": 3}, "does not fit: "),
        ("harmonizer", {**HARMONIZER, "reward_names": ["b"]}, "does not fit: harmonizer state must be of rewards"),
        ("harmonizer", {**HARMONIZER, "conflicts": []}, "does not fit: "),
        ("harmonizer", {**HARMONIZER, "refresh": {"gap": 1}}, "does not fit: refresh policy every_n remembers nothing"),
        ("harmonizer", {**HARMONIZER, "method": {"bargain": [1]}}, "does not fit: MinNorm remembers nothing"),
        ("learner", None, "has no mapping `learner`"),
    ],
)
def test_a_whole_checkpoint_with_another_state_is_refused_in_one_line(
    tmp_path: Path, key: str, value: object, message: str
) -> None:
    """Its hashes are right, so it is nobody's torn file: it was edited, or is none of a run."""
    keeper = Keeper(CheckpointConfig(), tmp_path)
    state = {"learner": {}, **keeper.extra(HARMONIZER, 6, PROMPTS)}
    checkpoint.save(keeper.root, 6, {"default": {"x": torch.zeros(2)}}, changed(state, key, value))
    with pytest.raises(CheckpointError, match=f"cannot resume from .*000006: state.json {message}"):
        keeper.resume_point(PROMPTS, harmonizer())
    assert keeper.last_saved == -1


def test_shares_of_both_signs_are_resumed_where_the_method_has_them(tmp_path: Path) -> None:
    names = ("a", "b", "c")
    state = Harmonizer(names, HarmonizerConfig(method="imtl_g")).state_dict()
    state |= {"ema": [1.5, -0.7, 0.2], "norms": [1.0, 2.0, 3.0]}
    keeper = Keeper(CheckpointConfig(), tmp_path)
    save(keeper, 6, state)
    point = keeper.resume_point(PROMPTS, Harmonizer(names, HarmonizerConfig(method="imtl_g")))
    assert point.harmonizer["ema"] == [1.5, -0.7, 0.2]
    with pytest.raises(CheckpointError, match="does not fit: "):
        keeper.resume_point(PROMPTS, Harmonizer(names, HarmonizerConfig()))


@pytest.mark.parametrize("how", ["cut", "empty", "text", "folder", "other rewards", "no notes"])
def test_an_evaluation_that_cannot_be_read_is_set_aside(tmp_path: Path, how: str) -> None:
    for done in (0, 2):
        write_evaluation(tmp_path, evaluation({"a": [0.0, 1.0]}, done=done, which="ema" if done else "before"))
    path = evaluation_path(tmp_path, 0)
    whole = path.read_bytes()
    if how == "other rewards":
        write_evaluation(tmp_path, evaluation({"b": [0.0, 1.0]}))
    elif how == "no notes":
        pq.write_table(pq.read_table(path).replace_schema_metadata(None), path)
    elif how == "folder":
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes({"cut": whole[:-20], "empty": b"", "text": b"x" * 100}[how])
    keeper, warnings = Keeper(CheckpointConfig(), tmp_path), list[str]()
    keeper.recall(NAMES, warnings.append)
    if how != "folder":  # which is no file, so there is no evaluation
        assert not path.exists()
        assert path.with_name("000000.parquet.unreadable").exists(), "nothing is lost"
        (warning,) = warnings
        assert f"{path} is no readable evaluation of this run: " in warning
    assert evaluation_path(tmp_path, 2).is_file()


def test_a_file_of_another_name_is_no_evaluation(tmp_path: Path) -> None:
    write_evaluation(tmp_path, evaluation({"a": [0.0, 1.0]}))
    for name in ("notes.parquet", "000003-copy.parquet"):
        evaluation_path(tmp_path, 0).with_name(name).write_text("mine")
    keeper, warnings = Keeper(CheckpointConfig(), tmp_path), list[str]()
    keeper.drop_later_evaluations(0)
    keeper.recall(NAMES, warnings.append)
    assert warnings == []
    assert len(list(evaluation_path(tmp_path, 0).parent.iterdir())) == 3


def test_other_prompts_would_not_give_the_same_run(tmp_path: Path) -> None:
    keeper = Keeper(CheckpointConfig(), tmp_path)
    save(keeper, 3)
    other = PromptSets({"plain": prompts("a", "c")}, prompts("h"))
    with pytest.raises(CheckpointError, match="the prompt files have changed"):
        keeper.resume_point(other, harmonizer())
    assert digest(PROMPTS) != digest(PromptSets(PROMPTS.train, prompts("i")))


def test_evaluations_of_iterations_to_come_go_and_the_earlier_count(tmp_path: Path) -> None:
    for done, up in ((0, 0.0), (2, 0.4), (4, 0.9)):
        write_evaluation(tmp_path, evaluation({"a": [up, 1 + up]}, done=done, which="ema" if done else "before"))
    keeper = Keeper(CheckpointConfig(keep_best=1), tmp_path)
    keeper.drop_later_evaluations(2)
    assert not evaluation_path(tmp_path, 4).exists()
    before, later = evaluation({"a": [0.0, 1.0]}), keeper.recall(["a"], pytest.fail)
    assert [result.iteration for result in later] == [2]
    assert keeper.note(before, later[0])
    keeper.path(2).mkdir(parents=True)
    assert keeper.best_paths() == [keeper.path(2)]


def test_a_checkpoints_state_names_no_time_and_no_place(tmp_path: Path) -> None:
    """Row 5: two equal runs leave equal bytes."""
    path = save(Keeper(CheckpointConfig(), tmp_path), 3)
    assert set(json.loads((path / "state.json").read_text())) == {"learner", "harmonizer", "iterations_done", "prompts"}
