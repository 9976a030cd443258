"""The reward server's three addresses, over one scorer."""

import asyncio
import hmac
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastapi import Depends, FastAPI, HTTPException, Request
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from deploy.reward_service.body import Batch, read_batch
from deploy.reward_service.turns import BusyError, Turns
from rewards.contract import RewardResult, Scorer, State
from rewards.safe import score_safely
from rewards.wire import PROTOCOL, encode_answer

T = TypeVar("T")

CLIENT_GONE = 499
"""Nobody reads this answer; the number is nginx's."""


@dataclass(frozen=True)
class Limits:
    """What one server takes."""

    max_request_bytes: int = 256 * 2**20
    """Of a body, and of its images once decoded: 85 images of 1024² pixels."""
    max_places: int = 8
    """Requests that are in at once, one of them scored; each may hold max_request_bytes."""
    body_limit_s: float = 60.0
    """For a body to arrive."""
    stuck_after_s: float = 300.0
    """A call that runs longer makes /healthz say so: no thread can be ended from outside, a process can."""


@dataclass
class Service:
    """One scorer and what is known of it."""

    name: str
    scorer: Scorer
    turns: Turns
    about: dict[str, Any]
    """Further entries of /v1/info."""
    limits: Limits = Limits()
    token: str | None = field(default=None, repr=False)
    counts: Counter[str] = field(default_factory=Counter)
    """Cells so far, by state."""

    def info(self) -> dict[str, Any]:
        """What /v1/info says."""
        limit = self.limits.max_request_bytes
        ours = {"protocol": PROTOCOL, "reward": self.name, "images": ["npy", "png"], "max_request_bytes": limit}
        return {**self.about, **ours}

    def health(self) -> JSONResponse:
        """What /healthz says: 503 once a call hangs."""
        running_s = self.turns.running_s
        stuck = running_s > self.limits.stuck_after_s
        cells = {state.name.lower(): self.counts[state.name] for state in State}
        status = f"stuck: one call has been running for {running_s:.0f} s" if stuck else "ok"
        return JSONResponse({"status": status, "requests": self.turns.places, "cells": cells}, 503 if stuck else 200)

    async def score(self, batch: Batch) -> RewardResult:
        """Cells of a batch; a sample that the scorer cannot take fails alone."""
        question = batch.question

        def call() -> RewardResult:
            everyone = [True] * len(question.prompts)
            samples = (batch.images_NHWC, question.prompts, question.metadata)
            return score_safely(self.scorer, *samples, everyone, evaluation=question.evaluation)

        result = await self.turns.run(call)
        self.counts.update(State(int(state)).name for state in result.states)
        return result


def create_app(service: Service) -> FastAPI:
    """The server's application. /healthz asks for no token: whoever restarts a server need not know it."""
    app = FastAPI(title=f"MARBLE reward {service.name}", docs_url=None, redoc_url=None, openapi_url=None)
    guarded = [Depends(_guard(service.token))]

    @app.get("/healthz")
    async def healthz() -> Response:
        return service.health()

    @app.get("/v1/info", dependencies=guarded)
    async def info() -> Response:
        return JSONResponse(service.info())

    @app.post("/v1/score", dependencies=guarded)
    async def score(request: Request) -> Response:
        limits = service.limits
        try:
            with service.turns.place():
                batch = await read_batch(request, limits.max_request_bytes, limits.body_limit_s)
                result = await _unless_gone(request, service.score(batch))
        except BusyError as error:
            raise HTTPException(429, str(error), {"Retry-After": str(error.wait_s)}) from error
        except ClientDisconnect:
            return Response(status_code=CLIENT_GONE)
        return Response(encode_answer(result), media_type="application/json")

    return app


def _guard(token: str | None) -> Callable[[Request], Awaitable[None]]:
    """Lets through whoever carries the token."""
    wanted = None if token is None else f"Bearer {token}".encode()

    async def check(request: Request) -> None:
        given = request.headers.get("authorization", "").encode()
        if wanted is not None and not hmac.compare_digest(given, wanted):
            detail = "the bearer token is wrong" if given else "a bearer token is wanted"
            raise HTTPException(401, detail, {"WWW-Authenticate": "Bearer"})

    return check


async def _unless_gone(request: Request, work: Awaitable[T]) -> T:
    """The work's result. A client that gives up leaves the line, or each of its retries would be scored as well.

    Raises:
        ClientDisconnect: it has gone.
    """
    answer = asyncio.ensure_future(work)
    # The body has been read: the next thing to hear of the client is that it went.
    gone = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ClientDisconnect
        return answer.result()
    finally:
        gone.cancel()
        answer.cancel()
