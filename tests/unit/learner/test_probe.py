"""Conflicts measured beside the training: the right numbers, and no bit of the training changed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from learner import adapters, probe
from learner.adapters import TRAINED, hash_tensors
from learner.gradients import reward_gradients
from learner.learner import Learner
from tests.unit.learner.batches import harmonizer, make_batch, make_learner, randomize
from tests.unit.learner.probes import watched
from tests.unit.learner.test_baselines import plain

KINDS: dict[str, dict[str, Any]] = {
    "gradients": {},
    "weighted_sum": {"objective": "weighted_sum"},
    "stages": {"stages": [{"rewards": ["ocr"], "iterations": 1}, {"rewards": ["clip", "ocr"], "iterations": 2}]},
}


def fresh(folder: Path, kind: str, **changes: Any) -> Learner:
    balance = plain() if kind == "weighted_sum" else harmonizer()
    return make_learner(folder, balance=balance, **KINDS[kind], **changes)


def by_hand(rows_KP: torch.Tensor, vector_P: torch.Tensor) -> NDArray[np.float64]:
    rows, vector = rows_KP.double().numpy(), vector_P.double().numpy()
    return np.asarray(rows @ vector / np.linalg.norm(rows, axis=1) / np.linalg.norm(vector))


def parameters(learner: Learner) -> torch.Tensor:
    return torch.cat([value.flatten() for value in adapters.read(learner.policy.transformer, TRAINED).values()])


@pytest.mark.parametrize("kind", KINDS)
def test_measuring_changes_no_bit_of_the_training(tiny_folder: Path, kind: str) -> None:
    """Weights, moments, EMA, ledger numbers: the same with it on at every step and off."""
    on, off = fresh(tiny_folder, kind, probe_every=1), fresh(tiny_folder, kind)
    for iteration in range(3):
        mine, theirs = on.train(make_batch(on, iteration)), off.train(make_batch(off, iteration))
        assert mine.default_hash == theirs.default_hash
        assert (len(mine.conflicts), theirs.conflicts) == (2 + (iteration > 0), ())
        for step, other in zip(mine.steps, theirs.steps, strict=True):
            assert (step.grad_norm, step.kl) == (other.grad_norm, other.kl)
    (tensors, state), (others, other_state) = on.state(), off.state()
    tensors.pop("probe")
    assert {k: hash_tensors(v) for k, v in tensors.items()} == {k: hash_tensors(v) for k, v in others.items()}
    assert {**state, "probe": None} == other_state


@pytest.mark.parametrize("kind", ["gradients", "weighted_sum"])
def test_cosines_are_those_of_the_gradients_apart(
    tiny_folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the direction, the whole gradient and the parameters' move, on the step's own batch and on the next."""
    learner = fresh(tiny_folder, kind, probe_every=2)  # the first step of each iteration
    randomize(learner, slots=("default",))
    taken: list[torch.Tensor] = []

    def recording(*args: Any) -> Any:
        found = reward_gradients(*args)
        taken.append(found.rows_RP.clone())
        return found

    monkeypatch.setattr(probe, "reward_gradients", recording)
    seen, patch = watched(learner)
    points = [parameters(learner)]
    step = learner._optimizer.step

    def noting(norm: float) -> None:
        step(norm)
        points.append(parameters(learner))

    learner._optimizer.step = noting  # type: ignore[method-assign]
    with patch:
        reports = [learner.train(make_batch(learner, i)) for i in range(2)]
    [own] = reports[0].conflicts
    later, second = reports[1].conflicts
    assert [c.against for c in (own, later, second)] == ["same", "next", "same"]
    assert (own.step, later.step, second.step) == (0, 0, 2)
    assert (own.iteration, later.iteration) == (0, 0)
    assert own.solved == later.solved == (kind == "gradients")
    coefficients = reports[0].steps[0].coefficients_K
    trained = taken[0][:3] if kind == "gradients" else taken[0][3:]
    direction = (torch.tensor(coefficients, dtype=torch.float32) @ trained).float()
    vectors = {"direction": direction, "gradient": seen.gradients[0], "update": points[0] - points[1]}
    for conflict, rows in ((own, taken[0]), (later, taken[1])):
        for name, vector in vectors.items():
            np.testing.assert_allclose(conflict.cosines[name], by_hand(rows[:3], vector), rtol=1e-4, atol=1e-6)
    if kind == "gradients":
        solution = reports[0].steps[0].solution
        assert solution is not None
        np.testing.assert_allclose(own.cosines["direction"], solution.report.cosines_K, atol=1e-5)
        assert (own.cosines["direction"] > 0).all(), "MARBLE's own batch: no reward is opposed"


def test_a_reward_without_signal_is_not_known(tiny_folder: Path) -> None:
    learner = fresh(tiny_folder, "gradients", probe_every=1)
    batch = make_batch(learner, 0)
    states_KN = batch.states_KN.copy()
    states_KN[1] = 1
    [first, _] = learner.train(make_batch(learner, 0, states_KN=states_KN)).conflicts
    assert np.isnan(first.cosines["direction"]).tolist() == [False, True, False]


def test_times_are_apart(tiny_folder: Path) -> None:
    learner = fresh(tiny_folder, "gradients", probe_every=1)
    report = learner.train(make_batch(learner, 0))
    assert set(report.timings_s) == {"prepare", "steps", "publish", "probe"}
    assert report.timings_s["probe"] > 0
    assert sum(step.seconds for step in report.steps) <= report.timings_s["steps"]


def test_what_waits_for_the_next_batch_is_resumed(tiny_folder: Path) -> None:
    """FAULTS 5: between a step and its next batch lies a checkpoint."""
    straight = fresh(tiny_folder, "gradients", probe_every=2)
    straight.train(make_batch(straight, 0))
    tensors, state = straight.state()
    assert set(tensors["probe"]) == {"direction", "gradient", "update"}
    resumed = fresh(tiny_folder, "gradients", probe_every=2)
    resumed.load_state(tensors, state)
    resumed._harmonizer.load_state_dict(straight._harmonizer.state_dict())  # type: ignore[attr-defined]
    one, other = straight.train(make_batch(straight, 1)), resumed.train(make_batch(resumed, 1))
    for mine, theirs in zip(one.conflicts, other.conflicts, strict=True):
        for name, cosines in mine.cosines.items():
            np.testing.assert_array_equal(cosines, theirs.cosines[name])


def test_cosines_in_chunks_and_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "GRAM_CHUNK", 2)
    rows = torch.tensor([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0], [float("nan"), 1.0, 1.0], [-3.0, -4.0, 0.0]])
    found = probe.cosines(rows, torch.tensor([3.0, 4.0, 12.0]))
    np.testing.assert_allclose(found, [5 / 13, np.nan, np.nan, -5 / 13])
    assert np.isnan(probe.cosines(rows, torch.zeros(3))).all()
