"""Velocities of the trained, the rollout and the reference policy at the cells of one update.

Letters: M cells of a micro-batch, C, h, w latent channels and size.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal, Self

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from learner import adapters
from learner.adapters import TRAINED
from learner.cells import Cells, NftCells
from learner.nft import Pair, kl_cotangent, kl_divergence, loss_pair, reward_weights
from learner.policy import Policy
from learner.ranks import Ranks

OLD = "old"


@dataclass(frozen=True)
class Outcome:
    """One micro-batch after its forward passes."""

    cells: Cells
    velocity: Tensor
    """[M, C, h, w] v_θ with its graph; everything else is without."""
    pair: Pair
    on_policy: bool
    """v_old is v_θ: S has no gradient."""
    kl_M: Tensor | None
    """[M] KL per cell times its weight; None when KL is off, or taken on no cell of this micro-batch."""
    kl_cotangent: Tensor | None
    """[M, C, h, w] share of this cell in the gradient of the mean KL, before β_KL; 0 where it is not taken."""
    rows_per_cell: int = 1
    """Rows of the forward pass that one cell has, one after the other."""


class Forward:
    """Runs the policy's three forms. Exactly `default` is trainable and active between calls.

    What belongs to one algorithm stands apart, in the methods that learner.flow_grpo overrides; here it is NFT.
    """

    rows_per_cell = 1
    """Rows of a forward pass that one cell has."""

    def __init__(self, policy: Policy, beta: float, with_kl: bool, autocast: Literal["none", "bfloat16"]) -> None:
        self.policy = policy
        self.beta = beta
        self.with_kl = with_kl
        self._autocast = autocast == "bfloat16"

    def without_kl(self) -> Self:
        """The same forms of the same policy, without the reference's."""
        other = copy.copy(self)
        other.with_kl = False
        return other

    def outcomes(
        self,
        batches: Sequence[Cells],
        on_policy: bool,
        num_cells: int,
        module: DistributedDataParallel | None = None,
    ) -> Iterator[Outcome]:
        """Forward passes, micro-batch by micro-batch; the caller takes the gradient before it asks for the next.

        Args:
            batches: all micro-batches of one update.
            on_policy: `default` equals `old` bit for bit: v_old is v_θ, and its forward is saved.
            num_cells: N·T over all ranks, by which KL is divided.
            module: DDP's wrapper of the transformer, when a backward through it follows.
        """
        # One switch for all micro-batches: PEFT takes milliseconds for it.
        olds = self._olds(batches, on_policy)
        references = self._references(batches) if self.with_kl else [None] * len(batches)
        for cells, v_old, v_ref in zip(batches, olds, references, strict=True):
            # Not through a local: that would hold the graph until after the next forward.
            yield self._outcome(cells, v_old, v_ref, on_policy, num_cells, module)

    def reward_weights(
        self, acceptance_KN: Tensor, signal_KN: Tensor, counts_K: Tensor, num_timesteps: int, a_max: float
    ) -> tuple[Tensor, Tensor]:
        """[K, N] weights of S and D of :meth:`_pair` in g_k; arguments as of :func:`learner.nft.reward_weights`."""
        return reward_weights(acceptance_KN, signal_KN, counts_K, num_timesteps, a_max, self.beta)

    def policy_shift(self, ranks: Ranks) -> tuple[float, float]:
        """(clip fraction, approximate KL to the rollout policy) since the last call, where the algorithm has ratios."""
        return float("nan"), float("nan")

    def _olds(self, batches: Sequence[Cells], on_policy: bool) -> Sequence[Tensor | None]:
        """v_old of each micro-batch; None where it is v_θ."""
        return [None] * len(batches) if on_policy else self._frozen(batches, OLD)

    def _velocity(self, cells: Cells, module: DistributedDataParallel | None) -> Tensor:
        """[M, C, h, w] of the active adapter."""
        return self.policy.velocity(cells.x_t, cells.sigma_M, cells.text, module)

    def _pair(self, cells: Cells, velocity: Tensor, v_old: Tensor | None, on_policy: bool) -> Pair:
        """The two losses of each cell of which every reward's is a weighted sum."""
        assert isinstance(cells, NftCells)
        old = velocity.detach() if v_old is None else v_old
        return loss_pair(velocity, old, cells.x0, cells.x_t, cells.sigma_M, self.beta)

    def _outcome(
        self,
        cells: Cells,
        v_old: Tensor | None,
        v_ref: Tensor | None,
        on_policy: bool,
        num_cells: int,
        module: DistributedDataParallel | None,
    ) -> Outcome:
        """Without `v_ref` there is no KL."""
        with self._casting():
            velocity = self._velocity(cells, module)
        pair = self._pair(cells, velocity, v_old, on_policy)
        kl_M, cotangent = (None, None) if v_ref is None else _kl(velocity.detach(), v_ref, cells, num_cells)
        return Outcome(cells, velocity, pair, on_policy, kl_M, cotangent, self.rows_per_cell)

    def _references(self, batches: Sequence[Cells]) -> list[Tensor | None]:
        """v_ref where KL is taken, [rows, C, h, w] of each micro-batch; None where it has no such row."""
        taken = [_taken(cells) for cells in batches]
        found = iter(self._frozen([cells for cells in taken if len(cells.sigma_M)], None))
        return [next(found) if len(cells.sigma_M) else None for cells in taken]

    @torch.no_grad()
    def _frozen(self, batches: Sequence[Cells], name: str | None) -> list[Tensor]:
        with adapters.using(self.policy.transformer, name), self._casting():
            return [self._velocity(cells, None) for cells in batches]

    def _casting(self) -> AbstractContextManager[object]:
        if not self._autocast:
            return nullcontext()
        return torch.autocast(self.policy.device.type, dtype=torch.bfloat16)


def _taken(cells: Cells) -> Cells:
    """The cells on which KL is taken."""
    if bool((cells.kl_weight_M != 0).all()):
        return cells
    rows = cells.kl_weight_M.nonzero().flatten()
    there = rows.to(cells.x_t.device)
    return Cells(
        cells.samples_M[there],
        cells.x_t[there],
        cells.sigma_M[there],
        cells.text.rows(there),
        cells.kl_weight_M[rows],
    )


def _kl(v: Tensor, v_ref: Tensor, cells: Cells, num_cells: int) -> tuple[Tensor, Tensor]:
    """Weighted KL [M] and its cotangent [M, C, h, w], 0 outside the rows of `v_ref`."""
    rows = cells.kl_weight_M.nonzero().flatten().to(v.device)
    weight = cells.kl_weight_M.to(v.device)[rows]
    divergence, cotangent = torch.zeros(len(v), device=v.device), torch.zeros_like(v)
    divergence[rows] = weight * kl_divergence(v[rows], v_ref)
    cotangent[rows] = weight[:, None, None, None] * kl_cotangent(v[rows], v_ref, num_cells)
    return divergence, cotangent


def trainable(policy: Policy) -> dict[str, torch.nn.Parameter]:
    """`default`'s parameters by canonical key, sorted: the order of every flat vector over P."""
    return adapters.parameters(policy.transformer, TRAINED)


def trained_layers(policy: Policy) -> list[torch.nn.Linear]:
    """`default`'s matrices as layers, in the order of :func:`trainable`."""
    return list(adapters.linears(policy.transformer, TRAINED).values())
