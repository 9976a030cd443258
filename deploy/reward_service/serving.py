"""From what was typed to a reward that answers: which scorer, its start and self-test, and an orderly end."""

import json
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType
from typing import Any

from pydantic import ValidationError

from deploy import overrides
from deploy.errors import ProblemsError
from deploy.recipe import load_recipe
from deploy.record import software
from deploy.reward_service.app import Limits, Service, create_app
from deploy.reward_service.server import Server, bind
from deploy.reward_service.turns import Turns
from learner.errors import UserError
from rewards import http_call
from rewards.config import RewardConfig
from rewards.contract import Scorer
from rewards.dotted import nearest
from rewards.registry import SelfTestable, build_scorer, self_test
from rewards.results import describe

MIN_TEST_SIDE = 32
"""Pixels; the self-test's known image is not legible below."""
DEFAULT_TEST_SIDE = 256
LOOPBACK = ("127.0.0.1", "::1", "localhost")
ALIVE_POLL_S = 1.0


@dataclass(frozen=True)
class Order:
    """What was typed."""

    name: str
    recipe: Path | None
    sets: Sequence[str]
    args: Sequence[str]
    resolution: int | None
    host: str
    port: int
    token_env: str | None
    limits: Limits
    grace_s: int
    as_json: bool


@dataclass(frozen=True)
class Chosen:
    """The scorer to serve."""

    config: RewardConfig
    side: int
    """Pixels of the self-test's image."""


def serve(order: Order) -> int:
    """Serve until SIGTERM or Ctrl-C; returns the exit code.

    Raises:
        UserError: no such reward, it cannot start or score the known image, no token, or the port is taken.
    """
    chosen = choose(order)
    token = read_token(order.token_env)
    with closing(bind(order.host, order.port)) as sock:
        turns = Turns(order.limits.max_places)
        scorer = turns.submit(lambda: started_scorer(order.name, chosen)).result()
        service = Service(order.name, scorer, turns, about(scorer, chosen.config), order.limits, token)
        server = Server(create_app(service), sock, order.grace_s)
        # Until here a signal ends the process at once: there is nothing to finish.
        with _signals(server.hurry) as asked_to_stop:
            _announce(order, server.url, token)
            while not asked_to_stop.wait(ALIVE_POLL_S):
                if not server.alive:
                    raise RuntimeError("the HTTP server has ended by itself")
            server.stop()
        turns.close()
    return 0


def choose(order: Order) -> Chosen:
    """The recipe's reward, or a scorer with the args of the command line.

    Raises:
        UserError: there is no such thing, its args do not fit, or options that do not go together.
    """
    if order.recipe is None:
        if order.sets:
            raise UserError("--set changes a recipe, and --recipe names none; a scorer's own arguments go into --arg")
        args = _args(order.args)
        try:
            return Chosen(RewardConfig(scorer=order.name, args=args), order.resolution or DEFAULT_TEST_SIDE)
        except ValidationError as error:
            raise ProblemsError([_problem(dict(e), order.name) for e in error.errors(include_url=False)]) from error
    if order.args:
        raise UserError(f"--arg goes without --recipe; with it write --set rewards.{order.name}.args.KEY=VALUE")
    config = load_recipe(order.recipe, order.sets).config
    names = config.judge_names
    if order.name not in names:
        hint = nearest(order.name, list(names))
        raise UserError(f"{order.recipe}: no reward {order.name!r}{hint} (rewards: {', '.join(names)})")
    side = order.resolution or max(MIN_TEST_SIDE, config.policy.resolution)
    return Chosen(config.scorer(order.name), side)


def _args(texts: Sequence[str]) -> dict[str, Any]:
    args: dict[str, Any] = {}
    for text in texts:
        override = overrides.parse(text, "--arg")
        if len(override.path) != 1:
            raise UserError(f"--arg {text}: wants one name of an argument, e.g. batch_size=16")
        args[str(override.path[0])] = override.value
    return args


def _problem(error: dict[str, Any], name: str) -> str:
    where = ".".join(str(part) for part in error["loc"])
    return f"{name}: {where}: {error['msg'].removeprefix('Value error, ')}, got {error['input']!r}"


def read_token(variable: str | None) -> str | None:
    """The secret that clients must carry; None lets everybody in.

    Raises:
        UserError: the variable is not set (serving without a token that was asked for would be worse), or holds what no
            client can send.
    """
    try:
        return http_call.read_token(variable)
    except ValueError as error:
        raise UserError(f"--{str(error).replace('_', '-', 1)}") from error


def started_scorer(name: str, chosen: Chosen) -> Scorer:
    """The scorer, after it has scored one known image.

    Raises:
        UserError: it cannot be built or cannot score, with its own reason.
    """
    try:
        scorer = build_scorer(name, chosen.config)
        self_test(scorer, chosen.side)
    except ValueError as error:
        raise UserError(f"{name}: {str(error).removeprefix(f'rewards.{name}.')}") from error
    # A scorer is anyone's code and may raise anything, sys.exit's own too.
    except (Exception, SystemExit) as error:
        raise UserError(f"{name}: {describe(error)}") from error
    return scorer


def about(scorer: Scorer, config: RewardConfig) -> dict[str, Any]:
    """What /v1/info says beyond the contract's needs: scorer, range of its scores where it knows one, versions."""
    low, high = getattr(scorer, "score_range", (-math.inf, math.inf))
    return {
        "scorer": config.scorer,
        "range": [bound if math.isfinite(bound) else None for bound in (float(low), float(high))],
        "self_test_metadata": dict(scorer.self_test_metadata()) if isinstance(scorer, SelfTestable) else {},
        "versions": {"marble": _our_version(), **software()},
    }


def _our_version() -> str | None:
    try:
        return version("marble-t2i")
    except PackageNotFoundError:
        return None  # a clone that is not installed


def _announce(order: Order, url: str, token: str | None) -> None:
    if token is None and order.host not in LOOPBACK:
        print(f"warning: anyone who reaches {url} can use it; --token-env asks for a token", file=sys.stderr)
    if order.as_json:
        print(json.dumps({"reward": order.name, "url": url, "pid": os.getpid()}), flush=True)
    else:
        print(f"serving {order.name} on {url} (Ctrl-C stops it)", flush=True)


@contextmanager
def _signals(hurry: Callable[[], None]) -> Iterator[threading.Event]:
    """The event that SIGTERM or Ctrl-C sets: that is how a service is stopped, and no error. A second one hurries."""
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            hurry()
        asked.set()

    former = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield asked
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
