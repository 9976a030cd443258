"""Checkpoints: whole or passed over (FAULTS 5, 7)."""

import hashlib
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from learner import checkpoint
from learner.config import LoraConfig
from learner.errors import CheckpointError
from learner.export import LoraExport, load_lora

LORA = {"x.lora_A.weight": torch.ones(2, 5), "x.lora_B.weight": torch.ones(3, 2)}


def write(root: Path, iteration: int, value: float = 1.0) -> Path:
    tensors = {"default": {"a": torch.full((3,), value)}, "optimizer": {"exp_avg.a": torch.zeros(3)}}
    export = LoraExport(LORA, LoraConfig(rank=2, alpha=4.0), {"base": "tiny"})
    return checkpoint.save(root, iteration, tensors, {"steps_done": iteration, "sigma": 0.1 + 0.2}, export)


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    path = write(tmp_path / "new" / "root", 7, 0.1)
    assert path.name == "000007"
    tensors, state = checkpoint.load(path)
    assert sorted(tensors) == ["default", "optimizer"]
    assert torch.equal(tensors["default"]["a"], torch.full((3,), 0.1))
    assert state == {"steps_done": 7, "sigma": 0.1 + 0.2}
    assert load_lora(path / "lora").alpha == 4.0
    assert [p.name for p in path.parent.iterdir()] == ["000007"]


def test_equal_contents_give_equal_bytes(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a", 1), write(tmp_path / "b", 1)
    for path in (p for p in first.rglob("*") if p.is_file()):
        assert path.read_bytes() == (second / path.relative_to(first)).read_bytes()


def test_a_second_save_replaces_the_first(tmp_path: Path) -> None:
    write(tmp_path, 3, 1.0)
    path = write(tmp_path, 3, 2.0)
    assert float(checkpoint.load(path)[0]["default"]["a"][0]) == 2.0
    assert [p.name for p in tmp_path.iterdir()] == ["000003"]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def rewritten(path: Path, name: str, data: bytes) -> None:
    """Another file, whose hash the manifest knows."""
    (path / name).write_bytes(data)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"][name] = hashlib.sha256(data).hexdigest()
    (path / "manifest.json").write_text(json.dumps(manifest))


TEARS: list[tuple[Callable[[Path], object], str]] = [
    (lambda p: (p / "manifest.json").unlink(), "has no manifest.json"),
    (lambda p: cut(p / "manifest.json"), "manifest.json is broken"),
    (lambda p: (p / "manifest.json").write_text("[]"), "manifest.json is broken: expected a JSON object, got list"),
    (lambda p: (p / "manifest.json").write_text('{"files": null}'), "`files` maps no names to hashes"),
    (lambda p: (p / "manifest.json").write_text('{"files": ["a"]}'), "`files` maps no names to hashes\\Z"),
    (lambda p: (p / "manifest.json").write_text('{"files": {"state.json": 3}}'), ": `files` maps no names to hashes"),
    (lambda p: (p / "manifest.json").write_text('{"files": {"a\\u0000b": "x"}}'), "b is missing"),
    (lambda p: (p / "manifest.json").write_text("[" * 100_000), "manifest.json is broken: nested too deeply"),
    (lambda p: (p / "manifest.json").write_text("1" * 5000), "manifest.json is broken: a number is too long"),
    (lambda p: (p / "manifest.json").write_bytes(b"\xff"), "manifest.json is broken: not UTF-8"),
    (lambda p: (p / "manifest.json").unlink() or (p / "manifest.json").mkdir(), "manifest.json is broken: .*directory"),
    (lambda p: rewritten(p, "state.json", b"[1]"), "state.json is broken: expected a JSON object, got list"),
    (lambda p: rewritten(p, "state.json", b"{"), "state.json is broken: Expecting"),
    (lambda p: (p / "optimizer.safetensors").unlink(), "optimizer.safetensors is missing"),
    (lambda p: cut(p / "default.safetensors"), "default.safetensors is not what was written"),
    (lambda p: (p / "state.json").write_text("{}"), "state.json is not what was written"),
    (
        lambda p: (p / "lora" / "pytorch_lora_weights.safetensors").unlink(),
        "pytorch_lora_weights.safetensors is missing",
    ),
]


@pytest.mark.parametrize(("tear", "message"), TEARS, ids=[message for _, message in TEARS])
def test_a_torn_checkpoint_is_reported_and_passed_over(
    tear: Callable[[Path], object], message: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """FAULTS 7; a missing optimizer file is a tear (FAULTS 5)."""
    whole, torn = write(tmp_path, 9), write(tmp_path, 10)
    tear(torn)
    with pytest.raises(CheckpointError, match=f"{torn} is torn: .*{message}"):
        checkpoint.load(torn)
    with caplog.at_level(logging.WARNING):
        assert checkpoint.latest(tmp_path) == whole
    assert len(caplog.records) == 1
    assert str(torn) in caplog.text


@pytest.mark.parametrize("stage", ["save_file", "_sync", "_put"])
def test_a_write_that_dies_leaves_the_former_ones(stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = write(tmp_path, 1)

    def die(*args: object, **kwargs: object) -> None:
        raise OSError("disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, stage, die)
        with pytest.raises(OSError, match="disk is full"):
            write(tmp_path, 2)
    assert checkpoint.latest(tmp_path) == kept
    assert checkpoint.latest(tmp_path) == kept
    assert checkpoint.load(write(tmp_path, 2))[1]["steps_done"] == 2


def test_latest_of_nothing(tmp_path: Path) -> None:
    assert checkpoint.latest(tmp_path / "none") is None
    assert checkpoint.latest(tmp_path) is None
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        checkpoint.load(tmp_path / "000001")


def test_the_newest_is_by_number_not_by_text(tmp_path: Path) -> None:
    write(tmp_path, 999_999)
    assert checkpoint.latest(tmp_path) != (newest := write(tmp_path, 1_000_000)) or newest.name == "1000000"
    assert checkpoint.latest(tmp_path) == newest


@pytest.mark.parametrize("name", ["²", "1e3", "٣x", "000002.bak"])
def test_a_folder_of_another_name_is_no_checkpoint(name: str, tmp_path: Path) -> None:
    """FAULTS 7; ² is a digit to str.isdigit, and none to int."""
    whole = write(tmp_path, 1)
    (tmp_path / name).mkdir()
    assert checkpoint.find(tmp_path) == (whole, ())
    assert checkpoint.prune(tmp_path, keep_last=1) == []
    assert (tmp_path / name).is_dir()


def test_finding_says_what_is_wrong_with_newer_ones_and_logs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole, torn = write(tmp_path, 1), write(tmp_path, 2)
    cut(torn / "default.safetensors")
    path, problems = checkpoint.find(tmp_path)
    assert path == whole
    assert problems == (f"checkpoint {torn} is torn: default.safetensors is not what was written",)
    assert not caplog.records


def test_pruning_keeps_the_last_and_the_best(tmp_path: Path) -> None:
    paths = {i: write(tmp_path, i) for i in range(1, 7)}
    cut(paths[6] / "default.safetensors")
    cut(paths[3] / "default.safetensors")
    (tmp_path / f".000007.new.{os.getpid()}").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    gone = checkpoint.prune(tmp_path, keep_last=2, best=[paths[1]])
    assert sorted(p.name for p in gone) == ["000002", "000003"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["000001", "000004", "000005", "000006", "notes.txt"]


def test_pruning_without_a_whole_one_deletes_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, 1)
    cut(path / "default.safetensors")
    assert checkpoint.prune(tmp_path, keep_last=1) == []
    assert path.exists()


def test_numbers_that_are_no_json_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        checkpoint.save(tmp_path, 1, {}, {"sigma": float("nan")})
    assert checkpoint.latest(tmp_path) is None


def test_the_manifest_lists_every_file(tmp_path: Path) -> None:
    path = write(tmp_path, 1)
    files = json.loads((path / "manifest.json").read_text())["files"]
    assert set(files) == {str(p.relative_to(path)) for p in path.rglob("*") if p.is_file()} - {"manifest.json"}
