"""Calling a scorer so that no failure spreads: not to other samples, not to other rewards, and never into a number.

Letters: N samples in the batch.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from rewards.contract import Metadata, RewardResult, Scorer, State
from rewards.evaluation import score_for_evaluation
from rewards.images import check_images
from rewards.results import Cell, collect, describe, to_cells

NOT_APPLICABLE_REASON = "the reward does not apply to this prompt"

_SCORER_IS_AWAY = (ConnectionError, TimeoutError)
"""Errors that speak of the scorer, not of a sample. Asking again for every half would only multiply the wait."""

_FAULT = (Exception, SystemExit)
"""What a scorer may raise: anything. Libraries made for the command line call sys.exit over a bad file."""

_CallOn = Callable[[Sequence[int]], list[Cell]]
"""Scores the samples of these indices; may raise."""


def score_safely(
    scorer: Scorer,
    images_NHWC: NDArray[np.uint8],
    prompts: Sequence[str],
    metadata: Sequence[Metadata],
    applicable_N: Sequence[bool] | NDArray[np.bool_],
    evaluation: bool = False,
) -> RewardResult:
    """Score the samples that the reward applies to; every problem ends in the cells it belongs to.

    The rest are never shown to the scorer. When a call raises, halves are tried until the samples at fault stand alone;
    they fail with the exception's type and text. The healthy ones are then scored once more in a batch of the first
    call's shape, so that their scores are the same to the bit as without the failure. Scores that are not finite, and
    answers of the wrong length or type, are failures with a reason.

    Args:
        scorer: any scorer, trusted with nothing.
        images_NHWC: uint8 [N, H, W, 3], with their prompts and metadata.
        applicable_N: [N] true where the reward applies.
        evaluation: ask for the reported figure in place of the training score.

    Raises:
        ValueError: images, prompts, metadata and applicable_N are not of one length.
    """
    lengths = (len(images_NHWC), len(prompts), len(metadata), len(applicable_N))
    if len(set(lengths)) != 1:
        raise ValueError(f"images, prompts, metadata and applicable_N must be of one length, got {lengths}")
    cells = [Cell.not_applicable(NOT_APPLICABLE_REASON)] * len(prompts)
    chosen = [int(i) for i in np.flatnonzero(np.asarray(applicable_N, dtype=bool))]

    def call_on(indices: Sequence[int]) -> list[Cell]:
        batch = (images_NHWC[list(indices)], [prompts[i] for i in indices], [metadata[i] for i in indices])
        result = score_for_evaluation(scorer, *batch) if evaluation else scorer(*batch)
        return _cells_of(result, len(indices))

    for index, cell in zip(chosen, _score_chosen(call_on, images_NHWC, chosen), strict=True):
        cells[index] = cell
    return collect(cells)


def _score_chosen(call_on: _CallOn, images: NDArray[np.uint8], chosen: list[int]) -> list[Cell]:
    if not chosen:
        return []
    try:
        check_images(images)
    except ValueError as error:
        # The same for every half: nothing to search for.
        return [Cell.failed(describe(error))] * len(chosen)
    raised: set[int] = set()
    cells = _bisect(call_on, chosen, raised)
    healthy = [index for index in chosen if index not in raised]
    if not raised or not healthy:
        return cells
    again = _score_in_full_shape(call_on, chosen, raised, healthy[0])
    if again is None:
        return cells
    return [
        cell if index in raised or new.state == State.FAILED else new
        for index, cell, new in zip(chosen, cells, again, strict=True)
    ]


def _bisect(call_on: _CallOn, indices: list[int], raised: set[int]) -> list[Cell]:
    """A cell for each sample; those that raise or fail even alone are put into `raised`."""
    try:
        cells = call_on(indices)
    except _SCORER_IS_AWAY as error:
        return [Cell.failed(describe(error))] * len(indices)
    # A scorer is anyone's code; the reason is kept in the cell.
    except _FAULT as error:
        if len(indices) == 1:
            raised.add(indices[0])
            return [Cell.failed(describe(error))]
    else:
        if len(indices) == 1 and cells[0].state == State.FAILED:
            raised.add(indices[0])
        return cells
    middle = len(indices) // 2
    return _bisect(call_on, indices[:middle], raised) + _bisect(call_on, indices[middle:], raised)


def _score_in_full_shape(call_on: _CallOn, chosen: list[int], raised: set[int], stand_in: int) -> list[Cell] | None:
    """Cells of the whole batch with a healthy sample in place of each that raised, or None if that raises as well."""
    try:
        return call_on([stand_in if index in raised else index for index in chosen])
    # The smaller batches have given scores already; this call only makes them independent of the failure.
    except _FAULT:
        return None


def _cells_of(result: object, num_asked: int) -> list[Cell]:
    """The cells of a scorer's answer; an answer that breaks the contract fails all of them."""
    if not isinstance(result, RewardResult):
        return [Cell.failed(f"the scorer returned {type(result).__name__}, not a RewardResult")] * num_asked
    if len(result.scores) != num_asked:
        return [Cell.failed(f"the scorer returned {len(result.scores)} cells for {num_asked} samples")] * num_asked
    try:
        return to_cells(result)
    except ValueError as error:
        return [Cell.failed(describe(error))] * num_asked
