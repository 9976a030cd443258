"""Flow-GRPO's golden numbers, and resuming (FAULTS 5)."""

import json
from pathlib import Path

import pytest

from harmonizer.config import HarmonizerConfig
from harmonizer.harmonizer import Harmonizer
from learner import checkpoint
from learner.adapters import hash_tensors
from learner.learner import Learner
from tests.unit.learner.batches import REWARDS
from tests.unit.learner.grpo_batches import make_batch, make_learner
from tests.unit.learner.grpo_golden import FILE, six_steps

LOOSE = {"loss": {"abs": 1e-6}, "approx_kl": {"rel": 1e-2}, "clip_fraction": {"abs": 0.05}}
"""Advantages sum to 0 in a group, so an on-policy loss is rounding alone; log ratios are what is left of two densities;
one cell of the 24 may lie on the bound."""


def test_golden_steps(tiny_folder: Path) -> None:
    """Rollouts, densities, losses, norms and weights of six steps, within 1e-4 of what is on file."""
    expected = json.loads(FILE.read_text(encoding="utf-8"))
    found = six_steps(tiny_folder)
    assert len(found) == len(expected) == 6
    assert [step["approx_kl"] > 0 for step in expected] == [False, True] * 3
    assert any(step["clip_fraction"] > 0 for step in expected)
    for step, (new, old) in enumerate(zip(found, expected, strict=True)):
        assert new["solved"] == old["solved"], step
        for name in old.keys() - {"solved"}:
            tolerance = {"rel": 1e-4, "abs": 1e-9, **LOOSE.get(name, {})}
            wanted = None if old[name] is None else pytest.approx(old[name], **tolerance)
            assert new[name] == wanted, (step, name)


def test_four_iterations_are_two_and_two_bit_for_bit(tiny_folder: Path, tmp_path: Path) -> None:
    """FAULTS 5: rollouts after a restart get the same noise between their steps too."""

    def new() -> tuple[Learner, Harmonizer]:
        balance = Harmonizer(REWARDS, HarmonizerConfig(refresh={"policy": "every_n", "n": 3}))
        return make_learner(tiny_folder, balance=balance), balance

    def train(learner: Learner, iterations: range) -> None:
        for i in iterations:
            learner.train(make_batch(learner, i))

    straight, _ = new()
    train(straight, range(4))
    first, balance = new()
    train(first, range(2))
    path = checkpoint.save(tmp_path, 2, *first.state())
    tensors, state = checkpoint.load(path)
    second, other = new()
    second.load_state(tensors, state)
    other.load_state_dict(balance.state_dict())
    train(second, range(2, 4))
    assert {group: hash_tensors(values) for group, values in second.state()[0].items()} == {
        group: hash_tensors(values) for group, values in straight.state()[0].items()
    }
    assert second.state()[1] == straight.state()[1]
