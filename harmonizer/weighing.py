"""What every way of weighing rewards has in common."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from harmonizer.arrays import Floats, Indices
from harmonizer.report import Weighting


class WeighingMethod(ABC):
    """Weighs the rewards that are in a solve."""

    signed: bool = False
    """Whether weights may be negative."""
    raw: bool = False
    """Whether it weighs raw gradients whatever `normalize` says."""

    @abstractmethod
    def __call__(self, gramian_MM: Floats, members_M: Indices, kl_cosines_M: Floats | None = None) -> Weighting:
        """Weights of the rewards of one solve.

        Args:
            gramian_MM: [M, M], diagonal at most 1, M ≥ 1.
            members_M: which rewards they are, as indices into K.
            kl_cosines_M: cosine of each gradient with ∇KL, for methods that heed it.
        """

    def state_dict(self) -> dict[str, Any]:
        """What it remembers between solves, JSON-able; nothing, for most."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Remember what :meth:`state_dict` gave.

        Raises:
            ValueError: a state of another method; nothing is loaded then.
        """
        if state:
            raise ValueError(f"{type(self).__name__} remembers nothing between solves, got a state of {list(state)}")

    def reset(self) -> None:  # noqa: B027 - nothing to forget is the common case, not an omission
        """Forget everything."""
