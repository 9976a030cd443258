"""One HTTP exchange that ends in a body or in one error that says why, within a time limit that holds for all of it.

Limits of the client library are for each read: a server that sends a byte every few seconds keeps to them for ever.
The limit here is for the whole exchange, tries and waits included.
"""

import asyncio
import os
import random
import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import urlsplit

import httpx2

from rewards.retrying import Backoff, is_transient, retry_after_s
from rewards.wire import Part, excerpt

MAX_ANSWER_BYTES = 16 * 2**20
"""A cell takes some 50 bytes, a failed one up to 2 kB; whoever sends more is no reward server."""

_CONTENT_REFUSED = (400, 422)

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Hosts that no proxy of the environment stands in front of."""


class CallError(Exception):
    """No usable answer came; the text says what was tried and what came, without the address."""


class RefusedError(CallError):
    """The server does not take what was sent (400 or 422): a part of it may be at fault, and the rest be taken."""


class UnreachableError(CallError):
    """The server could not be reached, or was too busy or broken to answer, as often as it was asked."""


@dataclass(frozen=True)
class Call:
    """One request, and how patiently it is made."""

    method: str
    url: str
    limit_s: float
    """For everything: tries, waits between them, and the answer's last byte."""
    connect_timeout_s: float
    backoff: Backoff
    headers: dict[str, str] = field(default_factory=dict, repr=False)  # they may hold a token
    parts: Sequence[Part] = field(default=(), repr=False)
    """Of a form ..."""
    json: bytes | None = field(default=None, repr=False)
    """... or a JSON document."""


@dataclass(frozen=True)
class _Refusal:
    """One try without a usable answer."""

    reason: str
    transient: bool
    asked_s: float | None = None
    """What the server asks to wait."""
    of_content: bool = False
    """What was sent is at fault, not the moment nor the address."""


def send(call: Call) -> bytes:
    """The JSON body of the answer.

    Raises:
        UnreachableError: no answer in time, or only errors of the connection, 408, 425, 429 and 5xx.
        RefusedError: 400 or 422.
        CallError: another answer than 200 with JSON.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_Exchange(call).run())
    # A notebook or an async actor has a loop of its own in this thread, and there can be no second one.
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(asyncio.run, _Exchange(call).run()).result()


def read_token(variable: str | None) -> str | None:
    """What an environment variable holds: a secret itself stands in no recipe, log or ledger.

    Raises:
        ValueError: it is not set where the scorer runs, or holds what no header can carry.
    """
    if variable is None:
        return None
    token = os.environ.get(variable, "").strip()
    if not token:
        raise ValueError(f"token_env: the environment variable {variable} is not set where the scorer runs")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(f"token_env: the environment variable {variable} holds what no HTTP header can carry")
    return token


class _Exchange:
    """The tries of one call."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._tries = 0
        self._last = ""

    async def run(self) -> bytes:
        call = self._call
        try:
            async with asyncio.timeout(call.limit_s) as limit:
                async with self._client() as client:
                    return await self._until_answered(client, limit)
        except TimeoutError as error:
            raise UnreachableError(self._said(f"no answer within {call.limit_s:g} s")) from error

    def _client(self) -> httpx2.AsyncClient:
        # asyncio.timeout above bounds reading and writing.
        timeout = httpx2.Timeout(None, connect=self._call.connect_timeout_s)
        use_proxies = urlsplit(self._call.url).hostname not in _LOOPBACK
        return httpx2.AsyncClient(timeout=timeout, trust_env=use_proxies, verify=_certificates())

    async def _until_answered(self, client: httpx2.AsyncClient, limit: asyncio.Timeout) -> bytes:
        while True:
            self._tries += 1
            got = await self._try(client)
            if isinstance(got, bytes):
                return got
            self._last = got.reason
            if not got.transient:
                raise (RefusedError if got.of_content else CallError)(got.reason)
            if self._tries > self._call.backoff.retries:
                raise UnreachableError(self._said(""))
            delay_s = self._call.backoff.delay_s(self._tries, random.random(), got.asked_s)
            if asyncio.get_running_loop().time() + delay_s >= (limit.when() or 0.0):
                raise UnreachableError(
                    self._said(f"no time for a wait of {delay_s:.1f} s ({self._call.limit_s:g} s in all)")
                )
            await asyncio.sleep(delay_s)

    def _said(self, why: str) -> str:
        """The reason with the tries that led there and what the last whole one met."""
        times = f"{self._tries} {'try' if self._tries == 1 else 'tries'}"
        return "; ".join(part for part in (why, f"{times}, the last: {self._last}" if self._last else times) if part)

    async def _try(self, client: httpx2.AsyncClient) -> bytes | _Refusal:
        call = self._call
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", **call.headers}
        if call.json is not None:
            headers["Content-Type"] = "application/json"
        try:
            async with client.stream(
                call.method, call.url, headers=headers, files=list(call.parts) or None, content=call.json
            ) as response:
                return await _judged(response)
        except httpx2.InvalidURL as error:
            return _Refusal(f"no valid address: {error}", transient=False)
        except httpx2.RequestError as error:
            return _Refusal(f"{type(error).__name__}: {error}".removesuffix(": "), transient=True)


@lru_cache(maxsize=1)
def _certificates() -> ssl.SSLContext:
    """The authorities to trust. Reading them takes tens of milliseconds, more than a short call to a near host."""
    return httpx2.create_ssl_context()


async def _judged(response: httpx2.Response) -> bytes | _Refusal:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            return _Refusal(f"the answer has more than {MAX_ANSWER_BYTES} bytes", transient=False)
    kind = response.headers.get("content-type", "no content type").split(";")[0].strip().lower()
    if response.status_code == httpx2.codes.OK and kind == "application/json":
        return bytes(body)
    reason = f"status {response.status_code} {response.reason_phrase} with {kind}: {excerpt(bytes(body))}"
    asked_s = retry_after_s(response.headers.get("retry-after"), datetime.now(UTC))
    return _Refusal(reason, is_transient(response.status_code), asked_s, response.status_code in _CONTENT_REFUSED)
