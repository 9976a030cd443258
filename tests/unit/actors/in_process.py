"""Stands in for Ray: actors are plain objects of this process, and what goes wrong with them is said beforehand.

A call runs when somebody waits for it, calls of one actor in their order. The clock moves only when a wait finds
nothing to do, so time limits are tested without waiting.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from actors.config import RoleConfig
from actors.remote import ActorLostError, CallFailedError, one_line, size_of
from learner.errors import UserError

Fault = Literal["die", "hang"] | Exception


class ProcessExit(BaseException):
    """Raised by an actor's own code: its process is gone."""


class ProcessHang(BaseException):
    """Raised by an actor's own code: the call never ends."""


@dataclass(eq=False)
class Handle:
    """An actor."""

    kind: str
    name: str
    instance: Any
    alive: bool = True
    calls: list["Call"] = field(default_factory=list)
    """Not yet run, in order."""


@dataclass(eq=False)
class Call:
    """A call under way, with one value per return."""

    handle: Handle
    method: str
    args: tuple[Any, ...]
    num_returns: int
    number: int
    """Calls before it."""
    values: tuple[Any, ...] | None = None
    error: Exception | None = None
    hangs: bool = False

    @property
    def done(self) -> bool:
        return self.values is not None or self.error is not None


@dataclass(frozen=True, eq=False)
class LocalRef:
    """One return of a call, or a stored value."""

    call: Call | None
    index: int
    value: Any = None


class InProcess:
    """actors.remote.Remote without processes."""

    def __init__(self, order: int | None = None, call_s: float = 0.0) -> None:
        """
        Args:
            order: shuffles in which order waiting calls run, as several machines would.
            call_s: what a call takes by the clock.
        """
        self.bytes_moved = 0
        self.handles: list[Handle] = []
        self.log: list[tuple[str, str]] = []
        """(actor, method) of every call that ran."""
        self.faults: dict[tuple[str, str], list[Fault | None]] = {}
        """(actor, method) -> what happens to its next calls; None is nothing."""
        self._now_s, self._call_s = 0.0, call_s
        self._num_calls = 0
        self._random = None if order is None else random.Random(order)

    def spawn(self, kind: type[Any], role: RoleConfig, name: str, args: tuple[Any, ...]) -> Handle:
        """actors.team.Spawn."""
        return self.add(name, kind(*args))

    def add(self, name: str, instance: Any) -> Handle:
        """An actor around an object."""
        self.handles.append(Handle(type(instance).__name__, name, instance))
        return self.handles[-1]

    def idle(self, seconds: float) -> None:
        """Time passes."""
        self._now_s += seconds

    def alive(self) -> list[str]:
        """Names of the actors that live."""
        return [handle.name for handle in self.handles if handle.alive]

    # -- Remote --------------------------------------------------------------------------------------------------------

    def call(self, actor: Handle, method: str, *args: Any, num_returns: int = 1) -> tuple[LocalRef, ...]:
        self.bytes_moved += size_of(tuple(None if isinstance(arg, LocalRef) else arg for arg in args))
        self._num_calls += 1
        call = Call(actor, method, args, num_returns, self._num_calls)
        actor.calls.append(call)
        return tuple(LocalRef(call, index) for index in range(num_returns))

    def put(self, value: Any) -> LocalRef:
        self.bytes_moved += size_of(value)
        return LocalRef(None, 0, value)

    def wait(self, refs: Sequence[LocalRef], timeout_s: float) -> list[LocalRef]:
        ready = [ref for ref in refs if self._is_ready(ref)]
        if ready:
            return ready
        # The oldest call first, as if all took the same time.
        oldest = sorted(refs, key=lambda ref: 0 if ref.call is None else ref.call.number)
        for ref in self._random.sample(oldest, len(oldest)) if self._random else oldest:
            if ref.call is not None and self._run(ref.call):
                return [ref]
        self._now_s += timeout_s
        return []

    def get(self, ref: LocalRef, timeout_s: float) -> Any:
        value = self._value(ref)
        self.bytes_moved += size_of(value)
        return value

    def kill(self, actor: Handle) -> None:
        actor.alive = False

    def now_s(self) -> float:
        return self._now_s

    # -- inside --------------------------------------------------------------------------------------------------------

    def _is_ready(self, ref: LocalRef) -> bool:
        return ref.call is None or ref.call.done or not ref.call.handle.alive

    def _value(self, ref: LocalRef) -> Any:
        if ref.call is None:
            return ref.value
        if not self._is_ready(ref) and not self._run(ref.call):
            raise TimeoutError("no answer")
        if ref.call.error is not None:
            raise ref.call.error
        if ref.call.values is None:
            raise ActorLostError(f"{ref.call.handle.name} died")
        return ref.call.values[ref.index]

    def _run(self, call: Call) -> bool:
        """Runs a call and those before it; returns whether it is done."""
        while call.handle.calls and not call.done and not call.handle.calls[0].hangs:
            self._run_one(call.handle.calls[0])
        return call.done or not call.handle.alive

    def _run_one(self, call: Call) -> None:
        planned = self.faults.get((call.handle.name, call.method), [])
        fault = planned.pop(0) if planned else None
        if fault == "hang":
            call.hangs = True
            return
        call.handle.calls.pop(0)
        self._now_s += self._call_s
        self.log.append((call.handle.name, call.method))
        if fault == "die":
            call.handle.alive = False
            return
        try:
            if isinstance(fault, Exception):
                raise fault
            values = getattr(call.handle.instance, call.method)(*map(self._resolved, call.args))
        except ProcessExit:
            call.handle.alive = False
        except ProcessHang:
            call.hangs = True
            call.handle.calls.insert(0, call)
        except Exception as error:  # noqa: BLE001 - whatever an actor raises travels to its caller
            failed = CallFailedError(one_line(error), isinstance(error, UserError))
            failed.__cause__ = error
            call.error = failed
        else:
            call.values = (values,) if call.num_returns == 1 else tuple(values)

    def _resolved(self, arg: Any) -> Any:
        return self._value(arg) if isinstance(arg, LocalRef) else arg
