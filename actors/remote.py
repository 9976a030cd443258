"""The few things this room asks of Ray, behind one small face, so that everything above it is tested without Ray.

It also counts the bytes that pass through the process that calls it, both ways: the controller holds references and
small numbers, and this is where that is seen.
"""

import contextlib
import io
import pickle
import re
import time
from collections.abc import Sequence
from typing import Any, Protocol

import ray
import ray.exceptions

from learner.errors import UserError

Actor = Any
"""A Ray actor handle, or what stands in for one in a test."""
Ref = Any
"""A Ray object reference, or what stands in for one in a test. Hashable."""

REF_BYTES = 28
"""A Ray object id; what a reference costs as an argument, about."""
LOST = (
    ray.exceptions.RayActorError,
    ray.exceptions.WorkerCrashedError,
    # Killed to free memory. Ray says so with an error of another family, now and to every later call.
    ray.exceptions.OutOfMemoryError,
    ray.exceptions.NodeDiedError,
    ray.exceptions.LocalRayletDiedError,
)
"""Errors that say that the process behind a call is gone. Taken for a failure of the call, one would leave a dead
replica at work, which fails faster than others score and so gets most of the queue."""


_IDS = re.compile(r" class_name: \S+ actor_id: .*? ip: \S+")
_ADVICE = re.compile(r" Some common causes include: .*")


class ActorLostError(Exception):
    """The process behind a call is gone."""


class CallFailedError(Exception):
    """The method raised, or one of its arguments could not be fetched; the text is type and message on one line."""

    def __init__(self, text: str, for_user: bool = False) -> None:
        """`for_user`: the exception over there was a UserError. `__cause__` carries the remote traceback."""
        super().__init__(text)
        self.for_user = for_user


class Remote(Protocol):
    """Calls on actors by reference."""

    bytes_moved: int
    """Through this process, both ways, since the start."""

    def call(self, actor: Actor, method: str, *args: Any, num_returns: int = 1) -> tuple[Ref, ...]:
        """Starts a call, returns at once with one reference for each return value."""

    def put(self, value: Any) -> Ref:
        """Stores a value once for several calls."""

    def wait(self, refs: Sequence[Ref], timeout_s: float) -> list[Ref]:
        """Those that are there, as soon as one is; none of them when the time is up."""

    def get(self, ref: Ref, timeout_s: float) -> Any:
        """The value.

        Raises:
            ActorLostError, CallFailedError, TimeoutError.
        """

    def kill(self, actor: Actor) -> None:
        """Ends an actor at once, whatever it does."""

    def now_s(self) -> float:
        """A clock for time limits."""


class RayRemote:
    """:class:`Remote` on a connected Ray."""

    def __init__(self) -> None:
        self.bytes_moved = 0

    def call(self, actor: Actor, method: str, *args: Any, num_returns: int = 1) -> tuple[Ref, ...]:
        self.bytes_moved += size_of(args)
        refs = getattr(actor, method).options(num_returns=num_returns).remote(*args)
        return (refs,) if num_returns == 1 else tuple(refs)

    def put(self, value: Any) -> Ref:
        self.bytes_moved += size_of(value)
        return ray.put(value)

    def wait(self, refs: Sequence[Ref], timeout_s: float) -> list[Ref]:
        if not refs:
            time.sleep(timeout_s)
            return []
        # fetch_local would copy what other nodes hold to this one.
        first, _ = ray.wait(list(refs), num_returns=1, timeout=timeout_s, fetch_local=False)
        if not first:
            return []
        ready, _ = ray.wait(list(refs), num_returns=len(refs), timeout=0, fetch_local=False)
        return list(ready)

    def get(self, ref: Ref, timeout_s: float) -> Any:
        try:
            value = ray.get(ref, timeout=timeout_s)
        except ray.exceptions.GetTimeoutError as error:
            raise TimeoutError(f"no answer within {timeout_s:g} s") from error
        except ray.exceptions.RayTaskError as error:
            cause = getattr(error, "cause", None) or error
            raise CallFailedError(one_line(cause), isinstance(cause, UserError)) from error
        except LOST as error:
            raise ActorLostError(why_gone(error)) from error
        except ray.exceptions.RayError as error:
            raise CallFailedError(one_line(error)) from error
        copy, size = detached(value)
        self.bytes_moved += size
        return copy

    def kill(self, actor: Actor) -> None:
        # Where Ray itself is gone, so are its actors; the error that led here must not be hidden by this one.
        with contextlib.suppress(ray.exceptions.RayError):
            ray.kill(actor, no_restart=True)

    def now_s(self) -> float:
        return time.monotonic()


def one_line(error: BaseException) -> str:
    """`Type: text` of an exception on one line; only the text where the exception is meant for users (ValueError)."""
    text = " ".join(str(error).split())
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text}".removesuffix(": ")


def why_gone(error: BaseException) -> str:
    """What Ray says of a process that is gone, without its ids and the advice that follows."""
    return _ADVICE.sub("", _IDS.sub("", one_line(error)))


class _Meter(pickle.Pickler):
    """Pickles into a buffer; references stay references."""

    def persistent_id(self, obj: Any) -> str | None:
        return "x" * REF_BYTES if isinstance(obj, ray.ObjectRef) else None


def detached(value: Any) -> tuple[Any, int]:
    """A copy that shares nothing with the object store, and its bytes.

    Ray hands out arrays that lie in the store, and pins them there as long as anybody keeps one: a listener that keeps
    reports would fill it. What comes here is small.
    """
    data = pickle.dumps(value, protocol=5)
    return pickle.loads(data), len(data)


def size_of(value: Any) -> int:
    """Bytes of a value as it would travel, references not followed."""
    if value is None or (isinstance(value, tuple) and not value):
        return 0
    buffer = io.BytesIO()
    _Meter(buffer, protocol=5).dump(value)
    return buffer.tell()
