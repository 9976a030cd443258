"""What a recipe says about how K reward gradients become one step. Imports pydantic only."""

import math
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class EmaConfig(_Strict):
    """Smoothing of the solved weights."""

    rho: float = Field(default=0.7, ge=0, lt=1)
    """Share of the past in ᾱ ← ρ ᾱ + (1 − ρ) α*; 0 keeps the last solve only."""


class RefreshConfig(_Strict):
    """Which optimizer steps solve; the others run on cached weights."""

    policy: Literal["every_n", "every_step"] = "every_n"
    n: int = Field(default=10, ge=1)
    """Steps from one solve to the next, read by `every_n`."""
    warmup: int = Field(default=1, ge=1)
    """The first `warmup` steps all solve; the n-th step after the last of them solves next."""


class HarmonizerConfig(_Strict):
    """How K reward gradients become one step."""

    method: Literal["min_norm", "uniform", "fixed"] = "min_norm"
    """min_norm: MARBLE; uniform: equal weights; fixed: the weights under `fixed`."""
    fixed: dict[str, Weight] | None = None
    """Weight per reward name for `method: fixed`; brought to sum 1."""
    normalize: bool = True
    """Balance unit gradients; false is the paper's ablation: raw gradients, no n̄ factor."""
    apply: Literal["solved", "ema"] = "solved"
    """Which weights a solving step applies: its own α* or ᾱ."""
    amortize: Literal["normalized", "paper"] = "normalized"
    """Weights of the steps in between: the step that was solved (a_k = ᾱ_k n̄/‖g_k‖), or the paper's a_k = ᾱ_k."""
    ema: EmaConfig = EmaConfig()
    refresh: RefreshConfig = RefreshConfig()

    @field_validator("fixed")
    @classmethod
    def _sum_one(cls, fixed: dict[str, float] | None) -> dict[str, float] | None:
        if fixed is None:
            return None
        total = sum(fixed.values())
        if not 0 < total < math.inf:
            raise ValueError(f"fixed weights must have a positive, finite sum, got {total} from {fixed}")
        # A resolved recipe is read again on resume: weights that sum to 1 already must keep their last bit.
        if math.isclose(total, 1.0, rel_tol=1e-12):
            return fixed
        return {name: weight / total for name, weight in fixed.items()}

    @model_validator(mode="after")
    def _fixed_goes_with_method(self) -> Self:
        if (self.fixed is not None) != (self.method == "fixed"):
            got = "no weights" if self.fixed is None else f"weights for {', '.join(self.fixed)}"
            raise ValueError(f"fixed weights are for method fixed and needed there, got method {self.method}, {got}")
        return self
