"""Does the step that was taken go against some reward? Measured beside the training, without changing a bit of it.

On chosen steps the gradients of all rewards are taken apart, those too that the objective does not train. Three vectors
are held against each of them: the rewards' part d of the direction, the whole gradient before clipping (KL in it), and
how AdamW moved the parameters, turned around. Against the same batch first; then, on the next iteration's first step,
against that one's batch, at the parameters as they are by then: what is left of a direction once its batch's noise is
gone. Of several steps measured in one iteration the last one waits for that.

Letters: K rewards, J gradients trained, R rows: the K rewards, and the weighted mean where it is trained; P parameters.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.cells import Cells
from learner.forward import Forward, trained_layers
from learner.gradients import GRAM_CHUNK, combined, reward_gradients
from learner.ranks import Ranks
from learner.types import CONFLICT_VECTORS, Conflict

if TYPE_CHECKING:
    from learner.train_step import Signal


@dataclass(frozen=True)
class ProbeInput:
    """What a measurement is taken of; the same on every rank but for its own samples."""

    signal: "Signal"
    """Of all R rows, trained or not."""
    active_K: NDArray[np.bool_]
    """Rewards with signal in the batch."""
    trained: slice
    """Which rows of R the J trained ones are."""
    own: bool
    """Measure this step; else only the one that waits for its next batch."""
    opens: bool
    """This is the first step of its iteration."""


@dataclass(frozen=True)
class _Step:
    """A step taken, until it has met the next batch."""

    step: int
    iteration: int
    solved: bool
    vectors: Mapping[str, Tensor]
    """[P] by name in CONFLICT_VECTORS."""


class Probe:
    """Measures steps; what waits for the next batch is part of a resumed state."""

    def __init__(self, forward: Forward, ranks: Ranks, weights: "Callable[[Signal], tuple[Tensor, Tensor]]") -> None:
        """
        Args:
            weights: [R, N] weights of S and D of a signal, as the steps themselves take them.
        """
        self._forward, self._ranks, self._weights = forward, ranks, weights
        self._layers = trained_layers(forward.policy)
        self._waiting: _Step | None = None
        self._rows_RP: Tensor | None = None
        self._seconds = 0.0

    def before(self, asked: ProbeInput | None, batches: Sequence[Cells], on_policy: bool, num_cells: int) -> None:
        """Take the rows, before the step moves the parameters. `.grad` is left as it is."""
        self._rows_RP, self._seconds = None, 0.0
        if asked is None or not (asked.own or (asked.opens and self._waiting is not None)):
            return
        began = time.perf_counter()
        outcomes = self._forward.without_kl().outcomes(batches, on_policy, num_cells)
        found = reward_gradients(outcomes, self._layers, self._weights(asked.signal), False, num_cells, self._ranks)
        self._rows_RP = found.rows_RP
        self._seconds = time.perf_counter() - began

    def after(self, asked: ProbeInput | None, taken: "Taken | None") -> tuple[Conflict, ...]:
        """Hold the step, and the one that waited, against the rows.

        Args:
            asked: as of :meth:`before`.
            taken: what the step did; None when none was applied.
        """
        if asked is None:
            return ()
        waiting = self._waiting if asked.opens else None
        if asked.opens:
            self._waiting = None
        if self._rows_RP is None:
            return ()
        began, rows_RP = time.perf_counter(), self._rows_RP
        self._rows_RP = None
        rows_KP = rows_RP[: len(asked.active_K)]
        found = [] if waiting is None else [_conflict(waiting, "next", asked, rows_KP)]
        if asked.own and taken is not None:
            vectors = {
                "direction": combined(rows_RP[asked.trained], taken.coefficients_J),
                "gradient": taken.gradient_P,
                "update": taken.update_P,
            }
            self._waiting = _Step(taken.step, taken.iteration, taken.solved, vectors)
            found.append(_conflict(self._waiting, "same", asked, rows_KP))
        self._seconds += time.perf_counter() - began
        return tuple(found)

    @property
    def seconds(self) -> float:
        """What the last step's measurements took."""
        return self._seconds

    def tensors(self) -> dict[str, Tensor]:
        """Vectors of the step that waits, on the CPU; empty when none does."""
        waiting = self._waiting
        return {} if waiting is None else {name: v.to("cpu", copy=True) for name, v in waiting.vectors.items()}

    def state(self) -> dict[str, Any] | None:
        """The numbers beside :meth:`tensors`."""
        waiting = self._waiting
        if waiting is None:
            return None
        return {"step": waiting.step, "iteration": waiting.iteration, "solved": waiting.solved}

    def load(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any] | None, device: torch.device) -> None:
        """Take up what :meth:`tensors` and :meth:`state` gave."""
        if state is None:
            self._waiting = None
            return
        vectors = {name: tensors[name].to(device, copy=True) for name in CONFLICT_VECTORS}
        self._waiting = _Step(int(state["step"]), int(state["iteration"]), bool(state["solved"]), vectors)


@dataclass(frozen=True)
class Taken:
    """A step that was applied."""

    step: int
    iteration: int
    solved: bool
    coefficients_J: NDArray[np.float64]
    gradient_P: Tensor
    update_P: Tensor
    """θ before − θ after: positive cosines are descent, as of the other two."""


def cosines(rows_KP: Tensor, vector_P: Tensor) -> NDArray[np.float64]:
    """[K] cosine of each row with a vector, summed in float64; NaN where either is zero or not finite."""
    sums = torch.zeros(3, len(rows_KP), dtype=torch.float64, device=rows_KP.device)
    chunks = zip(torch.split(rows_KP, GRAM_CHUNK, dim=1), torch.split(vector_P, GRAM_CHUNK), strict=True)
    for rows, part in ((rows.double(), part.double()) for rows, part in chunks):
        sums += torch.stack([rows @ part, rows.square().sum(1), part.square().sum().expand(len(rows))])
    products, rows_square, vector_square = sums.cpu().numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        found_K = products / np.sqrt(rows_square * vector_square)
    return np.where(np.isfinite(found_K), np.clip(found_K, -1.0, 1.0), np.nan)


def _conflict(step: _Step, against: str, asked: ProbeInput, rows_KP: Tensor) -> Conflict:
    found = {name: np.where(asked.active_K, cosines(rows_KP, v), np.nan) for name, v in step.vectors.items()}
    return Conflict(step.step, step.iteration, step.solved, against, found)
