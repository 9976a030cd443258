"""Golden numbers of six steps, and six steps against three, a checkpoint, and three (FAULTS 5)."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from harmonizer.harmonizer import Harmonizer
from learner import checkpoint
from learner.adapters import hash_tensors
from learner.errors import CheckpointError
from learner.learner import Learner
from learner.types import StepRecord
from tests.unit.learner.batches import harmonizer, make_batch, make_learner
from tests.unit.learner.golden import FILE, six_steps, summary


def test_golden_steps(tiny_folder: Path) -> None:
    """Losses, norms and weights of six steps, within 1e-5 of what is on file."""
    expected = json.loads(FILE.read_text(encoding="utf-8"))
    found = six_steps(tiny_folder)
    assert len(found) == len(expected) == 6
    for step, (new, old) in enumerate(zip(found, expected, strict=True)):
        assert new["solved"] == old["solved"], step
        for name in ("weights", "coefficients", "norms", "loss", "kl", "grad_norm"):
            assert new[name] == (None if old[name] is None else pytest.approx(old[name], rel=1e-5, abs=1e-9)), (
                step,
                name,
            )


def one_update(folder: Path, balance: Harmonizer) -> Learner:
    """One step per iteration, with a ring of old policies."""
    return make_learner(folder, balance=balance, updates_per_iteration=1, max_staleness=1)


def run(learner: Learner, iterations: range) -> list[StepRecord]:
    return [step for i in iterations for step in learner.train(make_batch(learner, i)).steps]


def everything(learner: Learner) -> dict[str, Any]:
    tensors, state = learner.state()
    return {**{group: hash_tensors(values) for group, values in tensors.items()}, "state": state}


def drift(record: StepRecord) -> tuple[str, ...]:
    """As text, in which NaN equals NaN."""
    return tuple(
        repr(getattr(record, name))
        for name in ("steps_since_solve", "solve_cosine", "solve_norm_ratio", "stale_cosine", "stale_norm_ratio")
    )


def test_six_steps_are_three_and_three_bit_for_bit(tiny_folder: Path, tmp_path: Path) -> None:
    """FAULTS 5: adapters, EMA, moments, α, running σ, versions and noise."""
    straight_balance = harmonizer()
    straight = one_update(tiny_folder, straight_balance)
    expected = run(straight, range(6))
    first_balance = harmonizer()
    first = one_update(tiny_folder, first_balance)
    run(first, range(3))
    tensors, state = first.state()
    path = checkpoint.save(tmp_path, 3, tensors, {"learner": state, "harmonizer": first_balance.state_dict()})
    torch.manual_seed(99)
    balance = harmonizer()
    second = one_update(tiny_folder, balance)
    tensors, state = checkpoint.load(path)
    balance.load_state_dict(state["harmonizer"])
    second.load_state(tensors, state["learner"])
    assert everything(second) == everything(first)
    found = run(second, range(3, 6))
    assert [summary(record) for record in found] == [summary(record) for record in expected[3:]]
    assert [drift(record) for record in found] == [drift(record) for record in expected[3:]]
    assert everything(second) == everything(straight)
    assert balance.state_dict() == straight_balance.state_dict()
    assert second.policy_version == 6


def test_a_checkpoint_without_its_optimizer_is_refused(tiny_folder: Path, tmp_path: Path) -> None:
    """FAULTS 5: also when the file was left out of the manifest."""
    learner = make_learner(tiny_folder)
    tensors, state = learner.state()
    del tensors["optimizer"]
    loaded, state = checkpoint.load(checkpoint.save(tmp_path, 1, tensors, state))
    with pytest.raises(CheckpointError, match="the learner's state lacks optimizer"):
        make_learner(tiny_folder).load_state(loaded, state)


def drop(group: str, tensors: dict[str, dict[str, torch.Tensor]]) -> None:
    tensors[group].pop(sorted(tensors[group])[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t, s: t.pop("old.0"), "lacks old.0"),
        (lambda t, s: s.pop("old"), "lacks the old policy"),
        (lambda t, s: t.pop("drift"), "lacks drift"),
        (lambda t, s: drop("default", t), "of another run or broken: adapter default: matched 29 of 30"),
        (lambda t, s: drop("ema", t), "of another run or broken: EMA has 30 tensors, got 29"),
        (lambda t, s: drop("optimizer", t), "of another run or broken: optimizer state has 89 tensors, expected 90"),
        (lambda t, s: t["old.0"].update({"more": torch.zeros(1)}), "of another run or broken: old policy 0 has hash"),
        (lambda t, s: s.update(reward_names=["clip"]), "rewards clip; this run has format 1 and rewards clip, ocr"),
        (lambda t, s: s.update(format=9), "has format 9"),
        (lambda t, s: s.pop("reward_names"), "or broken: 'reward_names'"),
        (lambda t, s: s.update(old=[{"version": 0}]), "or broken: 'hash'"),
        (lambda t, s: s.update(old=3), "or broken: object of type 'int'"),
        (lambda t, s: s.pop("steps_done"), "or broken: 'steps_done'"),
        (lambda t, s: s.update(running_sigma_K=[None]), "or broken: running_sigma_K has 1 entries, expected 3"),
        (lambda t, s: t["ema"].update({sorted(t["ema"])[0]: torch.zeros(7, 7)}), "or broken: The size of tensor"),
    ],
)
def test_a_state_of_another_run_is_refused(change: Any, message: str, tiny_folder: Path) -> None:
    tensors, state = make_learner(tiny_folder).state()
    change(tensors, state)
    with pytest.raises(CheckpointError, match=message):
        make_learner(tiny_folder).load_state(tensors, state)


def test_loading_copies(tiny_folder: Path) -> None:
    """What was loaded from stays as it was while training goes on."""
    tensors, state = make_learner(tiny_folder).state()
    before = {group: hash_tensors(values) for group, values in tensors.items()}
    learner = make_learner(tiny_folder)
    learner.load_state(tensors, state)
    run(learner, range(2))
    assert {group: hash_tensors(values) for group, values in tensors.items()} == before


def test_a_state_of_before_there_was_a_drift_is_taken(tiny_folder: Path) -> None:
    """What strays from an unknown solve is unknown, and known again after the next one."""
    tensors, state = make_learner(tiny_folder).state()
    del tensors["drift"], state["drift"]
    learner = make_learner(tiny_folder)
    learner.load_state(tensors, state)
    first, second = run(learner, range(1))
    assert drift(first)[0] == "-1"
    assert drift(second)[0] == "1"
