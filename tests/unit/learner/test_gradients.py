"""Gradients of K rewards: the formula under autograd, splits, masks and clamps (FAULTS 8, 13, 15, 18, 21)."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from harmonizer.harmonizer import AmortizedWeights
from learner import adapters
from learner.forward import trained_layers
from learner.gradients import combined, gramian, reward_gradients
from learner.learner import Learner
from learner.policy import TextEmbeddings
from learner.train_step import Update
from tests.unit.learner.batches import GROUP_SIZE, NUM_SAMPLES, REWARDS, make_batch, make_learner, randomize, scores
from tests.unit.learner.probes import gradient, kl_row, solved, update_of
from tests.unit.learner.test_nft import written_out

CLAMPING = {"advantage": {"max": 0.8}, "nft_beta": 0.3}


@pytest.fixture
def learner(tiny_folder: Path) -> Learner:
    """θ ≠ θ_old, lora_B random, alpha / rank ≠ 1, some advantages clamped."""
    made = make_learner(tiny_folder, **CLAMPING)
    randomize(made)
    return made


def apart(learner: Learner, update: Update) -> Tensor:
    """[K + 1, P] g_k and ∇KL."""
    found = reward_gradients(
        learner._step.forward.outcomes(update.batches, update.on_policy, update.num_cells),
        trained_layers(learner.policy),
        learner._step.weights(update.signal),
        True,
        update.num_cells,
        learner.ranks,
    )
    return torch.cat([found.gradients_KP, kl_row(found)[None]])


def relative_error(found: Tensor, expected: Tensor) -> float:
    """Largest over rows."""
    return float(((found - expected).norm(dim=-1) / expected.norm(dim=-1).clamp_min(1e-12)).max())


def by_the_formula(learner: Learner, update: Update) -> Tensor:
    """[K + 1, P] from ∇ of (A_max/β) 1/(n_k T) Σ m_ki [r_ki L⁺ + (1 − r_ki) L⁻] (DESIGN 4) and of the mean KL."""
    policy, signal = learner.policy, update.signal
    losses = [torch.zeros(()) for _ in REWARDS]
    kl = torch.zeros(())
    for cells in update.batches:
        with torch.no_grad():
            with adapters.using(policy.transformer, "old"):
                v_old = policy.velocity(cells.x_t, cells.sigma_M, cells.text)
            with adapters.using(policy.transformer, None):
                v_ref = policy.velocity(cells.x_t, cells.sigma_M, cells.text)
        v = policy.velocity(cells.x_t, cells.sigma_M, cells.text)
        plus, minus = written_out(v, v_old, cells.x0, cells.x_t, cells.sigma_M)
        for k in range(len(REWARDS)):
            keep = signal.signal_KN[k][cells.samples_M]
            r = signal.acceptance_KN[k][cells.samples_M][keep]
            scale = learner.config.advantage.max / learner.config.nft_beta
            scale /= max(int(signal.counts_K[k]), 1) * learner.config.timesteps
            losses[k] = losses[k] + scale * (r * plus[keep] + (1 - r) * minus[keep]).sum()
        kl = kl + (v - v_ref).square().mean((1, 2, 3)).sum() / update.num_cells
    parameters = list(learner._optimizer.parameters.values())
    rows = [torch.autograd.grad(loss, parameters, retain_graph=True) for loss in (*losses, kl)]
    return torch.stack([torch.cat([part.flatten() for part in row]) for row in rows])


def test_k_gradients_are_the_formula(learner: Learner) -> None:
    """With masks, and cells on both sides of the clamp."""
    update = update_of(learner, make_batch(learner, 0))
    r = update.signal.acceptance_KN[update.signal.signal_KN]
    assert 0 < int((r == 1).sum()) + int((r == 0).sum()) < len(r)
    assert not update.signal.signal_KN.all()
    assert relative_error(apart(learner, update), by_the_formula(learner, update)) < 1e-5


@pytest.mark.parametrize("micro_batch_size", [1, 5, 100])
def test_any_split_into_micro_batches_gives_the_same(
    micro_batch_size: int, learner: Learner, tiny_folder: Path
) -> None:
    """FAULTS 15."""
    other = make_learner(tiny_folder, micro_batch_size=micro_batch_size, **CLAMPING)
    randomize(other)
    expected = apart(learner, update_of(learner, make_batch(learner, 0)))
    found = apart(other, update_of(other, make_batch(other, 0)))
    assert relative_error(found, expected) < 1e-5


@pytest.mark.parametrize("micro_batch_size", [1, 5, 100])
def test_kl_on_a_share_of_the_cells(
    micro_batch_size: int, learner: Learner, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference runs on 7 of 24 cells, whatever the split, each weighed up by 24/7; g_k are untouched. The 7 stand
    first, so that no more micro-batches than needed have any."""
    other = make_learner(tiny_folder, kl_fraction=0.3, micro_batch_size=micro_batch_size, **CLAMPING)
    randomize(other)
    whole, update = (update_of(made, make_batch(made, 0)) for made in (learner, other))
    weights = torch.cat([cells.kl_weight_M for cells in update.batches])
    assert weights.tolist() == pytest.approx([24 / 7] * 7 + [0.0] * 17)
    rows: list[int] = []
    velocity = other.policy.velocity
    monkeypatch.setattr(
        other.policy,
        "velocity",
        lambda x, *rest: (
            rows.append(len(x) if adapters.active(other.policy.transformer) is None else 0),
            velocity(x, *rest),
        )[1],
    )
    found = apart(other, update)
    assert sum(rows) == 7
    assert relative_error(found[:-1], apart(learner, whole)[:-1]) < 1e-5
    expected = sum(weights[i] * kl_of_one_cell(other, update, i) for i in weights.nonzero().flatten().tolist())
    assert isinstance(expected, Tensor)
    assert relative_error(found[-1], expected) < 1e-5


def kl_of_one_cell(learner: Learner, update: Update, index: int) -> Tensor:
    """[P] ∇ of one cell's mean (v_θ − v_ref)², divided by the number of cells."""
    x_t, sigma = (torch.cat([getattr(cells, name) for cells in update.batches]) for name in ("x_t", "sigma_M"))
    text = TextEmbeddings.cat([cells.text for cells in update.batches]).rows(torch.tensor([index]))
    inputs = (x_t[index : index + 1], sigma[index : index + 1], text)
    with torch.no_grad(), adapters.using(learner.policy.transformer, None):
        v_ref = learner.policy.velocity(*inputs)
    loss = (learner.policy.velocity(*inputs) - v_ref).square().mean() / update.num_cells
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(learner._optimizer.parameters.values()))])


@pytest.mark.parametrize("reach", ["masked", "one-group", "dead", "clamped"])
def test_the_amortised_step_is_the_solving_step(reach: str, learner: Learner) -> None:
    """DESIGN 4: for every mask and clamp, which the paper's mixed advantage is not."""
    values_KN, states_KN = scores(0)
    if reach == "one-group":
        states_KN[1, GROUP_SIZE:] = 1
    elif reach == "dead":
        states_KN[1] = 2
    elif reach == "clamped":
        values_KN[0, 3] += 1e6
    update = update_of(learner, make_batch(learner, 0, scores_KN=values_KN, states_KN=states_KN))
    direction, expected = solved(learner, update)
    assert direction.solution is not None
    assert direction.active_K.tolist() == [True, reach != "dead", True]
    weights = AmortizedWeights(direction.coefficients_K, direction.weights_K, direction.active_K, direction.mean_norm)
    learner._optimizer.clear()
    amortized = learner._step._amortized(update, weights)
    found = gradient(learner)
    cosine = float(torch.nn.functional.cosine_similarity(found.double(), expected.double(), dim=0))
    assert cosine >= 0.99999
    assert float(found.norm() / expected.norm()) == pytest.approx(1, abs=1e-4)
    assert amortized.loss == pytest.approx(direction.loss, rel=1e-6)
    assert amortized.kl == pytest.approx(direction.kl, rel=1e-6)


def test_the_plain_mean_of_advantages_would_not_be_it(learner: Learner) -> None:
    """Why there are P_i and Q_i: Ā = Σ a_k A_k with masked cells as 0 is another step when masks and clamps bite."""
    update = update_of(learner, make_batch(learner, 0))
    direction, expected = solved(learner, update)
    signal = update.signal
    a_max = learner.config.advantage.max
    clamped = torch.where(signal.signal_KN, (signal.acceptance_KN - 0.5) * 2 * a_max, 0.0)
    shares = torch.tensor(direction.coefficients_K, dtype=torch.float32)
    mixed = (0.5 + (shares @ clamped) / (2 * a_max)).clamp(0, 1)[None]
    naive = Update(
        update.step,
        update.iteration,
        update.batches,
        update.num_cells,
        type(signal)(mixed, torch.ones_like(mixed, dtype=torch.bool), np.array([NUM_SAMPLES])),
        False,
    )
    found = apart(learner, naive)[0]
    cosine = float(torch.nn.functional.cosine_similarity(found.double(), expected.double(), dim=0))
    assert cosine < 0.999


def test_on_policy_the_old_forward_can_be_saved(tiny_folder: Path) -> None:
    learner = make_learner(tiny_folder)
    randomize(learner, slots=("default",))
    adapters.write(learner.policy.transformer, "old", adapters.read(learner.policy.transformer, "default"))
    learner._old.publish(adapters.read(learner.policy.transformer, "old"))
    learner._loaded_old = learner._old.current.hash
    batch = make_batch(learner, 0)
    with_old = apart(learner, update_of(learner, batch, on_policy=False))
    without = apart(learner, update_of(learner, batch, on_policy=True))
    assert relative_error(without, with_old) < 1e-6


def test_one_failed_cell_changes_no_bit_of_other_rewards(learner: Learner) -> None:
    """FAULTS 8."""
    values_KN, states_KN = scores(0, 0.0)
    whole = apart(learner, update_of(learner, make_batch(learner, 0, scores_KN=values_KN, states_KN=states_KN)))
    values_KN[1, 5], states_KN[1, 5] = np.nan, 2
    holed = apart(learner, update_of(learner, make_batch(learner, 0, scores_KN=values_KN, states_KN=states_KN)))
    assert torch.equal(whole[[0, 2, 3]], holed[[0, 2, 3]])
    assert torch.isfinite(holed[1]).all()
    assert not torch.equal(whole[1], holed[1])


def test_rescaling_a_reward_leaves_its_gradient(learner: Learner) -> None:
    """FAULTS 18: a reward's scale buys it nothing."""
    values_KN, states_KN = scores(0)
    plain = apart(learner, update_of(learner, make_batch(learner, 0)))
    values_KN[0] = values_KN[0] * 1000 + 7
    moved = apart(learner, update_of(learner, make_batch(learner, 0, scores_KN=values_KN, states_KN=states_KN)))
    assert relative_error(moved, plain) < 1e-3  # float32 scores near 7 have lost digits
    assert torch.equal(moved[1:], plain[1:])


def test_an_absurd_advantage_is_bounded(learner: Learner) -> None:
    """FAULTS 21: no cell weighs more than r = 0 or r = 1 does."""
    values_KN, states_KN = scores(0, 0.0)
    values_KN[2, 0] = 1e6
    update = update_of(learner, make_batch(learner, 0, scores_KN=values_KN, states_KN=states_KN))
    sums, differences = learner._step.weights(update.signal)
    most = learner.config.advantage.max / learner.config.nft_beta / (2 * NUM_SAMPLES * learner.config.timesteps)
    assert float(sums.max()) <= most * (1 + 1e-6)
    assert float(differences.abs().max()) <= most * (1 + 1e-6)


def test_gradient_checkpointing_gives_the_same(learner: Learner, tiny_folder: Path) -> None:
    other = make_learner(tiny_folder, gradient_checkpointing=True, micro_batch_size=7, **CLAMPING)
    randomize(other)
    assert other.policy.pipeline().transformer.gradient_checkpointing
    expected = apart(learner, update_of(learner, make_batch(learner, 0)))
    assert relative_error(apart(other, update_of(other, make_batch(other, 0))), expected) < 1e-5


@pytest.mark.parametrize("how", ["autocast", "base"])
def test_bfloat16_is_near(how: str, learner: Learner, tiny_folder: Path) -> None:
    """LoRA, losses and sums stay float32; velocities carry three digits."""
    changes = {"autocast": "bfloat16"} if how == "autocast" else {"policy": {"dtype": "bfloat16"}}
    other = make_learner(tiny_folder, **changes, **CLAMPING)
    randomize(other)
    expected = apart(learner, update_of(learner, make_batch(learner, 0)))
    found = apart(other, update_of(other, make_batch(other, 0)))
    assert found.dtype == torch.float32
    assert relative_error(found, expected) < 0.15


def test_gramian_is_summed_in_float64_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    gradients = torch.randn(3, 1000, generator=torch.Generator().manual_seed(0))
    gradients[1] *= 1e-6
    exact = gradients.double() @ gradients.double().T
    np.testing.assert_allclose(gramian(gradients), exact.numpy(), rtol=1e-12)
    monkeypatch.setattr("learner.gradients.GRAM_CHUNK", 64)
    np.testing.assert_allclose(gramian(gradients), exact.numpy(), rtol=1e-12)


def test_combining_reads_no_row_of_weight_zero() -> None:
    gradients = torch.tensor([[1.0, 2.0], [float("nan"), 1.0], [3.0, 0.0]])
    assert combined(gradients, np.array([2.0, 0.0, -1.0])).tolist() == [-1.0, 4.0]
    assert combined(gradients, np.zeros(3)).tolist() == [0.0, 0.0]
