"""The weighted-sum baseline and stages, on a learner (DESIGN 7; FAULTS 5)."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harmonizer.config import HarmonizerConfig
from harmonizer.harmonizer import Harmonizer
from learner.adapters import hash_tensors
from learner.config import SamplingConfig
from learner.learner import Learner
from learner.objective import weighted_mean
from tests.unit.learner.batches import (
    NUM_SAMPLES,
    REWARDS,
    SEED,
    harmonizer,
    learner_config,
    make_batch,
    make_learner,
    policy_config,
    randomize,
)
from tests.unit.learner.probes import watched

WEIGHTS = {"clip": 3.0, "ocr": 1.0, "geneval": 0.1}
STAGES = [{"rewards": ["clip", "geneval"], "iterations": 2}, {"rewards": ["ocr"], "iterations": 2}]


def plain(names: tuple[str, ...] = ("weighted_sum",)) -> Harmonizer:
    return Harmonizer(names, HarmonizerConfig(method="weighted_gradients", refresh={"policy": "never"}))


def summing(folder: Path, **changes: Any) -> Learner:
    return make_learner(folder, balance=plain(), objective="weighted_sum", **changes)


def fingerprint(learner: Learner) -> dict[str, str]:
    return {group: hash_tensors(tensors) for group, tensors in learner.state()[0].items()}


def test_a_weighted_sum_is_nft_on_the_mean_alone(tiny_folder: Path) -> None:
    """Bit for bit what a run of one reward does whose scorer returns the mean."""
    learner = summing(tiny_folder, weights=WEIGHTS)
    alone = Learner(
        policy_config(tiny_folder), SamplingConfig(steps=5), learner_config(), ("r",), NUM_SAMPLES, SEED, plain(("r",))
    )
    for iteration in range(2):
        batch = make_batch(learner, iteration)
        mean_N, states_N = weighted_mean(batch.scores_KN, batch.states_KN, np.array(list(WEIGHTS.values())))
        report = learner.train(batch)
        other = alone.train(make_batch(alone, iteration, scores_KN=mean_N[None], states_KN=states_N[None]))
        assert report.default_hash == other.default_hash
        assert report.weighted_mean is not None
        np.testing.assert_array_equal(report.weighted_mean.scores_N, mean_N)
        np.testing.assert_array_equal(report.weighted_mean.states_N, states_N)
        np.testing.assert_array_equal(report.weighted_mean.advantages_N, other.advantages_KN[0])
        assert report.advantages_KN.shape == (len(REWARDS), NUM_SAMPLES), "each reward's own stand there too"
        assert [step.solved for step in report.steps] == [False, False]
        assert [step.coefficients_K.tolist() for step in report.steps] == [[1.0], [1.0]]


def test_a_stage_trains_its_rewards_only(tiny_folder: Path) -> None:
    """Whatever the others score, they do not move the step; in the next stage they do."""
    one, other = (make_learner(tiny_folder, stages=STAGES) for _ in range(2))
    for iteration in range(3):
        batch = make_batch(other, iteration)
        scores_KN, states_KN = batch.scores_KN.copy(), batch.states_KN.copy()
        scores_KN[1], states_KN[1] = np.linspace(-1, 1, NUM_SAMPLES), 0
        mine = one.train(make_batch(one, iteration))
        theirs = other.train(make_batch(other, iteration, scores_KN=scores_KN, states_KN=states_KN))
        assert (mine.default_hash == theirs.default_hash) == (iteration < 2)
        in_stage = [True, False, True] if iteration < 2 else [False, True, False]
        for step in mine.steps:
            assert not step.weights_K[~np.array(in_stage)].any()


def test_what_goes_from_stage_to_stage_and_what_starts_anew(tiny_folder: Path) -> None:
    balance = harmonizer()
    learner = make_learner(tiny_folder, balance=balance, stages=STAGES)
    for iteration in range(2):
        learner.train(make_batch(learner, iteration))
    before = learner.state()[0]
    shares = balance.state_dict()["ema"]
    assert shares[0] is not None
    assert shares[1] is None
    seen, patch = watched(learner)
    with patch:
        report = learner.train(make_batch(learner, 2))
    assert report.steps[0].step == 4, "steps are counted through"
    assert [step.solved for step in report.steps] == [True, False], "nothing is remembered to go by"
    assert report.eta == pytest.approx(0.002), "two steps of this stage"
    assert balance.state_dict()["ema"][0] is None
    _, state = learner.state()
    assert state["stage_began"] == 4
    counts = {float(value) for key, value in learner.state()[0]["optimizer"].items() if key.startswith("step.")}
    assert counts == {2.0}
    # The EMA of the weights went on from where it was: one more decayed step moves it by a tenth at most.
    moved = [(learner.state()[0]["ema"][key] - value).norm() for key, value in before["ema"].items()]
    steps = [(learner.state()[0]["default"][key] - value).norm() for key, value in before["ema"].items()]
    assert 0 < sum(moved) < sum(steps)
    assert len(seen.gradients) == 2


@pytest.mark.parametrize("summed", [False, True])
def test_row_5_stages_resume_bit_for_bit_across_their_borders(tiny_folder: Path, summed: bool) -> None:
    """Saved before, at and after the border, taken up by a fresh learner, trained to the end."""

    def fresh() -> tuple[Learner, Harmonizer]:
        balance = plain() if summed else harmonizer()
        settings = {"objective": "weighted_sum"} if summed else {}
        return make_learner(tiny_folder, balance=balance, stages=STAGES, probe_every=3, **settings), balance

    straight, balance = fresh()
    randomize(straight, slots=("default",))
    saved = {}
    for iteration in range(4):
        saved[iteration] = (*straight.state(), balance.state_dict())
        straight.train(make_batch(straight, iteration))
    for iteration in (1, 2, 3):
        learner, again = fresh()
        tensors, state, remembered = saved[iteration]
        learner.load_state(tensors, state)
        again.load_state_dict(remembered)
        for later in range(iteration, 4):
            learner.train(make_batch(learner, later))
        assert fingerprint(learner) == fingerprint(straight)
        assert again.state_dict() == balance.state_dict()
        assert learner.state()[1] == straight.state()[1]


def test_failed_cells_mask_the_sample_in_the_gradient(tiny_folder: Path) -> None:
    """FAULTS 8: without the sample is the same as with it failed in one reward."""
    gradients = []
    for spoiled in (2, 1):
        learner = summing(tiny_folder)
        batch = make_batch(learner, 0, scores_KN=np.ones((3, NUM_SAMPLES), np.float32))
        scores_KN = np.random.default_rng(3).normal(size=(3, NUM_SAMPLES)).astype(np.float32)
        states_KN = np.zeros((3, NUM_SAMPLES), np.uint8)
        # Failed in one reward, or not applicable to any.
        states_KN[1 if spoiled == 2 else slice(None), 4] = spoiled
        scores_KN[states_KN != 0] = np.nan
        seen, patch = watched(learner)
        with patch:
            learner.train(make_batch(learner, 0, scores_KN=scores_KN, states_KN=states_KN, group_ids=batch.group_ids))
        gradients.append(seen.gradients[0])
    torch.testing.assert_close(gradients[0], gradients[1], rtol=0, atol=0)
