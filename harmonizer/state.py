"""What the harmonizer remembers between solves, and its form in a checkpoint."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from harmonizer.arrays import Bools, Floats
from harmonizer.diagnostics import Conflicts

NO_CONFLICTS = Conflicts()
KEYS = ("reward_names", "ema", "norms", "scale", "conflicts")
SUM_TOLERANCE = 1e-6
"""How far stored shares may add up off 1; thousands of updates lose about 1e-13."""


@dataclass(frozen=True, eq=False)
class Memory:
    """ᾱ, norms and counts as the last solves left them."""

    shares_K: Floats
    """[K] ᾱ; 0 where never solved."""
    norms_K: Floats
    """[K] ‖g_k‖ of the last solve that had reward k; NaN where never solved."""
    scale: float = 1.0
    """Σw of the last solve; 1 for methods that stay on the simplex."""
    conflicts: Conflicts = NO_CONFLICTS
    """Of the applied directions' worst cosines."""
    sum_conflicts: Conflicts = NO_CONFLICTS
    """Of Σ_k g_k's."""

    @classmethod
    def empty(cls, num_rewards: int) -> Self:
        """Before the first solve."""
        return cls(np.zeros(num_rewards), np.full(num_rewards, np.nan))

    @property
    def solved_K(self) -> Bools:
        """[K] rewards that have been in a solve."""
        return np.isfinite(self.norms_K)

    def to_json(self, reward_names: Sequence[str]) -> dict[str, Any]:
        """Plain lists of floats, which JSON keeps to the last bit, and None where a reward was never solved."""
        solved = self.solved_K.tolist()
        return {
            "reward_names": list(reward_names),
            "ema": [share if known else None for share, known in zip(self.shares_K.tolist(), solved, strict=True)],
            "norms": [norm if known else None for norm, known in zip(self.norms_K.tolist(), solved, strict=True)],
            "scale": self.scale,
            "conflicts": {"applied": vars(self.conflicts).copy(), "sum": vars(self.sum_conflicts).copy()},
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any], reward_names: Sequence[str], signed: bool = False) -> Self:
        """The memory that :meth:`to_json` wrote.

        Args:
            state: may have more keys.
            reward_names: of the run, in order.
            signed: whether shares may be negative.

        Raises:
            ValueError: a key is missing, the rewards are others, or the numbers are not shares, norms and counts.
        """
        missing = [key for key in KEYS if key not in state]
        if missing:
            raise ValueError(f"harmonizer state lacks {', '.join(missing)}, got keys {list(state)}")
        if list(state["reward_names"]) != list(reward_names):
            raise ValueError(
                f"harmonizer state must be of rewards {list(reward_names)}, in this order, got {state['reward_names']}"
            )
        ema, norms = list(state["ema"]), list(state["norms"])
        check_shares(ema, norms, len(reward_names), signed)
        scale, conflicts = state["scale"], state["conflicts"]
        if not (isinstance(scale, float | int) and math.isfinite(scale)):
            raise ValueError(f"harmonizer state's scale must be finite, got {scale}")
        return cls(
            np.array([0.0 if share is None else share for share in ema], dtype=np.float64),
            np.array([math.nan if norm is None else norm for norm in norms], dtype=np.float64),
            float(scale),
            Conflicts.from_json(conflicts.get("applied", {})),
            Conflicts.from_json(conflicts.get("sum", {})),
        )


def check_shares(
    ema: Sequence[float | None], norms: Sequence[float | None], num_rewards: int, signed: bool = False
) -> None:
    """Refuse stored numbers that no solve can have left.

    Raises:
        ValueError: not one entry per reward, a share without a norm, or shares off the simplex.
    """
    known = [share is not None for share in ema]
    if len(ema) != num_rewards or len(norms) != num_rewards or known != [norm is not None for norm in norms]:
        raise ValueError(f"harmonizer state needs a share and a norm, or neither, per reward, got {ema} and {norms}")
    shares = [share for share in ema if share is not None]
    if shares and not ((signed or min(shares) >= 0) and abs(math.fsum(shares) - 1) <= SUM_TOLERANCE):
        raise ValueError(f"harmonizer state's shares must be non-negative with sum 1, got {shares}")
    if not all(norm is None or (math.isfinite(norm) and norm > 0) for norm in norms):
        raise ValueError(f"harmonizer state's norms must be finite and positive, got {norms}")
