"""DiffusionNFT's loss on rectified flow (arXiv 2509.16117), each formula once, as pure functions.

Letters: M cells, a cell being one sample at one trained timestep; C, h, w latent channels and size. "mean" without more
is over a cell's C·h·w elements, numel of them. t is the cell's noise level σ.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

MIN_WEIGHT = 1e-5
"""Lower bound of w±, so that a perfect prediction does not divide by zero."""


@dataclass(frozen=True)
class Pair:
    """L⁺ and L⁻ of M cells, as sum and difference, with what each does to v_θ.

    Near on-policy L⁺ and L⁻ almost cancel in the gradient; S and D keep what is left exact.
    """

    sum_M: Tensor
    """[M] S = L⁺ + L⁻."""
    difference_M: Tensor
    """[M] D = L⁺ − L⁻."""
    sum_cotangent: Tensor
    """[M, C, h, w] ∂S/∂v_θ; exactly 0 where v_θ = v_old."""
    difference_cotangent: Tensor
    """[M, C, h, w] ∂D/∂v_θ."""


def noised(x0: Tensor, noise: Tensor, sigma_M: Tensor) -> Tensor:
    """[M, C, h, w] x_t = (1 − t) x0 + t ε (rectified flow)."""
    t = _per_cell(sigma_M)
    return (1 - t) * x0 + t * noise


def acceptance(advantages: Tensor, a_max: float) -> Tensor:
    """r = clamp(1/2 + A / (2 A_max), 0, 1), of any shape (DiffusionNFT, optimality probability); NaN stays NaN.

    The clamp is what bounds an absurd advantage: it moves the policy as far as A_max does.
    """
    return (0.5 + advantages / (2 * a_max)).clamp(0, 1)


def residuals(v: Tensor, v_old: Tensor, x0: Tensor, x_t: Tensor, sigma_M: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """x̂0⁺ − x0 and x̂0⁻ − x0, each [M, C, h, w]; x̂0± = x_t − t v± (DiffusionNFT, eq. of v⁺ and v⁻).

    v⁺ = β v_θ + (1 − β) v_old and v⁻ = (1 + β) v_old − β v_θ are written as v_old ± β (v_θ − v_old): exactly equal when
    v_θ = v_old.
    """
    t = _per_cell(sigma_M)
    middle = x_t - t * v_old - x0
    step = t * beta * (v - v_old)
    return middle - step, middle + step


def self_weight(residual: Tensor) -> Tensor:
    """[M] w = max(mean|x̂0 − x0|, 1e-5), detached (public DiffusionNFT recipe)."""
    return residual.detach().abs().flatten(1).mean(1).clamp_min(MIN_WEIGHT)


def branch_loss(residual: Tensor, weight_M: Tensor) -> Tensor:
    """[M] L = mean((x̂0 − x0)²) / w."""
    return residual.square().flatten(1).mean(1) / weight_M


def loss_pair(v: Tensor, v_old: Tensor, x0: Tensor, x_t: Tensor, sigma_M: Tensor, beta: float) -> Pair:
    """L± of every cell and their closed derivatives in v_θ: ∂L±/∂v_θ = ∓2 t β (x̂0± − x0) / (numel w±).

    Args:
        v: v_θ [M, C, h, w]; its graph is not used.
        v_old: velocity of the policy that drew the samples.
        x0: clean latents.
        x_t: the same, noised.
        sigma_M: noise levels t.
        beta: β of v±.
    """
    plus, minus = residuals(v.detach(), v_old, x0, x_t, sigma_M, beta)
    weight_plus, weight_minus = self_weight(plus), self_weight(minus)
    loss_plus, loss_minus = branch_loss(plus, weight_plus), branch_loss(minus, weight_minus)
    slope = _per_cell(sigma_M) * (2 * beta / plus[0].numel())
    down, up = slope * plus / _per_cell(weight_plus), slope * minus / _per_cell(weight_minus)
    return Pair(loss_plus + loss_minus, loss_plus - loss_minus, up - down, -up - down)


def weighted(pair: Pair, sum_weight_M: Tensor, difference_weight_M: Tensor) -> tuple[Tensor, Tensor]:
    """Σ_M of s S + d D as a float64 scalar, and its cotangent [M, C, h, w].

    Weights select: where both are 0 the cell's own numbers are not touched, so a broken cell stays out.
    """
    used = used_cells(sum_weight_M, difference_weight_M)
    cotangent = (
        _per_cell(sum_weight_M) * pair.sum_cotangent + _per_cell(difference_weight_M) * pair.difference_cotangent
    )
    return weighted_loss(pair, sum_weight_M, difference_weight_M), torch.where(_per_cell(used), cotangent, 0.0)


def weighted_loss(pair: Pair, sum_weight_M: Tensor, difference_weight_M: Tensor) -> Tensor:
    """The first half of :func:`weighted`; [K, M] weights give [K] losses."""
    used = used_cells(sum_weight_M, difference_weight_M)
    losses_M = sum_weight_M * pair.sum_M + difference_weight_M * pair.difference_M
    return torch.where(used, losses_M, 0.0).double().sum(-1)


def used_cells(sum_weight: Tensor, difference_weight: Tensor) -> Tensor:
    """Where a cell counts, of any shape."""
    return (sum_weight != 0) | (difference_weight != 0)


def reward_weights(
    acceptance_KN: Tensor, signal_KN: Tensor, counts_K: Tensor, num_timesteps: int, a_max: float, beta: float
) -> tuple[Tensor, Tensor]:
    """[K, N] weights of S and D in g_k: (A_max/β) m_ki / (n_k T) times ½ and (r_ki − ½) (DESIGN 4, per-reward g_k).

    Args:
        acceptance_KN: r_ki; may be NaN where there is no signal.
        signal_KN: m_ki.
        counts_K: n_k over all ranks; 0 gives weights 0.
        num_timesteps: T.
        a_max: A_max.
        beta: β.
    """
    scale_K1 = (a_max / (beta * num_timesteps) / counts_K.clamp_min(1))[:, None]
    zero = torch.zeros_like(acceptance_KN)
    return (
        torch.where(signal_KN, 0.5 * scale_K1, zero),
        torch.where(signal_KN, (acceptance_KN - 0.5) * scale_K1, zero),
    )


def number_of_rewards(weights_KN: tuple[Tensor, Tensor]) -> int:
    """K of weights of S and D.

    Raises:
        ValueError: not two of one shape [K, N], or none.
    """
    shapes = [list(weights.shape) for weights in weights_KN]
    if shapes[0] != shapes[1] or len(shapes[0]) != 2 or not shapes[0][0]:
        raise ValueError(f"weights must be two of shape [K, N] with K ≥ 1, got {shapes[0]} and {shapes[1]}")
    return int(shapes[0][0])


def mixed_weights(weights_KN: tuple[Tensor, Tensor], coefficients_K: Tensor) -> tuple[Tensor, Tensor]:
    """[N] weights of S and D in Σ_k a_k g_k, all K rewards in one backward (DESIGN 4, amortised step).

    With P_i = Σ_k a_k m_ki r_ki/n_k and Q_i = Σ_k a_k m_ki (1 − r_ki)/n_k these are (A_max/β)/T times (P_i + Q_i)/2 and
    (P_i − Q_i)/2, which is P_i L⁺ + Q_i L⁻.

    Raises:
        ValueError: coefficients for another number of rewards.
    """
    sums_KN, differences_KN = weights_KN
    if coefficients_K.shape != sums_KN.shape[:1]:
        raise ValueError(f"coefficients must be [{len(sums_KN)}], one per reward, got {list(coefficients_K.shape)}")
    return coefficients_K @ sums_KN, coefficients_K @ differences_KN


def kl_divergence(v: Tensor, v_ref: Tensor) -> Tensor:
    """[M] mean (v_θ − v_ref)² (PAPER 1, KL term, before β_KL)."""
    return (v.detach() - v_ref).square().flatten(1).mean(1)


def kl_cotangent(v: Tensor, v_ref: Tensor, num_cells: int) -> Tensor:
    """[M, C, h, w] derivative in v_θ of the mean of :func:`kl_divergence` over `num_cells` = N·T cells of all ranks."""
    return (v.detach() - v_ref) * (2 / (v[0].numel() * num_cells))


def _per_cell(values_M: Tensor) -> Tensor:
    """[M, 1, 1, 1]"""
    return values_M[:, None, None, None]
