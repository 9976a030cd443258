"""The few collective calls of the learner; on one rank they are no calls at all.

Every rank makes the same calls in the same order whatever its data, and an error on one rank is raised on all of them,
so that nobody waits for a rank that has left.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")

BUCKET = 1 << 23
"""Numbers per call: 32 MiB, large enough for full bandwidth, small enough for a backend that copies what it sends."""


def rank_slice(num_samples: int, rank: int, world_size: int) -> slice:
    """Which samples a rank trains on: contiguous, sizes differ by one at most, the first ranks have more."""
    size, more = divmod(num_samples, world_size)
    start = rank * size + min(rank, more)
    return slice(start, start + size + (rank < more))


@dataclass(frozen=True)
class Ranks:
    """This process among its equals, over torch's default process group."""

    rank: int
    world_size: int

    def __post_init__(self) -> None:
        """
        Raises:
            ValueError: not a rank of that many, or no process group of that size.
        """
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank must be in 0..{self.world_size - 1}, got {self.rank}")
        if self.world_size > 1:
            group = dist.get_world_size() if dist.is_initialized() else 0
            if group != self.world_size:
                raise ValueError(f"world_size is {self.world_size}, but torch's process group has {group} ranks")

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum over ranks, in place."""
        if self.world_size > 1:
            dist.all_reduce(tensor)
        return tensor

    def sum_in_buckets(self, tensor: Tensor, bucket: int = BUCKET) -> Tensor:
        """Sum a large contiguous tensor over ranks, in place, `bucket` numbers to a call, all calls at once."""
        if self.world_size > 1:
            parts = torch.split(tensor.view(-1), bucket)
            for work in [dist.all_reduce(part, async_op=True) for part in parts]:
                work.wait()
        return tensor

    def from_first(self, call: Callable[[], T]) -> T:
        """What rank 0's call gives, on every rank; only rank 0 makes it.

        Raises:
            Exception: rank 0's own there, a RuntimeError with its text elsewhere.
        """
        if self.world_size == 1:
            return call()
        answer: list[T | None] = [None]
        fault: list[str | None] = [None]
        raised: Exception | None = None
        if self.rank == 0:
            try:
                answer[0] = call()
            except Exception as error:  # noqa: BLE001 - raised again below, once the others know
                raised, fault[0] = error, f"rank 0: {type(error).__name__}: {error}"
        dist.broadcast_object_list(fault, src=0)
        if raised is not None:
            raise raised
        if fault[0] is not None:
            raise RuntimeError(fault[0])
        dist.broadcast_object_list(answer, src=0)
        return answer[0]  # type: ignore[return-value]

    def together(self, call: Callable[[], T]) -> T:
        """Make a call on every rank; when it fails on one, it fails on all.

        Raises:
            Exception: this rank's own, or a RuntimeError naming the first rank that failed.
        """
        if self.world_size == 1:
            return call()
        result: T | None = None
        raised: Exception | None = None
        try:
            result = call()
        except Exception as error:  # noqa: BLE001 - raised again below, once the others know
            raised = error
        faults: list[str | None] = [None] * self.world_size
        dist.all_gather_object(faults, None if raised is None else f"{type(raised).__name__}: {raised}")
        if raised is not None:
            raise raised
        for rank, fault in enumerate(faults):
            if fault is not None:
                raise RuntimeError(f"rank {rank}: {fault}")
        return result  # type: ignore[return-value]

    def check_equal(self, name: str, value: str) -> None:
        """
        Raises:
            RuntimeError: the ranks hold different values.
        """
        if self.world_size == 1:
            return
        values: list[str] = [""] * self.world_size
        dist.all_gather_object(values, value)
        if len(set(values)) > 1:
            raise RuntimeError(f"{name} differs between ranks: {', '.join(values)}")
