"""Calls on a crew: work, standing calls, how a call ended, and the place a replica fills."""

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from actors.remote import Actor, Ref


@dataclass(frozen=True)
class Work:
    """One call. Its last return value is small and comes back; the others stay where they are, as references."""

    key: Hashable
    method: str
    args: tuple[Any, ...]
    num_returns: int = 1
    suspect: bool = False
    """It may well be the end of its process; losing one to it says nothing about the replica's place."""


@dataclass(frozen=True)
class Standing:
    """A call that every replica must have done before it works, now and after every replacement."""

    method: str
    args: tuple[Any, ...]
    verify: Callable[[Any], None]
    """Gets the return value; raises UserError where it is not what it must be."""


@dataclass(frozen=True)
class Outcome:
    """How a call ended."""

    key: Hashable
    refs: tuple[Ref, ...]
    """All return values but the last."""
    value: Any
    """The last return value; None after a failure."""
    error: str
    """Why it failed for good, naming the replica; empty where it did not."""
    cause: BaseException | None
    """The last failure."""
    seconds: float


@dataclass
class Attempt:
    """A piece of work on its way through the replicas."""

    work: Work
    tries: int = 0
    last_replica: str = ""


@dataclass(frozen=True)
class Ahead:
    """A call that a process holds already and begins as soon as it has ended the one under way."""

    attempt: Attempt
    refs: tuple[Ref, ...]
    """All return values."""


@dataclass
class Replica:
    """One place of the crew and the process that fills it now."""

    name: str
    actor: Actor
    index: int
    """Of its place; never given again."""
    generation: int
    """How many processes filled the place before."""
    setup: deque[Standing]
    """Still to be done before any work, the one under way first."""
    ref: Ref = None
    """The last return of the call under way; None when there is none."""
    refs: tuple[Ref, ...] = ()
    attempt: Attempt | None = None
    """The work under way; None during set-up."""
    ahead: Ahead | None = None
    since_s: float = 0.0
    calls_done: int = 0
    losses_in_a_row: int = 0
    problem: str = ""
    """Why the first start failed; such a replica is left alone."""
    added: bool = False
    """Came later than the crew and was never up yet: should it not come up, the others go on without it."""
    leaving: bool = False
    """Takes no further work and goes when its call is done."""

    @property
    def in_setup(self) -> bool:
        """Whether a set-up call is under way or to come."""
        return bool(self.setup) or (self.ref is not None and self.attempt is None)

    @property
    def in_start(self) -> bool:
        """Whether its process is not up yet."""
        return bool(self.setup) and self.setup[0].method == "start"

    @property
    def in_first_start(self) -> bool:
        """Whether this place never had a process that was up."""
        return self.in_start and self.generation == 0

    @property
    def idle(self) -> bool:
        """Whether it can take work now."""
        return self.ref is None and not self.setup and not self.problem and not self.leaving

    @property
    def takes_ahead(self) -> bool:
        """Whether a second call may lie ready with it: not behind one that may well end the process."""
        working = self.attempt is not None and not self.attempt.work.suspect
        return working and self.ahead is None and not self.setup and not self.leaving

    @property
    def worth(self) -> tuple[bool, bool, int]:
        """Who is worth least leaves first: one that still loads, then one without work, of equals the youngest."""
        return self.attempt is not None, not self.in_start, -self.index

    def release(self, now_s: float) -> tuple[Attempt | None, tuple[Ref, ...]]:
        """Takes the call under way off and returns what it was; one that lay ready is under way from now on."""
        attempt, refs = self.attempt, self.refs
        self.attempt, self.ref, self.refs = None, None, ()
        if self.ahead is not None:
            self.attempt, self.refs, self.ref = self.ahead.attempt, self.ahead.refs[:-1], self.ahead.refs[-1]
            self.ahead, self.since_s = None, now_s
        return attempt, refs

    def recall(self) -> Attempt | None:
        """Takes off the call that lay ready: never begun, it has its try again."""
        ahead, self.ahead = self.ahead, None
        if ahead is None:
            return None
        ahead.attempt.tries -= 1
        return ahead.attempt
