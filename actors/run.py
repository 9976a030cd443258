"""One run while it lives: what its stages share, and how it is brought up."""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from actors import evaluation, local_ray, preflight
from actors.keeper import Keeper, ResumePoint
from actors.ledger import Ledger
from actors.lock import RunLock
from actors.metrics import MetricsLog
from actors.pool_control import PoolControl
from actors.pool_stats import drop_pools
from actors.preflight import PromptSets
from actors.prompts import PromptSampler
from actors.remote import Remote
from actors.results import EvaluationResult, Listener
from actors.run_config import RunConfig
from actors.scaling import Requests, Resized
from actors.stop import StopRequest
from actors.team import Spawn, Team
from actors.watch import Watch
from actors.weight_sync import WeightSync
from harmonizer.harmonizer import Harmonizer
from learner.errors import UserError


@dataclass(frozen=True)
class Order:
    """What was asked for."""

    config: RunConfig
    run_dir: Path
    listener: Listener
    resume: bool
    address: str | None
    """Ray cluster to join."""


@dataclass
class Run:
    """A run whose actors are up."""

    order: Order
    team: Team
    prompts: PromptSets
    sampler: PromptSampler
    sync: WeightSync
    keeper: Keeper
    ledger: Ledger
    metrics: MetricsLog
    watch: Watch
    stop: StopRequest
    done: int = 0
    """Iterations done."""
    harmonizer_state: Mapping[str, Any] = field(default_factory=dict)
    """As of `done`: during a training step the actor itself may be ahead of it."""
    ema_alpha: dict[str, float] = field(default_factory=dict)
    """By reward; 0 where never solved."""
    recalled: list[EvaluationResult] = field(default_factory=list)
    """Evaluations of earlier lives of this run, the base's left out."""
    elapsed_before_s: float = 0.0
    """Of earlier lives of this run."""
    began_s: float = field(default_factory=time.monotonic)

    @property
    def elapsed_s(self) -> float:
        """Wall time of the run, over all its lives."""
        return self.elapsed_before_s + time.monotonic() - self.began_s


def bring_up(order: Order, remote: Remote, spawn: Spawn, with_ray: bool, stop: StopRequest, until: ExitStack) -> Run:
    """Lock, files, cluster, actors, state: whatever can go wrong does so here.

    Args:
        with_ray: connect to Ray; tests with stand-ins for it do not.
        until: takes what must be undone at the end, in reverse order.

    Raises:
        UserError: the run cannot start; everything that is wrong, as far as it can be seen at once.
    """
    config, began_s = order.config, time.monotonic()
    _take_run_dir(order, until)
    requests = Requests(order.run_dir)
    prompts = preflight.check_files(config)
    for warning in prompts.warnings:
        order.listener.on_warning(warning.text)
    keeper = Keeper(config.checkpoint, order.run_dir, config.followed(config.eval.best_by))
    ledger, metrics = Ledger(order.run_dir, config.reward_names, config.gradient_names), MetricsLog(order.run_dir)
    point = None
    if order.resume:
        point = keeper.resume_point(prompts, Harmonizer(config.gradient_names, config.harmonizer))
        metrics.read()  # before anything is dropped: what was noted since must not be lost over a bad line
    drop_pools(order.run_dir)  # an earlier life's figures
    sampler = PromptSampler(prompts.train, config.prompts.groups_per_iteration, config.run.seed)
    if with_ray:
        order.listener.on_stage("ray", "connecting")
        until.enter_context(local_ray.connected(config, order.address))
        preflight.check_cluster(config)
    # Ray takes SIGTERM for itself when it starts; from here on it is ours.
    until.enter_context(stop.handling())
    team = Team(config, remote, spawn, order.listener.on_warning)
    until.callback(team.close)
    sync = _start(order, team, point, stop)
    run = Run(order, team, prompts, sampler, sync, keeper, ledger, metrics, Watch(config), stop, began_s=began_s)
    _control_pools(run, requests, until)
    run.harmonizer_state = team.harmonizer_state(stop.check)
    run.ema_alpha = _ema_alpha(config, point)
    if point is not None:
        _go_on_from(run, point)
    baseline = evaluation.read_evaluation(order.run_dir, 0, config.judge_names) if point else None
    order.listener.on_start(config, baseline)
    return run


def _take_run_dir(order: Order, until: ExitStack) -> None:
    """
    Raises:
        UserError: no folder, another run's, or in use.
    """
    if not order.run_dir.is_dir():
        raise UserError(f"{order.run_dir} is not a folder")
    lock = RunLock(order.run_dir)
    warning = lock.acquire()
    until.callback(lock.release)
    if warning:
        order.listener.on_warning(warning)
    if not order.resume and (order.run_dir / "ledger").exists():
        raise UserError(f"{order.run_dir} holds a run already; go on with it by resuming, or choose another folder")


def _start(order: Order, team: Team, point: ResumePoint | None, stop: StopRequest) -> WeightSync:
    """All actors up, the learner where it was, and its `old` proved to be with every rollout actor."""
    team.start(stop.check, lambda detail: order.listener.on_stage("start", detail))
    team.load(None if point is None else point.path, None if point is None else point.harmonizer, stop.check)
    sync = WeightSync(team, team.learner.ready[0])
    sync.push_old(stop.check)
    return sync


def _control_pools(run: Run, requests: Requests, until: ExitStack) -> None:
    """From here on pools can be resized and tell how they are doing."""

    def on_resized(change: Resized, why: str) -> None:
        run.metrics.resized(change, why, run.done, run.elapsed_s)

    control = PoolControl(run.order.run_dir, requests, run.team.remote, run.team.pools, on_resized)
    run.team.attend(control)
    until.callback(control.write)


def _ema_alpha(config: RunConfig, point: ResumePoint | None) -> dict[str, float]:
    shares = point.harmonizer.get("ema", []) if point else []
    known = [0.0 if share is None else float(share) for share in shares] or [0.0] * len(config.gradient_names)
    return dict(zip(config.gradient_names, known, strict=True))


def _go_on_from(run: Run, point: ResumePoint) -> None:
    """The run directory as it was when the checkpoint was written, and the restart marked in it."""
    run.done = point.iterations_done
    run.elapsed_before_s = run.metrics.resume(run.done)
    run.ledger.truncate_after(run.done)
    run.keeper.drop_later_evaluations(run.done)
    run.recalled = run.keeper.recall(run.order.config.judge_names, run.order.listener.on_warning)
