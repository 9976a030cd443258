"""A reward server that misbehaves to order: what it does with each request for scores is written by the test."""

import json
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

INFO = {"protocol": 1, "reward": "stub", "images": ["npy", "png"], "max_request_bytes": 100_000}
GOOD = {"protocol": 1, "states": ["scored"], "scores": [0.5], "reasons": [""]}

Act = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """One connection; the server's acts decide."""

    server: "StubServer"
    body: bytes

    def do_GET(self) -> None:
        self.body = b""
        self.server.seen.append(self)
        act = self.server.info
        act(self) if callable(act) else reply(json.dumps(act))(self)

    def do_POST(self) -> None:
        self.body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append(self)
        acts = self.server.acts
        acts[min(self.server.num_posts, len(acts)) - 1](self)

    def log_message(self, *args: Any) -> None:
        pass


class StubServer(ThreadingHTTPServer):
    """Answers /v1/info with `info` and the n-th request for scores with the n-th act, or the last."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, acts: Sequence[Act], info: dict[str, Any] | Act | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.acts, self.info = acts, INFO if info is None else info
        self.seen: list[Handler] = []
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def num_posts(self) -> int:
        return sum(handler.command == "POST" for handler in self.seen)

    def handle_error(self, *args: Any) -> None:
        """Clients that hang up on it are what it is for."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *args: Any) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


def reply(body: str | bytes, status: int = 200, kind: str = "application/json", **headers: str) -> Act:
    """A whole answer."""
    data = body.encode() if isinstance(body, str) else body

    def act(handler: Handler) -> None:
        handler.send_response(status)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **named}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)

    return act


def answer(**changes: Any) -> Act:
    """The good answer to one sample, with some keys changed; ... leaves a key out."""
    return reply(json.dumps({key: value for key, value in {**GOOD, **changes}.items() if value is not ...}))


def nothing(handler: Handler) -> None:
    """Hangs up without a word."""


def hang(handler: Handler) -> None:
    """Says nothing for longer than anybody waits."""
    time.sleep(60)


def cut_short(handler: Handler) -> None:
    """Promises more than it sends."""
    data = json.dumps(GOOD).encode()
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data[:20])


def drip(handler: Handler) -> None:
    """Sends header lines for ever, each sooner than any limit on a single read."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    for number in range(3000):
        handler.wfile.write(f"X-Drip-{number}: x\r\n".encode())
        handler.wfile.flush()
        time.sleep(0.02)
