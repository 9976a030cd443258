"""Weight gradients of many rewards from one backward pass over the activations.

For a linear layer with input x and output gradient δ the weight gradient of cell i is δ_iᵀ x_i, and reward k wants
Σ_i c_ki δ_iᵀ x_i. Each trained layer forms its cells' small products as the backward pass goes by, adds them up under
all coefficient rows, and forgets them: kept are R × P numbers, never M × P. The products cost what a plain weight
gradient costs, whatever R is; the sum under R rows costs R / L of that.

Letters: R coefficient rows, M cells of a micro-batch, P trained parameters, L tokens, i, o a layer's input and output
width.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class Contraction:
    """Sums R × P weight gradients of bias-free linear layers while :meth:`watching` them."""

    def __init__(self, layers: Sequence[nn.Linear], num_rows: int) -> None:
        """Start at zero, with the layers' weights one after the other as columns."""
        device = layers[0].weight.device
        self._layers = tuple(layers)
        self._sizes = [layer.weight.numel() for layer in layers]
        self.rows_RP = torch.zeros(num_rows, sum(self._sizes), device=device)
        # Every tap depends on it, so a gradient "in the anchor" runs backward through all layers and no further, and
        # autograd leaves out the gradients of the weights themselves, which nobody asked for.
        self._anchor = torch.zeros((), device=device, requires_grad=True)
        self._targets: Sequence[Tensor] = ()
        self._coefficients_RM = torch.zeros(num_rows, 0, device=device)
        self._rows_per_cell = 1
        self._sums_M = torch.zeros(0, device=device)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Tap the layers: graphs built inside can be given to :meth:`add`, which must be called inside too."""
        handles = [layer.register_forward_pre_hook(_as_kept) for layer in self._layers]
        handles += [layer.register_forward_hook(self._hook(index)) for index, layer in enumerate(self._layers)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def add(
        self,
        output: Tensor,
        cotangent: Tensor,
        coefficients_RM: Tensor,
        rows: slice,
        keep_graph: bool,
        rows_per_cell: int = 1,
    ) -> Tensor:
        """rows_RP[rows] += Σ_i c_ri ∇_i, ∇_i being the gradient of cell i under its cotangent.

        Cells select: of one whose gradient is not finite those numbers count as 0, and it is named in the answer, so
        that the caller can tell rows it belongs to from rows it does not (0 · NaN would be NaN in all of them).

        Args:
            output: [M, …] result of a forward pass inside :meth:`watching`.
            cotangent: [M, …] ∂/∂output of each cell, without any weight.
            coefficients_RM: c_ri of the chosen rows.
            rows: which ones.
            keep_graph: whether another call on this graph follows.
            rows_per_cell: rows of the layers' inputs that one cell has, one after the other (two under guidance).

        Returns:
            [M] bool, cells with a gradient that is not finite.

        Raises:
            ValueError: a layer whose first dimension is not the cells.
        """
        self._targets, self._coefficients_RM = self.rows_RP[rows].split(self._sizes, dim=1), coefficients_RM
        self._rows_per_cell = rows_per_cell
        self._sums_M = torch.zeros(len(output), device=output.device)
        torch.autograd.grad(output, self._anchor, cotangent, retain_graph=keep_graph, allow_unused=True)
        return ~torch.isfinite(self._sums_M)

    def contract(self, index: int, x: Tensor, delta: Tensor) -> None:
        """Add one layer's part; called by the backward pass.

        Args:
            index: which layer.
            x: [M, L, i] or [M, i] its input, or with as many rows per cell as :meth:`add` was told.
            delta: [M, L, o] or [M, o] gradient in its output.
        """
        num_cells = self._coefficients_RM.shape[1]
        expected = num_cells * self._rows_per_cell
        if len(x) != expected or len(delta) != expected:
            raise ValueError(f"layer {index} saw {len(x)} rows, but there are {num_cells} cells")
        x_MLi, delta_MLo = (tensor.reshape(num_cells, -1, tensor.shape[-1]) for tensor in (x, delta))
        each_MP = torch.bmm(delta_MLo.mT, x_MLi).float().flatten(1)
        self._sums_M += each_MP.sum(1)  # whatever is not finite stays so in a sum
        self._targets[index].addmm_(self._coefficients_RM, each_MP.nan_to_num_(0.0, 0.0, 0.0))

    def _hook(self, index: int) -> Any:
        def tapped(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
            if not torch.is_grad_enabled():
                return None
            return _Tap.apply(output, inputs[0].detach(), self._anchor, self, index)

        return tapped


def _as_kept(layer: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    """The input as the layer itself keeps it for its weight gradient, so that a tap keeps nothing more.

    Of a slice of a larger tensor a layer keeps a copy, under autocast one in the lower precision. A tap on the input as
    it came would hold the whole of the former too, or the latter's original.
    """
    (x,) = inputs
    kind = x.device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        x = x.to(torch.get_autocast_dtype(kind))
    return x.contiguous()


class _Tap(torch.autograd.Function):
    """The identity, whose backward pass hands its layer's input and output gradient to the contraction."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, x: Tensor, anchor: Tensor, contraction: Contraction, index: int) -> Tensor:
        ctx.save_for_backward(x)
        ctx.contraction, ctx.index = contraction, index
        return output.view_as(output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, delta: Tensor) -> tuple[Tensor, None, None, None, None]:
        (x,) = ctx.saved_tensors
        ctx.contraction.contract(ctx.index, x, delta)
        return delta, None, None, None, None
