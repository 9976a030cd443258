"""Flow-GRPO's loss: by hand, against autograd, and through the whole step (FAULTS 15, 17, 21)."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from learner import adapters
from learner.advantages import advantages
from learner.algorithm import TrajectoryBatch, algorithm
from learner.config import AdvantageConfig, LearnerConfig, SamplingConfig, SdeConfig
from learner.errors import UserError
from learner.flow_grpo import StepCells, kl_scale, score, surrogate_pair, surrogate_weights
from learner.forward import trained_layers
from learner.gradients import reward_gradients
from learner.k_pass import k_pass_gradients
from learner.learner import Learner
from learner.nft import acceptance, mixed_weights, weighted
from learner.sde import Transitions, log_density
from learner.train_step import Update
from learner.types import TrainBatch
from tests.unit.learner.batches import NUM_SAMPLES, REWARDS, randomize
from tests.unit.learner.grpo_batches import NOISE_LEVEL, drawn, make_batch, make_learner, sampling
from tests.unit.learner.probes import gradient

GUIDED = sampling(guidance_scale=2.5)


def draws(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def steps_of(std: list[float], from_v: list[float]) -> Transitions:
    return Transitions(torch.ones(len(std)), torch.tensor(from_v), torch.tensor(std))


# -- formulas ---------------------------------------------------------------------------------------------------------


def test_clipping_by_hand() -> None:
    """c = 0.05 and |A| = 2: (ρ, A) → loss −A clipped and whether the gradient −A ρ ∇log p is there."""
    ratio_M, ones = torch.tensor([0.9, 1.0, 1.1]), torch.ones(3, 1, 1, 1)
    pair = surrogate_pair(ratio_M, 0.05, ones)
    for advantage, losses, slopes in (
        (2.0, [-1.8, -2.0, -2.1], [-1.8, -2.0, 0.0]),
        (-2.0, [1.9, 2.0, 2.2], [0.0, 2.0, 2.2]),
        (0.0, [0.0] * 3, [0.0] * 3),
    ):
        for cell in range(3):
            at = torch.arange(3) == cell
            sums, differences = (torch.where(at, value, 0.0) for value in (abs(advantage) / 2, advantage / 2))
            loss, cotangent = weighted(pair, sums, differences)
            assert float(loss) == pytest.approx(losses[cell])
            assert cotangent.flatten().tolist() == pytest.approx([slopes[cell] if i == cell else 0.0 for i in range(3)])


def test_the_pair_is_autograds_clipped_surrogate() -> None:
    """max(−A ρ, −A clip(ρ)) of cells on both sides of both bounds, A of both signs."""
    shape, std_M, count = (60, 2, 3, 3), 0.4 + draws(60).abs(), 60
    steps = Transitions(torch.ones(count), -0.1 - draws(count, seed=1).abs(), std_M)
    x, following, v = draws(*shape, seed=2), draws(*shape, seed=3), draws(*shape, seed=4).requires_grad_()
    advantage_M = draws(count, seed=5)
    mean = steps.mean(x, v)
    normal = torch.distributions.Normal(mean, std_M[:, None, None, None])
    log_p_M = normal.log_prob(following).mean((1, 2, 3))
    old_M = log_p_M.detach() + 0.1 * draws(count, seed=6)
    ratio_M = (log_p_M - old_M).exp()
    clipped_M = ratio_M.clamp(0.95, 1.05)
    assert 10 < int((clipped_M != ratio_M).sum()) < 50
    expected = torch.maximum(-advantage_M * ratio_M, -advantage_M * clipped_M).sum()
    expected.backward()
    pair = surrogate_pair(ratio_M.detach(), 0.05, score(following, mean.detach(), steps))
    loss, cotangent = weighted(pair, advantage_M.abs() / 2, advantage_M / 2)
    assert float(loss) == pytest.approx(float(expected.detach()), rel=1e-5)
    assert v.grad is not None
    torch.testing.assert_close(cotangent, v.grad)


def test_on_policy_the_sum_has_no_gradient() -> None:
    """ρ = 1: so K rewards take one backward pass, and −A ∇log p is what is left."""
    pair = surrogate_pair(torch.ones(3), 1e-4, draws(3, 2, 2, 2))
    assert not pair.sum_cotangent.any()
    assert torch.equal(pair.difference_cotangent, -2 * draws(3, 2, 2, 2))
    assert pair.difference_M.tolist() == [-2.0] * 3


def test_weights_of_a_reward_by_hand() -> None:
    """m/(n T) (|A|/2, A/2): T = 4, n = 2, 1 and 0; A clipped to ±5; without signal nothing."""
    advantages_KN = torch.tensor([[1.5, -7.0, float("nan")], [float("nan"), 2.0, 1.0], [1.0, 1.0, 1.0]])
    signal_KN = torch.tensor([[True, True, False], [False, True, False], [False, False, False]])
    sums, differences = surrogate_weights(
        acceptance(advantages_KN, 5.0), signal_KN, torch.tensor([2.0, 1.0, 0.0]), 4, 5.0
    )
    expected = torch.tensor([[0.75 / 8, -2.5 / 8, 0.0], [0.0, 1.0 / 4, 0.0], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(differences, expected)
    torch.testing.assert_close(sums, expected.abs())


def test_kl_in_closed_form() -> None:
    """Against torch's KL of two Gaussians, and against a Monte Carlo mean of log p_θ − log p_ref."""
    steps = steps_of([0.3, 0.8], [-0.2, -0.5])
    x, v, v_ref = draws(2, 1, 4, 4), draws(2, 1, 4, 4, seed=1), draws(2, 1, 4, 4, seed=2)
    found_M = kl_scale(steps) * (v - v_ref).square().mean((1, 2, 3))
    std = steps.std[:, None, None, None]
    ours, theirs = (torch.distributions.Normal(steps.mean(x, which), std) for which in (v, v_ref))
    torch.testing.assert_close(found_M, torch.distributions.kl_divergence(ours, theirs).mean((1, 2, 3)))
    samples = steps.mean(x, v) + std * draws(4000, 2, 1, 4, 4, seed=3)
    each = (ours.log_prob(samples) - theirs.log_prob(samples)).mean((2, 3, 4))
    assert ((each.mean(0) - found_M).abs() < 5 * each.std(0) / 4000**0.5).all()


# -- the step ---------------------------------------------------------------------------------------------------------


def update_of(learner: Learner, batch: TrainBatch, index: int = 0, on_policy: bool = True) -> tuple[Update, Tensor]:
    """What the learner would train in one update, and the advantages of all samples, clipped."""
    found, (local, published) = learner._check(batch), learner._local(batch)
    learner._load_old(published)
    cells = learner._algorithm.cells(local, learner._schedule, index)
    num_cells = NUM_SAMPLES * learner.config.timesteps
    update = Update(0, batch.iteration, cells, num_cells, learner._signals.trained(found, batch.iteration), on_policy)
    clipped = found.advantages_KN.clip(-learner.config.advantage.max, learner.config.advantage.max)
    return update, torch.from_numpy(np.where(found.signal_KN, clipped, 0.0)).float()


def written_out(learner: Learner, update: Update, advantages_KN: Tensor, how: SamplingConfig) -> tuple[Tensor, Tensor]:
    """[K, P] gradients and [K] losses of the paper's objective by autograd, nothing of ours but the network."""
    policy, config, losses_K = learner.policy, learner.config, torch.zeros(len(REWARDS))
    parameters = list(learner._optimizer.parameters.values())
    for cells in update.batches:
        assert isinstance(cells, StepCells)
        v = policy.velocity(cells.x_t, cells.sigma_M, cells.text)
        if how.guidance_scale != 1:
            empty = policy.encode([""]).rows(torch.zeros(len(v), dtype=torch.long))
            without = policy.velocity(cells.x_t, cells.sigma_M, empty)
            v = without + how.guidance_scale * (v - without)
        normal = torch.distributions.Normal(cells.steps.mean(cells.x_t, v), cells.steps.std[:, None, None, None])
        log_p_M = normal.log_prob(cells.following).mean((1, 2, 3))
        old_M = log_p_M.detach() if update.on_policy else cells.log_density_M
        ratio_M = (log_p_M - old_M).exp()
        clipped_M = ratio_M.clamp(1 - config.clip_range, 1 + config.clip_range)
        advantages_KM = advantages_KN[:, cells.samples_M]
        each_KM = torch.maximum(-advantages_KM * ratio_M, -advantages_KM * clipped_M)
        losses_K = losses_K + (each_KM / config.timesteps).sum(1) / torch.from_numpy(update.signal.counts_K)
    rows = [torch.autograd.grad(loss, parameters, retain_graph=True) for loss in losses_K]
    return torch.stack([torch.cat([part.flatten() for part in row]) for row in rows]), losses_K.detach()


def apart(learner: Learner, update: Update) -> tuple[Tensor, Tensor]:
    """[K + 1, P] what a solving step finds, KL last, and [K] losses."""
    found = reward_gradients(
        learner._step.forward.outcomes(update.batches, update.on_policy, update.num_cells),
        trained_layers(learner.policy),
        learner._step.weights(update.signal),
        True,
        update.num_cells,
        learner.ranks,
    )
    return found.rows_RP, found.losses_K


def assert_rows_close(found: Tensor, expected: Tensor, tolerance: float = 2e-5) -> None:
    assert float(((found - expected).norm(dim=1) / expected.norm(dim=1)).max()) < tolerance


@pytest.mark.parametrize("how", [sampling(), GUIDED], ids=["plain", "guided"])
@pytest.mark.parametrize("on_policy", [True, False], ids=["on", "off"])
def test_every_rewards_gradient_is_the_papers(on_policy: bool, how: SamplingConfig, tiny_folder: Path) -> None:
    """On-policy ρ is exactly 1 and the gradient −A ∇log p; off it some cells are beyond the bounds, on either side.

    Guided, both halves of the velocity are trained.
    """
    learner = make_learner(tiny_folder, how=how, clip_range=0.005)
    randomize(learner)
    batch = make_batch(learner, 0, how)
    if on_policy:
        adapters.write(learner.policy.transformer, "default", adapters.read(learner.policy.transformer, "old"))
    update, advantages_KN = update_of(learner, batch, on_policy=on_policy)
    expected_KP, losses_K = written_out(learner, update, advantages_KN, how)
    rows_RP, found_K = apart(learner, update)
    assert_rows_close(rows_RP[:-1], expected_KP)
    torch.testing.assert_close(found_K.float(), losses_K, rtol=1e-4, atol=1e-6)
    clip_fraction, approx_kl = learner._step.forward.policy_shift(learner.ranks)
    if on_policy:
        assert (clip_fraction, approx_kl) == (0.0, 0.0)
        sums_K = (advantages_KN.sum(1) / torch.from_numpy(update.signal.counts_K)).tolist()
        assert found_K.tolist() == pytest.approx([-total for total in sums_K], abs=1e-6)
    else:
        assert 0.1 < clip_fraction < 0.9
        assert approx_kl > 1e-5
    passes = k_pass_gradients(
        learner._step.forward.outcomes(update.batches, on_policy, update.num_cells),
        list(learner._optimizer.parameters.values()),
        learner._step.weights(update.signal),
        True,
        update.num_cells,
        learner.ranks,
    )
    assert_rows_close(rows_RP[:-1], passes.gradients_KP)


def test_kl_and_its_gradient_are_the_closed_forms(tiny_folder: Path) -> None:
    learner = make_learner(tiny_folder, how=GUIDED)
    randomize(learner)
    update, _ = update_of(learner, make_batch(learner, 0, GUIDED))
    rows_RP, _ = apart(learner, update)
    policy, total = learner.policy, torch.zeros(())
    for cells in update.batches:
        assert isinstance(cells, StepCells)
        empty = policy.encode([""]).rows(torch.zeros(len(cells.x_t), dtype=torch.long))
        means = []
        for name in ("default", None):
            with adapters.using(policy.transformer, name):
                without, along = (policy.velocity(cells.x_t, cells.sigma_M, text) for text in (empty, cells.text))
            means.append(cells.steps.mean(cells.x_t, without + GUIDED.guidance_scale * (along - without)))
        std = cells.steps.std[:, None, None, None]
        ours, theirs = torch.distributions.Normal(means[0], std), torch.distributions.Normal(means[1].detach(), std)
        total = total + torch.distributions.kl_divergence(ours, theirs).mean((1, 2, 3)).sum() / update.num_cells
    parts = torch.autograd.grad(total, list(learner._optimizer.parameters.values()))
    assert_rows_close(rows_RP[-1:], torch.cat([part.flatten() for part in parts])[None])
    assert learner._step._solved(update, update.signal.counts_K > 0).kl == pytest.approx(
        float(total.detach()), rel=1e-5
    )


@pytest.mark.parametrize("how", [sampling(), GUIDED], ids=["plain", "guided"])
@pytest.mark.parametrize("on_policy", [True, False], ids=["on", "off"])
def test_one_backward_is_the_weighted_sum(on_policy: bool, how: SamplingConfig, tiny_folder: Path) -> None:
    """DESIGN 4, amortised step: equal for every mask and both bounds; and any split into micro-batches (FAULTS 15)."""
    found = []
    for micro_batch_size in (24, 5):
        learner = make_learner(tiny_folder, how=how, clip_range=0.01, micro_batch_size=micro_batch_size)
        randomize(learner)
        update, _ = update_of(learner, make_batch(learner, 0, how), on_policy=on_policy)
        rows_RP, _ = apart(learner, update)
        plan = learner._step.harmonizer.plan(0, update.signal.counts_K > 0)
        assert plan.solve
        direction = learner._step._solved(update, update.signal.counts_K > 0)
        solved = gradient(learner).clone()
        learner._optimizer.clear()
        weights = learner._step.harmonizer.plan(1, update.signal.counts_K > 0).weights
        assert weights is not None
        np.testing.assert_allclose(weights.coefficients_K, direction.coefficients_K, rtol=1e-6)
        learner._step._amortized(update, weights)
        assert_rows_close(gradient(learner)[None], solved[None])
        found.append(rows_RP)
    assert_rows_close(found[1], found[0])


def test_one_reward_takes_the_plain_gradient(tiny_folder: Path) -> None:
    """K = 1, the specialist: solving or not, the step is ∇ℓ + β_KL ∇KL."""
    learner = make_learner(tiny_folder, REWARDS[:1])
    randomize(learner)
    update, _ = update_of(learner, make_batch(learner, 0), on_policy=False)
    rows_RP, _ = apart(learner, update)
    direction = learner._step._solved(update, update.signal.counts_K > 0)
    assert direction.coefficients_K.tolist() == pytest.approx([1.0])
    expected = rows_RP[0] + learner.config.kl_beta * rows_RP[1]
    assert_rows_close(gradient(learner)[None], expected[None])


def test_the_learners_densities_are_the_rollouts(tiny_folder: Path) -> None:
    """At lr 0 the second update takes the densities that came with the rollouts, drawn in other company: ratio 1."""
    learner = make_learner(tiny_folder, lr=0.0, clip_range=1e-4)
    randomize(learner)
    adapters.write(learner.policy.transformer, "default", adapters.read(learner.policy.transformer, "old"))
    first, second = learner.train(make_batch(learner, 0)).steps
    assert (first.clip_fraction, first.approx_kl) == (0.0, 0.0)
    assert second.clip_fraction == 0.0
    assert 0 <= second.approx_kl < 1e-10


def test_an_iteration_moves_the_policy_and_publishes_it_whole(tiny_folder: Path) -> None:
    learner = make_learner(tiny_folder)
    report = learner.train(make_batch(learner, 0))
    assert report.applied
    assert report.old_hash == report.default_hash
    assert report.steps[1].approx_kl > 1e-9
    assert learner.train(make_batch(learner, 1)).steps[0].approx_kl == 0.0  # on-policy again


def test_an_absurd_advantage_is_bounded(tiny_folder: Path) -> None:
    """FAULTS 21: it counts as A_max does."""
    learner = make_learner(tiny_folder, REWARDS[:1], advantage={"max": 0.5})
    update, advantages_KN = update_of(learner, make_batch(learner, 0))
    assert float(advantages_KN.abs().max()) == 0.5
    sums, differences = learner._step.weights(update.signal)
    largest = 0.25 / (int(update.signal.counts_K[0]) * learner.config.timesteps)
    assert float(differences.abs().max()) == pytest.approx(largest)
    assert torch.equal(sums, differences.abs())


def test_a_window_trains_its_own_steps(tiny_folder: Path) -> None:
    """Flow-GRPO-Fast: cells are steps of this iteration's window, and its densities are theirs."""
    how = sampling(sde=SdeConfig(noise_level=NOISE_LEVEL, window=2, window_range=(0, 5)))
    learner = make_learner(tiny_folder, how=how, lr=0.0, updates_per_iteration=1)
    starts = set()
    for iteration in range(4):
        batch = make_batch(learner, iteration, how)
        local, _ = learner._local(batch)
        assert isinstance(local, TrajectoryBatch)
        starts.add(local.noisy.start)
        (cells,) = learner._algorithm.cells(local, learner._schedule, 0)
        assert isinstance(cells, StepCells)
        levels = learner._algorithm.sigmas_S1[local.noisy.start : local.noisy.stop]  # type: ignore[attr-defined]
        assert set(cells.sigma_M.tolist()) == set(levels.tolist())
        mean = cells.steps.mean(cells.x_t, learner.policy.velocity(cells.x_t, cells.sigma_M, cells.text).detach())
        torch.testing.assert_close(log_density(cells.following, mean, cells.steps.std), cells.log_density_M)
    assert len(starts) > 1


# -- refused ----------------------------------------------------------------------------------------------------------


def test_rollouts_without_their_steps_are_refused(tiny_folder: Path) -> None:
    """And nothing has changed: the right batch trains."""
    learner = make_learner(tiny_folder)
    batch = make_batch(learner, 0)
    part = batch.latents[1]
    assert part.trajectory is not None
    bad = {
        "1 of 3 rollouts came without their trajectory": replace(part, trajectory=None),
        r"trajectories have shape \[4, 5, 16, 4, 4\], expected \[4, 6, 16, 4, 4\]": replace(
            part, trajectory=replace(part.trajectory, x_NWChw=part.trajectory.x_NWChw[:, :-1])
        ),
        r"log densities of samples \[4, 5, 6, 7\] are not finite": replace(
            part, trajectory=replace(part.trajectory, log_densities_NW=part.trajectory.log_densities_NW * np.nan)
        ),
    }
    for message, other in bad.items():
        with pytest.raises(UserError, match=message):
            learner.train(replace(batch, latents=(batch.latents[0], other, batch.latents[2])))
    assert learner.train(batch).applied


def test_samples_drawn_twice_are_refused(tiny_folder: Path) -> None:
    learner = make_learner(tiny_folder)
    batch = make_batch(learner, 0)
    twice = drawn(learner, 0, range(4), sampling())
    with pytest.raises(UserError, match="sample 0 came 2 times"):
        learner.train(replace(batch, latents=(*batch.latents, twice)))


NO_LAG = {"old_policy": {"slope": 0.0}}


@pytest.mark.parametrize(
    ("learner", "sde", "message"),
    [
        ({"algorithm": "flow_grpo", **NO_LAG}, None, r"flow_grpo, whose rollouts need noise: set sampling\.sde"),
        ({}, SdeConfig(), "sampling.sde is for learner.algorithm: flow_grpo, got nft"),
        ({"algorithm": "flow_grpo"}, SdeConfig(), "old_policy.slope is 0.001, but flow_grpo draws with the trained"),
    ],
)
def test_what_does_not_go_together_is_refused(learner: dict[str, object], sde: SdeConfig | None, message: str) -> None:
    """FAULTS 24."""
    config = LearnerConfig.model_validate(learner)
    with pytest.raises(UserError, match=message):
        algorithm(SamplingConfig(sde=sde), config, 0, {"num_train_timesteps": 1000, "shift": 3.0})


def test_trainable_steps() -> None:
    config = LearnerConfig(timestep_fraction=1.0)
    assert config.num_trainable(SamplingConfig(steps=10)) == 10
    assert config.num_trainable(SamplingConfig(steps=10, sde=SdeConfig())) == 9
    assert config.num_trainable(SamplingConfig(steps=10, sde=SdeConfig(window=3))) == 3
    assert LearnerConfig(timestep_fraction=0.5).num_trainable(SamplingConfig(steps=10, sde=SdeConfig())) == 5


def test_advantages_are_the_shared_ones() -> None:
    """As with NFT; `max` bounds both."""
    scores = np.array([[1.0, 3.0, 5.0, 7.0]], np.float32)
    found = advantages(
        scores, np.zeros((1, 4), np.uint8), np.zeros(4, np.int64), np.array([np.nan]), AdvantageConfig(std="batch")
    )
    np.testing.assert_allclose(found.advantages_KN[0], (scores[0] - 4) / np.sqrt(5), rtol=1e-3)


def test_mixed_weights_mix_both_signs() -> None:
    """Two rewards with advantages of unlike signs on one sample: A⁺ and A⁻ add up apart, not the advantages."""
    sums, differences = torch.tensor([[1.0], [1.0]]), torch.tensor([[1.0], [-1.0]])
    mixed = mixed_weights((sums, differences), torch.tensor([0.5, 0.5]))
    assert [weight.tolist() for weight in mixed] == [[1.0], [0.0]]
    pair = surrogate_pair(torch.tensor([1.2]), 0.1, torch.ones(1, 1, 1, 1))
    loss, cotangent = weighted(pair, *mixed)
    assert float(loss) == pytest.approx(0.5 * 2 * (-1.1 + 1.2))
    assert float(cotangent) == pytest.approx(1.2)  # L⁺ is constant there, L⁻ is not
