"""What a recipe says about how K reward gradients become one step. Imports pydantic only."""

import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]

ROUNDING = 1e-12
"""Sums off 1 by less are 1."""

NEEDS: Mapping[str, tuple[str, ...]] = {
    "upgrad": ("torchjd", "qpsolvers", "quadprog"),
    "cagrad": ("torchjd",),
    "pcgrad": ("torchjd",),
    "imtl_g": ("torchjd",),
    "nash_mtl": ("torchjd", "ecos"),
}
"""Packages of the extra `torchjd` that a method cannot do without."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class EmaConfig(_Strict):
    """Smoothing of the solved weights."""

    rho: float = Field(default=0.7, ge=0, lt=1)
    """Share of the past in ᾱ ← ρ ᾱ + (1 − ρ) α*; 0 keeps the last solve only."""
    trust_region: float | None = Field(default=None, gt=0, le=2, allow_inf_nan=False)
    """Most that ᾱ may move in one solve, as Σ_k |Δᾱ_k|; 2 is no bound, null is none. See harmonizer.ema."""


class RefreshConfig(_Strict):
    """Which optimizer steps solve; the others run on cached weights."""

    policy: Literal["every_n", "every_step", "adaptive", "never"] = "every_n"
    """adaptive: up to four times as rarely while nothing moves, at once when the active set changes; never: for method
    weighted_gradients, whose weights no solve changes."""
    n: int = Field(default=10, ge=1)
    """Steps from one solve to the next, read by `every_n`; where `adaptive` starts from."""
    warmup: int = Field(default=1, ge=1)
    """The first `warmup` steps all solve; the n-th step after the last of them solves next."""


class HarmonizerConfig(_Strict):
    """How K reward gradients become one step. docs/harmonizer.md has the formulas."""

    method: Literal[
        "min_norm",
        "uniform",
        "fixed",
        "weighted_gradients",
        "upgrad",
        "cagrad",
        "pcgrad",
        "imtl_g",
        "nash_mtl",
    ] = "min_norm"
    """min_norm: MARBLE; uniform: equal weights; fixed: the weights under `fixed`; weighted_gradients: Σ w_k g_k of raw
    gradients; the others are TorchJD's, with the extra `torchjd`."""
    fixed: dict[str, Weight] | None = None
    """Weight per reward name for `method: fixed`; brought to sum 1."""
    weights: dict[str, Weight] | None = None
    """w_k per reward name for `method: weighted_gradients`, as they stand; 1/K each where left out."""
    floors: dict[str, Share] | None = None
    """Least weight of a reward, or of a group, for `method: min_norm`; at most 1 in all."""
    preference: dict[str, Positive] | None = None
    """How fast each reward, or group, is to improve beside the others, for `method: min_norm`; any scale."""
    groups: dict[str, dict[str, Positive]] | None = None
    """Group → share of each member in the group's budget, brought to sum 1, for `method: min_norm`."""
    kl: Literal["outside", "constraint"] = "outside"
    """constraint: the rewards' direction may raise KL no faster than `kl_bound`, for `method: min_norm`."""
    kl_bound: float = Field(default=0.0, ge=0, lt=1, allow_inf_nan=False)
    """Largest −Σ α_k cos(∇KL, g_k): KL's growth as a share of what gradients straight against ∇KL would cause."""
    cagrad_c: float = Field(default=0.5, ge=0, lt=1, allow_inf_nan=False)
    """Radius of CAGrad's ball around the mean gradient, in lengths of that mean."""
    seed: int = Field(default=0, ge=0)
    """Of methods that draw (pcgrad)."""
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
        return None if fixed is None else brought_to_one("fixed weights", fixed)

    @field_validator("groups")
    @classmethod
    def _shares_of_groups(cls, groups: dict[str, dict[str, float]] | None) -> dict[str, dict[str, float]] | None:
        if groups is None:
            return None
        members = [name for group in groups.values() for name in group]
        twice = sorted({name for name in members if members.count(name) > 1})
        if twice:
            raise ValueError(f"a reward may be in one group only, got {', '.join(twice)} in several")
        return {group: brought_to_one(f"shares of group {group}", shares) for group, shares in groups.items()}

    @field_validator("floors")
    @classmethod
    def _room_above_floors(cls, floors: dict[str, float] | None) -> dict[str, float] | None:
        if floors is not None and math.fsum(floors.values()) > 1 + ROUNDING:
            raise ValueError(f"floors must add up to at most 1, got {math.fsum(floors.values()):g} from {floors}")
        return floors

    @model_validator(mode="after")
    def _settings_go_with_method(self) -> Self:
        if (self.fixed is not None) != (self.method == "fixed"):
            got = "no weights" if self.fixed is None else f"weights for {', '.join(self.fixed)}"
            raise ValueError(f"fixed weights are for method fixed and needed there, got method {self.method}, {got}")
        if self.weights is not None and self.method != "weighted_gradients":
            raise ValueError(f"weights are for method weighted_gradients, got method {self.method}")
        if self.weights is not None and not 0 < math.fsum(self.weights.values()) < math.inf:
            raise ValueError(f"weights must have a positive, finite sum, got {self.weights}")
        if self.refresh.policy == "never" and self.method != "weighted_gradients":
            raise ValueError(f"refresh.policy never goes with method weighted_gradients, got method {self.method}")
        steered = [key for key in ("floors", "preference", "groups") if getattr(self, key) is not None]
        steered += ["kl: constraint"] if self.kl == "constraint" else []
        if steered and self.method != "min_norm":
            raise ValueError(f"{steered[0]} goes with method min_norm, got method {self.method}")
        return self

    @property
    def steered(self) -> bool:
        """Whether the min-norm problem is anything but the plain one."""
        return self.kl == "constraint" or any(x is not None for x in (self.floors, self.preference, self.groups))

    def units(self, reward_names: Sequence[str]) -> dict[str, dict[str, float]]:
        """Unit → share of each of its rewards. Units are the groups and the rewards in none, in the rewards' order."""
        group_of = {name: group for group, shares in (self.groups or {}).items() for name in shares}
        ordered = dict.fromkeys(group_of.get(name, name) for name in reward_names)
        return {unit: dict((self.groups or {}).get(unit, {unit: 1.0})) for unit in ordered}

    def check_names(self, reward_names: Sequence[str]) -> None:
        """Hold every name here against the run's rewards.

        Raises:
            ValueError: the first that does not match: which key, what it names, what it may.
        """
        for key, given in (("fixed", self.fixed), ("weights", self.weights)):
            if given is not None and set(given) != set(reward_names):
                raise ValueError(f"{key} must give a weight to each of {_list(reward_names)}, got {_list(given)}")
        for group, shares in (self.groups or {}).items():
            if group in reward_names:
                raise ValueError(f"groups.{group} is called like a reward; give the group a name of its own")
            unknown = [name for name in shares if name not in reward_names]
            if unknown:
                raise ValueError(f"groups.{group} names {_list(unknown)}; rewards are {_list(reward_names)}")
        units = self.units(reward_names)
        strangers = [name for name in self.floors or () if name not in units]
        if strangers:
            raise ValueError(f"floors names {_list(strangers)}; it may name {_list(units)}")
        if self.preference is not None and set(self.preference) != set(units):
            raise ValueError(f"preference must have a number for each of {_list(units)}, got {_list(self.preference)}")

    def check_installed(self) -> None:
        """See that the packages of the method are there, without importing them.

        Raises:
            ValueError: some are not; which, and how to get them.
        """
        missing = [package for package in NEEDS.get(self.method, ()) if find_spec(package) is None]
        if missing:
            raise ValueError(
                f"method {self.method} needs {_list(missing)}, which this environment lacks: "
                "pip install -e '.[torchjd]' -c constraints.txt"
            )


def brought_to_one(what: str, shares: Mapping[str, float]) -> dict[str, float]:
    """The same proportions with sum 1.

    Raises:
        ValueError: nothing to bring to 1, or no finite sum.
    """
    total = sum(shares.values())
    if not 0 < total < math.inf:
        raise ValueError(f"{what} must have a positive, finite sum, got {total} from {dict(shares)}")
    # A resolved recipe is read again on resume: weights that sum to 1 already must keep their last bit.
    if math.isclose(total, 1.0, rel_tol=ROUNDING):
        return dict(shares)
    return {name: share / total for name, share in shares.items()}


def _list(names: Sequence[str] | Mapping[str, object]) -> str:
    return ", ".join(names)
