"""An ensemble: actors that live and die together (the learner's ranks and the harmonizer they share).

Their calls are collective: all members must answer within one time limit. When one is lost, hangs or raises, the others
may wait for it for ever in a collective operation, so all are killed and the error names the one it began with.
"""

from collections.abc import Mapping
from typing import Any

from actors.crew import GET_TIMEOUT_S, Outcome
from actors.remote import Actor, ActorLostError, CallFailedError, Ref, Remote
from learner.errors import UserError


class MemberLostError(UserError):
    """A member's process died or gave no answer in time."""


class MemberFailedError(RuntimeError):
    """A member raised something that is no user's error; the cause carries its traceback."""


class Ensemble:
    """Named actors with one collective call under way at a time."""

    def __init__(self, role: str, remote: Remote) -> None:
        self.role = role
        self._remote = remote
        self._members: dict[str, Actor] = {}
        self._waiting: dict[Ref, str] = {}
        self._results: dict[str, Any] = {}
        self._what, self._deadline_s, self._limit_s = "", 0.0, 0.0

    def add(self, name: str, actor: Actor) -> None:
        """Takes in a member; call before the first collective call."""
        self._members[name] = actor

    def begin(self, what: str, calls: Mapping[str, tuple[Any, ...]], timeout_s: float) -> None:
        """Starts one call on each named member: name -> (method, *args)."""
        assert self.idle, f"{self.role}: {what} while {self._what} is under way"
        self._what, self._limit_s, self._results = what, timeout_s, {}
        self._deadline_s = self._remote.now_s() + timeout_s
        for name, (method, *args) in calls.items():
            (ref,) = self._remote.call(self._members[name], method, *args)
            self._waiting[ref] = name

    @property
    def idle(self) -> bool:
        """Whether no call is under way."""
        return not self._waiting

    @property
    def results(self) -> Mapping[str, Any]:
        """Member -> what it returned in the last collective call."""
        return self._results

    def send(self, name: str, method: str, *args: Any) -> Ref:
        """One member's call whose value is passed on by reference; whoever uses the reference meets its error."""
        (ref,) = self._remote.call(self._members[name], method, *args)
        return ref

    def refs(self) -> list[Ref]:
        """What is being waited for."""
        return list(self._waiting)

    def handle(self, ref: Ref) -> list[Outcome]:
        """Takes one member's answer.

        Raises:
            MemberLostError, UserError, MemberFailedError: it gave none; all members are gone then.
        """
        name = self._waiting.pop(ref, None)
        if name is None:
            return []
        try:
            self._results[name] = self._remote.get(ref, GET_TIMEOUT_S)
        except (ActorLostError, TimeoutError) as error:
            self.close()
            raise MemberLostError(f"{name} was lost during {self._what}: {error}") from error
        except CallFailedError as error:
            self.close()
            if error.for_user:
                raise UserError(f"{name}: {error}") from error
            raise MemberFailedError(f"{name} failed during {self._what}: {error}") from error
        return []

    def expire(self) -> list[Outcome]:
        """Ends all when the time limit is over.

        Raises:
            MemberLostError: names those that gave no answer.
        """
        if self._waiting and self._remote.now_s() > self._deadline_s:
            late = ", ".join(self._waiting.values())
            self.close()
            raise MemberLostError(f"{late} gave no answer to {self._what} within {self._limit_s:g} s")
        return []

    def close(self) -> None:
        """Kills every member."""
        self._waiting = {}
        for actor in self._members.values():
            self._remote.kill(actor)
        self._members = {}
