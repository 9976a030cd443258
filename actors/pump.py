"""The one loop that waits: for everybody's calls at once, so that scoring goes on while rollouts still run."""

from collections.abc import Callable, Iterable
from typing import Protocol

from actors.crew import Outcome
from actors.remote import Ref, Remote

TICK_S = 0.2
"""How long one look at the references lasts: the delay with which time limits and stop requests are seen."""


class Party(Protocol):
    """Whoever has calls under way (a crew, an ensemble), or only looks at the clock (the pools' control)."""

    role: str

    def refs(self) -> list[Ref]:
        """What is being waited for."""

    def handle(self, ref: Ref) -> list[Outcome]:
        """Takes a finished call; returns what this settles."""

    def expire(self) -> list[Outcome]:
        """Does what is due by the clock, time limits above all; returns what this settles."""


def pump(
    remote: Remote,
    parties: Iterable[Party],
    until: Callable[[], bool],
    on_outcome: Callable[[Party, Outcome], None],
    check: Callable[[], None],
) -> None:
    """Moves everybody on until `until()` holds.

    Args:
        on_outcome: gets each piece of work that ended, and may submit more.
        check: called on every turn; raises to leave (a stop request, a deadline).
    """
    parties = tuple(parties)
    while not until():
        check()
        owners = {ref: party for party in parties for ref in party.refs()}
        for ref in remote.wait(list(owners), TICK_S):
            for outcome in owners[ref].handle(ref):
                on_outcome(owners[ref], outcome)
        for party in parties:
            for outcome in party.expire():
                on_outcome(party, outcome)


def no_outcome(party: Party, outcome: Outcome) -> None:
    """For waits in which no work is outstanding."""
    raise AssertionError(f"{party.role}: an outcome of {outcome.key} while no work was outstanding")
