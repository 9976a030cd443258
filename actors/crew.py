"""A crew: replicas of one role that share a queue of calls.

Each replica handles one call at a time; one of a crew that works `ahead` holds its next call meanwhile, as long as more
calls wait than there are replicas. A call goes to the idle replica that has done least; it has a time limit, and is
tried again on another replica when its own dies, hangs or raises. A replica that dies or hangs is killed and replaced,
and its successor first gets what every replica must know (standing calls, e.g. the current adapter).
A crew grows and shrinks while it works: who leaves finishes its call first. Calls carry a key and outcomes come back by
key, so that nothing depends on the order in which they arrive.
"""

from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

from actors.calls import Ahead, Attempt, Outcome, Replica, Standing, Work
from actors.remote import Actor, ActorLostError, CallFailedError, Ref, Remote
from actors.work_queue import WorkQueue
from learner.errors import UserError

__all__ = ["Crew", "Outcome", "Standing", "Work"]

MAX_LOSSES_IN_A_ROW = 3
"""A replica's place that loses this many processes without one finished call has no transient problem."""
GET_TIMEOUT_S = 30.0
"""For fetching the small last return value of a call that is already done."""


class Crew:
    """Replicas of one role. Call :meth:`start`, then pump (actors.pump) until :attr:`settled`."""

    def __init__(
        self,
        role: str,
        remote: Remote,
        spawn: Callable[[str, int], Actor],
        *,
        size: int,
        call_timeout_s: float,
        start_timeout_s: float,
        retries: int,
        warn: Callable[[str], None],
        ahead: bool = False,
    ) -> None:
        """`spawn(name, index)` creates one process's actor and returns at once.

        With `ahead` a standing call may come after one piece of work more than without.
        """
        self.role = role
        self.vitals: dict[str, Any] = {}
        """Replica -> what its `start` returned."""
        self.losses = 0
        """Processes lost so far."""
        self.failed_starts = 0
        """Replicas that were added and never came up."""
        self._remote, self._spawn, self._warn = remote, spawn, warn
        self._first_size, self._retries = size, retries
        self._call_timeout_s, self._start_timeout_s = call_timeout_s, start_timeout_s
        self._replicas: list[Replica] = []
        self._places = count()
        self._standing: dict[str, Standing] = {}
        self._queue = WorkQueue(ahead)

    # -- what the owner asks ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Creates the replicas; they load while the caller goes on."""
        for _ in range(self._first_size):
            self._replicas.append(self._spawned(next(self._places), 0))

    def resize(self, size: int) -> None:
        """Starts replicas, or has some leave: those that are not up yet first, then idle ones, then busy ones.

        Nothing stops working meanwhile: a busy replica finishes its call before it goes.
        """
        staying = [replica for replica in self._replicas if not replica.leaving]
        for replica in [replica for replica in self._replicas if replica.leaving][: max(0, size - len(staying))]:
            replica.leaving = False  # called back before anybody new is started
            staying.append(replica)
        for _ in range(size - len(staying)):
            self._replicas.append(self._spawned(next(self._places), 0, added=True))
        for replica in sorted(staying, key=lambda replica: replica.worth)[: max(0, len(staying) - size)]:
            replica.leaving = True
            if replica.attempt is None:
                self._remove(replica)

    @property
    def size(self) -> int:
        """Replicas, those that still load included, those that leave not."""
        return sum(not replica.leaving for replica in self._replicas)

    @property
    def num_up(self) -> int:
        """Replicas that have a process that is up."""
        return sum(not replica.in_start and not replica.problem for replica in self._replicas)

    @property
    def now_s(self) -> float:
        """The clock of its time limits."""
        return self._remote.now_s()

    @property
    def settled(self) -> bool:
        """Whether every replica has done its set-up (or will never)."""
        return all(replica.problem or not replica.in_setup for replica in self._replicas)

    @property
    def synced(self) -> bool:
        """Whether every replica that is up has done its set-up, and at least one is up.

        A replacement that still loads is not waited for: it does all standing calls before it takes work.
        """
        up = [replica for replica in self._replicas if not replica.in_start and not replica.problem]
        return bool(up) and not any(replica.in_setup for replica in up)

    @property
    def problems(self) -> list[str]:
        """Why replicas could not start, each distinct reason once."""
        return list(dict.fromkeys(replica.problem for replica in self._replicas if replica.problem))

    @property
    def num_outstanding(self) -> int:
        """Calls queued or under way."""
        return self.num_queued + sum((r.attempt is not None) + (r.ahead is not None) for r in self._replicas)

    @property
    def num_queued(self) -> int:
        """Calls that wait for a replica."""
        return len(self._queue)

    def submit(self, *works: Work, first: bool = False) -> None:
        """Queues calls, at the end or in front; they start at once where replicas are idle."""
        self._queue.add(works, first)
        self._dispatch()

    def broadcast(self, slot: str, standing: Standing) -> None:
        """Has every replica do this before its next work; replaces an earlier call of the same slot."""
        former = self._standing.get(slot)
        self._standing[slot] = standing
        for replica in self._replicas:
            # Who has not begun with the former one need not do it any more.
            kept = [s for i, s in enumerate(replica.setup) if s is not former or (i == 0 and replica.ref is not None)]
            replica.setup = deque([*kept, standing])
            self._advance(replica)

    def forget(self, slot: str) -> None:
        """Successors need not do this any more."""
        self._standing.pop(slot, None)

    def refs(self) -> list[Ref]:
        """What is being waited for."""
        return [replica.ref for replica in self._replicas if replica.ref is not None]

    def close(self) -> None:
        """Kills every replica and drops every call."""
        self._queue.clear()
        for replica in self._replicas:
            self._remote.kill(replica.actor)
        self._replicas = []

    # -- what the pump calls ------------------------------------------------------------------------------------------

    def handle(self, ref: Ref) -> list[Outcome]:
        """Takes a finished call; returns the outcomes this settles.

        Raises:
            UserError: a standing call gave what it must not, or a place keeps losing its processes.
        """
        replica = next((r for r in self._replicas if r.ref == ref), None)
        if replica is None:  # of a replica that was replaced meanwhile
            return []
        try:
            value = self._remote.get(ref, GET_TIMEOUT_S)
        except (ActorLostError, TimeoutError) as error:
            return self._lost(replica, error)
        except CallFailedError as error:
            return self._raised(replica, error)
        return self._finished(replica, value)

    def expire(self) -> list[Outcome]:
        """Replaces replicas that are past their time limit.

        An answer that is there is in time, however late it is looked at: who was busy is the caller.
        """
        now_s = self._remote.now_s()
        outcomes: list[Outcome] = []
        for replica in list(self._replicas):
            if replica.ref is None:
                continue
            limit_s = self._start_timeout_s if replica.attempt is None else self._call_timeout_s
            if now_s - replica.since_s <= limit_s or self._remote.wait([replica.ref], 0.0):
                continue
            if replica.in_first_start:
                replica.release(now_s)
                self._not_started(replica, f"{self.role}: {replica.name} did not start within {limit_s:g} s")
            else:
                outcomes += self._lost(replica, TimeoutError(f"no answer within {limit_s:g} s"))
        return outcomes

    # -- inside -------------------------------------------------------------------------------------------------------

    def _spawned(self, index: int, generation: int, added: bool = False) -> Replica:
        name = f"{self.role}-{index}" + (f".{generation}" if generation else "")
        setup = deque([Standing("start", (), _nothing_to_verify), *self._standing.values()])
        replica = Replica(name, self._spawn(name, index), index, generation, setup, added=added)
        self._advance(replica)
        return replica

    def _remove(self, replica: Replica) -> None:
        """Ends a replica and gives up its place."""
        self._remote.kill(replica.actor)
        self.vitals.pop(replica.name, None)
        self._replicas.remove(replica)

    def _advance(self, replica: Replica) -> None:
        """Gives an unoccupied replica its next set-up call, or lets it go; else it is free for work."""
        if replica.ref is not None or replica.problem:
            return
        if replica.leaving:
            self._remove(replica)
        elif replica.setup:
            standing = replica.setup[0]
            self._call(replica, standing.method, standing.args, 1)

    def _call(self, replica: Replica, method: str, args: tuple[Any, ...], num_returns: int) -> None:
        refs = self._remote.call(replica.actor, method, *args, num_returns=num_returns)
        replica.refs, replica.ref, replica.since_s = refs[:-1], refs[-1], self._remote.now_s()

    def _dispatch(self) -> None:
        """Idle replicas take queued work; then others take a second call."""
        while (taken := self._queue.take(self._replicas)) is not None:
            replica, attempt = taken
            work = attempt.work
            if replica.attempt is None:
                replica.attempt = attempt
                self._call(replica, work.method, work.args, work.num_returns)
            else:
                refs = self._remote.call(replica.actor, work.method, *work.args, num_returns=work.num_returns)
                replica.ahead = Ahead(attempt, refs)

    def _finished(self, replica: Replica, value: Any) -> list[Outcome]:
        now_s = self._remote.now_s()
        seconds = now_s - replica.since_s
        attempt, refs = replica.release(now_s)
        outcomes: list[Outcome] = []
        if attempt is None:
            standing = replica.setup.popleft()
            standing.verify(value)
            if standing.method == "start":
                self.vitals[replica.name], replica.added = value, False
        else:
            replica.calls_done += 1
            replica.losses_in_a_row = 0
            outcomes.append(Outcome(attempt.work.key, refs, value, "", None, seconds))
        self._advance(replica)
        self._dispatch()
        return outcomes

    def _raised(self, replica: Replica, error: CallFailedError) -> list[Outcome]:
        """The method raised: the process lives on, the call is tried elsewhere."""
        attempt, _ = replica.release(self._remote.now_s())
        if attempt is None:
            return self._setup_failed(replica, error)
        outcomes = self._again_or_given_up(replica, attempt, error)
        self._advance(replica)
        self._dispatch()
        return outcomes

    def _setup_failed(self, replica: Replica, error: CallFailedError) -> list[Outcome]:
        """A first start that raises is a problem to report; a replacement's is one more loss.

        Raises:
            UserError: a standing call was refused with one; another process would refuse it too.
        """
        if replica.added or replica.in_first_start:
            self._not_started(replica, f"{self.role}: {error}")
            return []
        if error.for_user:
            raise UserError(str(error)) from error
        return self._lost(replica, error)

    def _not_started(self, replica: Replica, problem: str) -> None:
        """A crew that does not come up is a problem; one that only does not grow is not."""
        if not replica.added:
            replica.problem = problem
            return
        self._remove(replica)
        self.failed_starts += 1
        self._warn(f"{problem}; {self.role} goes on with {self.size} replicas")

    def _lost(self, replica: Replica, error: Exception) -> list[Outcome]:
        """Kills what is left, puts a successor in its place and its work back in the queue.

        Raises:
            UserError: this place keeps losing its processes.
        """
        recalled = replica.recall()
        attempt, _ = replica.release(self._remote.now_s())
        if recalled is not None:
            self._queue.put_back(recalled)
        self.losses += 1
        outcomes = [] if attempt is None else self._again_or_given_up(replica, attempt, error)
        losses = replica.losses_in_a_row + (attempt is None or not attempt.work.suspect)
        if replica.leaving:
            self._remove(replica)
        elif losses > MAX_LOSSES_IN_A_ROW:
            problem = f"{self.role}: {replica.name} was lost {losses} times in a row, the last time: {error}"
            self._not_started(replica, problem)
            if replica.problem:
                raise UserError(problem)
        else:
            self._replace(replica, error, losses)
        self._dispatch()
        return outcomes

    def _replace(self, replica: Replica, error: Exception, losses: int) -> None:
        """Another process in the same place."""
        self._warn(f"{replica.name}: {error}; replaced")
        place = self._replicas.index(replica)
        self._remote.kill(replica.actor)
        self.vitals.pop(replica.name, None)
        self._replicas[place] = self._spawned(replica.index, replica.generation + 1, replica.added)
        self._replicas[place].losses_in_a_row = losses

    def _again_or_given_up(self, replica: Replica, attempt: Attempt, error: Exception) -> list[Outcome]:
        """Puts work back in front of the queue while it has tries left."""
        if attempt.tries <= self._retries:
            self._queue.put_back(attempt)
            return []
        return [Outcome(attempt.work.key, (), None, f"{replica.name}: {error}", error, 0.0)]


def _nothing_to_verify(value: Any) -> None:
    """Start-up returns vitals, which are kept, not judged."""
