"""An application on a socket of ours: uvicorn in a thread, so that tests and the command stop it the same way."""

import errno
import logging
import socket
import threading

import uvicorn
from fastapi import FastAPI

from learner.errors import UserError

START_LIMIT_S = 60.0
"""For uvicorn to listen; it takes a moment, more on a busy machine."""
POLL_S = 0.02


def bind(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 takes a free one.

    Bound before anything is loaded, so that a taken port is known at once; it listens only when there is an answer.

    Raises:
        UserError: no such host, or the port is taken or not ours to take.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UserError(f"--host {host}: {(error.strerror or str(error)).lower()}") from error
    try:
        # Connections of a server that has just ended hold its port for a minute otherwise.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as error:
        sock.close()
        why = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used: {(error.strerror or '').lower()}"
        raise UserError(f"--port {port} on {host} {why}") from error
    return sock


def url_of(sock: socket.socket) -> str:
    """Where a bound socket is reached."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server:
    """A running server. Stopping lets the requests that are in finish, within the time of grace."""

    def __init__(self, app: FastAPI, sock: socket.socket, grace_s: int) -> None:
        """Start it; it answers when this returns.

        Raises:
            RuntimeError: it did not come up.
        """
        self.url = url_of(sock)
        # uvicorn's own levels: it reports every cancelled request and every stop.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=grace_s
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([sock],), name="http", daemon=True)
        self._thread.start()
        waited_s = 0.0
        while not self._server.started:
            if not self._thread.is_alive() or waited_s > START_LIMIT_S:
                raise RuntimeError(f"uvicorn did not come up on {self.url}")
            self._thread.join(POLL_S)
            waited_s += POLL_S

    @property
    def alive(self) -> bool:
        """Whether it still serves."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Take no more requests, and return when those that are in are answered or their time is up."""
        self._server.should_exit = True
        self._thread.join()

    def hurry(self) -> None:
        """Have a stop under way wait no longer."""
        self._server.force_exit = True
