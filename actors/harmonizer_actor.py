"""The harmonizer actor: alone holds ᾱ and solves the QP; and the client through which the learner asks it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from actors.config import RoleConfig
from actors.process import Started
from actors.remote import Actor, Remote
from actors.results import ActorVitals
from harmonizer.config import HarmonizerConfig
from harmonizer.report import Plan, Signals, Solution


@dataclass(frozen=True)
class HarmonizerSpec:
    """What the harmonizer actor is made from."""

    name: str
    role: RoleConfig
    config: HarmonizerConfig
    reward_names: tuple[str, ...]


class HarmonizerActor:
    """One :class:`harmonizer.harmonizer.Harmonizer` in a process of its own."""

    def __init__(self, spec: HarmonizerSpec) -> None:
        self._spec = spec
        self._started = Started("harmonizer", spec.name, spec.role.threads)
        self._harmonizer: Any = None

    def start(self) -> ActorVitals:
        """Makes the harmonizer, with nothing remembered."""
        with self._started:
            from harmonizer.harmonizer import Harmonizer

            self._harmonizer = Harmonizer(self._spec.reward_names, self._spec.config)
        return self._started.vitals

    def plan(self, step: int, active_K: NDArray[np.bool_], signals: Signals | None = None) -> Plan:
        """See :meth:`harmonizer.harmonizer.Harmonizer.plan`."""
        plan: Plan = self._harmonizer.plan(step, active_K, signals)
        return plan

    def solve(
        self,
        step: int,
        gramian_KK: NDArray[np.float64],
        active_K: NDArray[np.bool_],
        kl_cosines_K: NDArray[np.float64] | None = None,
    ) -> Solution:
        """See :meth:`harmonizer.harmonizer.Harmonizer.solve`."""
        solution: Solution = self._harmonizer.solve(step, gramian_KK, active_K, kl_cosines_K)
        return solution

    def state_dict(self) -> dict[str, Any]:
        """JSON-able; goes into every checkpoint."""
        state: dict[str, Any] = self._harmonizer.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """What :meth:`state_dict` gave.

        Raises:
            ValueError: a state of other rewards.
        """
        self._harmonizer.load_state_dict(state)

    def reset(self) -> None:
        """Forgets everything, as a new stage begins."""
        self._harmonizer.reset()

    def vitals(self) -> ActorVitals:
        """As of now."""
        return self._started.vitals


class RemoteHarmonizer:
    """learner.types.HarmonizerClient whose harmonizer lives in the actor."""

    def __init__(self, actor: Actor, timeout_s: float, remote: Remote) -> None:
        """`timeout_s` is for one call."""
        self._actor, self._timeout_s, self._remote = actor, timeout_s, remote

    def plan(self, step: int, active_K: NDArray[np.bool_], signals: Signals | None = None) -> Plan:
        """Whether this step solves, or its weights.

        Raises:
            RuntimeError: no answer.
        """
        plan: Plan = self._ask("plan", (step, active_K, signals), f" of step {step}")
        return plan

    def solve(
        self,
        step: int,
        gramian_KK: NDArray[np.float64],
        active_K: NDArray[np.bool_],
        kl_cosines_K: NDArray[np.float64] | None = None,
    ) -> Solution:
        """Weighs this batch's gradients.

        Raises:
            RuntimeError: no answer.
        """
        solution: Solution = self._ask("solve", (step, gramian_KK, active_K, kl_cosines_K), f" of step {step}")
        return solution

    def reset(self) -> None:
        """Forgets everything.

        Raises:
            RuntimeError: no answer.
        """
        self._ask("reset", ())

    def _ask(self, method: str, args: Sequence[Any], which: str = "") -> Any:
        (ref,) = self._remote.call(self._actor, method, *args)
        try:
            return self._remote.get(ref, self._timeout_s)
        except Exception as error:
            raise RuntimeError(f"the harmonizer gave no answer to {method}{which}: {error}") from error
