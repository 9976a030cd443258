"""The loss's formulas: against autograd, at their limits, and with broken cells (FAULTS 8, 21)."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from learner import nft

BETA = 0.3


def drawn(seed: int, cells: int = 5) -> dict[str, Tensor]:
    """v, v_old, x0, x_t and sigma of some cells in float64."""
    draws = torch.Generator().manual_seed(seed)
    shape = (cells, 2, 3, 3)
    v, v_old, x0, noise = (torch.randn(shape, generator=draws, dtype=torch.float64) for _ in range(4))
    sigma = torch.rand(cells, generator=draws, dtype=torch.float64) * 0.98 + 0.02
    return {"v": v, "v_old": v_old, "x0": x0, "x_t": nft.noised(x0, noise, sigma), "sigma_M": sigma}


def written_out(v: Tensor, v_old: Tensor, x0: Tensor, x_t: Tensor, sigma_M: Tensor) -> tuple[Tensor, Tensor]:
    """L⁺ and L⁻ as PAPER 1 has them, with w± detached."""
    t = sigma_M[:, None, None, None]
    losses = []
    for v_pm in (BETA * v + (1 - BETA) * v_old, (1 + BETA) * v_old - BETA * v):
        x0_hat = x_t - t * v_pm
        weight = (x0_hat - x0).abs().mean((1, 2, 3)).clamp_min(1e-5).detach()
        losses.append((x0_hat - x0).square().mean((1, 2, 3)) / weight)
    return losses[0], losses[1]


@pytest.mark.parametrize("seed", range(5))
def test_losses_and_closed_cotangents_equal_autograd(seed: int) -> None:
    inputs = drawn(seed)
    inputs["v"].requires_grad_(True)
    plus, minus = written_out(**inputs)
    pair = nft.loss_pair(**inputs, beta=BETA)
    torch.testing.assert_close(pair.sum_M, (plus + minus).detach())
    torch.testing.assert_close(pair.difference_M, (plus - minus).detach())
    (of_sum,) = torch.autograd.grad((plus + minus).sum(), inputs["v"], retain_graph=True)
    (of_difference,) = torch.autograd.grad((plus - minus).sum(), inputs["v"])
    torch.testing.assert_close(pair.sum_cotangent, of_sum)
    torch.testing.assert_close(pair.difference_cotangent, of_difference)
    assert not pair.sum_M.requires_grad


def test_on_policy_the_sum_has_no_gradient_at_all() -> None:
    """DESIGN 4: when θ = θ_old, ∂S = 0; exactly, also in float32."""
    inputs = {name: value.float() for name, value in drawn(1).items()}
    pair = nft.loss_pair(**{**inputs, "v_old": inputs["v"]}, beta=BETA)
    assert not pair.sum_cotangent.any()
    assert not pair.difference_M.any()
    assert pair.difference_cotangent.abs().max() > 0


def test_the_positive_branch_pulls_towards_the_target() -> None:
    """Following −∂L⁺ brings v_θ nearer to ε − x0, following −∂L⁻ takes it away."""
    inputs = drawn(2)
    target = (inputs["x_t"] - inputs["x0"]) / inputs["sigma_M"][:, None, None, None]
    pair = nft.loss_pair(**{**inputs, "v_old": inputs["v"]}, beta=BETA)
    towards = (target - inputs["v"]).flatten(1)
    plus = (pair.sum_cotangent + pair.difference_cotangent).flatten(1) / 2
    assert ((-plus * towards).sum(1) > 0).all()
    assert ((plus * towards).sum(1) < 0).all()


def test_a_perfect_prediction_does_not_divide_by_zero() -> None:
    inputs = drawn(3)
    target = (inputs["x_t"] - inputs["x0"]) / inputs["sigma_M"][:, None, None, None]
    pair = nft.loss_pair(target, target, inputs["x0"], inputs["x_t"], inputs["sigma_M"], BETA)
    assert pair.sum_M.abs().max() < 1e-9
    assert torch.isfinite(pair.difference_cotangent).all()


@pytest.mark.parametrize(
    ("advantage", "expected"),
    [(0.0, 0.5), (2.5, 0.75), (-2.5, 0.25), (5.0, 1.0), (1e9, 1.0), (-1e9, 0.0), (math.inf, 1.0)],
)
def test_acceptance(advantage: float, expected: float) -> None:
    """FAULTS 21: an absurd advantage counts as A_max."""
    assert float(nft.acceptance(torch.tensor(advantage), 5.0)) == expected


@settings(deadline=None)  # a busy machine is no failure
@given(st.floats(-1e30, 1e30), st.floats(0.1, 100))
def test_acceptance_is_a_probability(advantage: float, a_max: float) -> None:
    assert 0 <= float(nft.acceptance(torch.tensor(advantage, dtype=torch.float64), a_max)) <= 1


def test_weights_select_and_never_multiply() -> None:
    """FAULTS 8: a broken cell of weight 0 leaves no trace; with weight it is seen."""
    inputs = drawn(4)
    clean = nft.loss_pair(**inputs, beta=BETA)
    inputs["v"][1] = float("nan")
    inputs["v"][3] = float("inf")
    pair = nft.loss_pair(**inputs, beta=BETA)
    sums, differences = (
        torch.tensor([0.2, 0.0, 0.1, 0.0, 0.3]).double(),
        torch.tensor([0.1, 0.0, 0.0, 0.0, -0.3]).double(),
    )
    loss, cotangent = nft.weighted(pair, sums, differences)
    expected_loss, expected = nft.weighted(clean, sums, differences)
    assert torch.equal(loss, expected_loss)
    assert torch.equal(cotangent, expected)
    assert not torch.isfinite(nft.weighted(pair, sums + 1, differences)[0])


def reward_inputs() -> tuple[Tensor, Tensor, Tensor]:
    advantages = torch.tensor(
        [[1.0, -2.0, math.nan, 9.0], [math.nan, math.nan, math.nan, math.nan], [0.5, 0.0, -99.0, 3.0]]
    )
    signal = torch.isfinite(advantages)
    return nft.acceptance(advantages, 5.0), signal, signal.sum(1).float()


def test_reward_weights_are_the_formula() -> None:
    """g_k = (A_max/β) 1/(n_k T) Σ m_ki [r_ki ∇L⁺ + (1 − r_ki) ∇L⁻], with S = L⁺ + L⁻ and D = L⁺ − L⁻."""
    acceptance, signal, counts = reward_inputs()
    sums, differences = nft.reward_weights(acceptance, signal, counts, 2, 5.0, BETA)
    plus, minus = sums + differences, sums - differences
    for k in range(3):
        for i in range(4):
            m, n, r = bool(signal[k, i]), max(float(counts[k]), 1.0), float(acceptance[k, i])
            scale = 5.0 / BETA / (n * 2)
            assert float(plus[k, i]) == pytest.approx(scale * r if m else 0.0)
            assert float(minus[k, i]) == pytest.approx(scale * (1 - r) if m else 0.0)
    assert torch.isfinite(sums).all()
    assert torch.isfinite(differences).all()


def test_mixed_weights_are_p_and_q() -> None:
    """DESIGN 4: P_i = Σ a_k m_ki r_ki/n_k and Q_i = Σ a_k m_ki (1 − r_ki)/n_k."""
    acceptance, signal, counts = reward_inputs()
    coefficients = torch.tensor([0.7, 0.0, 2.0])
    sums, differences = nft.mixed_weights(nft.reward_weights(acceptance, signal, counts, 2, 5.0, BETA), coefficients)
    r, m = torch.where(signal, acceptance, 0.0), signal.float()
    scaled = coefficients / counts.clamp_min(1)
    p, q = scaled @ (m * r), scaled @ (m * (1 - r))
    torch.testing.assert_close(sums + differences, p * 5.0 / BETA / 2)
    torch.testing.assert_close(sums - differences, q * 5.0 / BETA / 2)


def test_kl_and_its_gradient() -> None:
    inputs = drawn(6)
    v, v_ref = inputs["v"].requires_grad_(True), inputs["v_old"]
    mean = (v - v_ref).square().mean()
    torch.testing.assert_close(nft.kl_divergence(v, v_ref).mean(), mean.detach())
    torch.testing.assert_close(nft.kl_cotangent(v, v_ref, len(v)), torch.autograd.grad(mean, v)[0])


def test_noising_ends_at_the_latents_and_at_the_noise() -> None:
    x0, noise = torch.zeros(2, 1, 1, 1), torch.ones(2, 1, 1, 1)
    assert nft.noised(x0, noise, torch.tensor([0.0, 1.0])).flatten().tolist() == [0.0, 1.0]
