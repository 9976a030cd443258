"""The corridor: holds references and small numbers, opens no image and no latent.

    groups -> draw_and_score -> train -> sync -> record

Between iterations, at their times: checkpoints and evaluations (actors.milestones).
Letters: K rewards, N samples.
"""

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from actors import local_ray, milestones, tally
from actors.evaluation import summarise
from actors.harvest import Draw, Harvest, draw_and_score
from actors.learner_group import DrawnTask
from actors.ledger import LedgerEntry
from actors.prompts import Prompt
from actors.remote import RayRemote, Remote
from actors.results import (
    ActorVitals,
    EvaluationResult,
    IterationResult,
    Listener,
    RunSummary,
    SilentListener,
)
from actors.run import Order, Run, bring_up
from actors.run_config import RunConfig
from actors.stop import RunStopped, StopRequest, StopRequestedError
from actors.tally import Stopwatch
from actors.tasks import group_ids, make_tasks, training_samples
from actors.team import Spawn, ray_spawn
from learner.types import IterationReport, RolloutTask, TrainBatch

__all__ = [
    "Controller",
    "EvaluationResult",
    "IterationResult",
    "Listener",
    "RunStopped",
    "RunSummary",
    "SilentListener",
]


class Controller:
    """One run: `with Controller(...) as controller: summary = controller.run()`. Leaves no actor behind."""

    def __init__(
        self,
        config: RunConfig,
        run_dir: Path,
        listener: Listener,
        resume: bool = False,
        address: str | None = None,
        remote: Remote | None = None,
        spawn: Spawn | None = None,
    ) -> None:
        """Nothing is started yet.

        Args:
            run_dir: an existing folder that the learner's node sees too: checkpoints are written there.
            resume: go on from the newest whole checkpoint in it.
            address: Ray cluster to join; without it a local Ray is started, or the one that is already there is used.
            remote, spawn: stand-ins for Ray, for tests.
        """
        self.config, self.listener = config, listener
        self.identity = local_ray.new_identity(config.run.name)
        self.stop = StopRequest()
        self._order = Order(config, run_dir.absolute(), listener, resume, address)
        self._remote = remote or RayRemote()
        self._spawn = spawn or ray_spawn(self.identity)
        self._with_ray = spawn is None
        self._until = ExitStack()
        self._live: Run | None = None
        self._record_s = 0.0
        """What recording the last iteration took; counted to the next one."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kills the run's actors, leaves Ray as it was found, gives the run directory back."""
        self._until.close()

    def run(self) -> RunSummary:
        """Trains to the last iteration; evaluates before and after.

        Raises:
            UserError: the run cannot start or go on; the message says why.
            RunStopped: it was asked to stop.
        """
        try:
            self._live = bring_up(self._order, self._remote, self._spawn, self._with_ray, self.stop, self._until)
            return self._to_the_end(self._live)
        except StopRequestedError:
            raise milestones.stopped(self._live, self.stop.signal_number) from None
        finally:
            self.close()

    def vitals(self) -> tuple[ActorVitals, ...]:
        """What every actor says of itself now, peak memory above all. Only between iterations."""
        return self._run.team.vitals(self.stop.check)

    def _to_the_end(self, run: Run) -> RunSummary:
        before = milestones.evaluate(run, 0, "before")
        milestones.catch_up(run, before)
        while run.done < self.config.run.iterations and not run.watch.verdict:
            self._iteration(run.done)
            milestones.after_iteration(run, before)
        milestones.note_vitals(run)
        after = milestones.evaluate(run, run.done, "ema")
        milestones.tell(run, run.watch.note(before, after))
        return self._summary(before, after)

    def _summary(self, before: EvaluationResult, after: EvaluationResult) -> RunSummary:
        run, names = self._run, self.config.reward_names
        found = summarise(before, after)
        trained, heldout = ({k: v for k, v in found.items() if (k in names) == is_in} for is_in in (True, False))
        early = run.watch.verdict if run.done < self.config.run.iterations else ""
        return RunSummary(trained, run.done, run.elapsed_s, self.config.run.seed, heldout, early)

    # -- the path of a batch -------------------------------------------------------------------------------------------

    def _iteration(self, index: int) -> None:
        """One batch through every room, each once."""
        watch = Stopwatch(self._remote, self._record_s)
        prompts = self._groups(index)
        tasks = self._tasks(index, prompts)
        harvest = self._draw_and_score(index, prompts, tasks)
        watch.add("rollout", harvest.rollout_s)
        watch.add("rewards", harvest.rewards_s)
        with watch.stage("learner"):
            report = self._train(index, prompts, tasks, harvest)
        watch.move("learner", "probe", report.timings_s.get("probe", 0.0))
        with watch.stage("sync"):
            self._sync(report)
        self._record(prompts, harvest, report, watch)

    def _groups(self, index: int) -> tuple[Prompt, ...]:
        """[N] the prompt of every sample: groups of G, drawn equally from the sources."""
        return training_samples(self._run.sampler.groups(index), self.config.prompts.group_size)

    def _tasks(self, index: int, prompts: tuple[Prompt, ...]) -> tuple[RolloutTask, ...]:
        chunk = self.config.prompts.chunk_size or self.config.prompts.group_size
        return make_tasks("train", index, self.config.run.seed, prompts, chunk)

    def _draw_and_score(self, index: int, prompts: tuple[Prompt, ...], tasks: tuple[RolloutTask, ...]) -> Harvest:
        """Rollouts by the published `old`, and scores by every reward that applies, as the images come in.

        Raises:
            UserError: too many failed cells, or a policy that was never published drew a task.
        """
        config, run = self.config, self._run

        def progress(drawn: int, cells_left: int) -> None:
            if drawn < len(tasks):
                self.listener.on_stage("rollout", f"{drawn}/{len(tasks)} tasks")
            else:
                self.listener.on_stage("rewards", f"{cells_left} scores to come")

        draw = Draw(tasks, prompts, "old", config.sampling, evaluation=False, rewards=config.scored_in(index))
        harvest = draw_and_score(run.team, draw, config.actors.max_failed_share, self.stop.check, progress)
        for task, meta in enumerate(harvest.metas):
            run.sync.check_drawn(meta, f"iteration {index}, task {task}")
        return harvest

    def _train(
        self, index: int, prompts: tuple[Prompt, ...], tasks: tuple[RolloutTask, ...], harvest: Harvest
    ) -> IterationReport:
        """The learner's steps on the batch; each rank fetches the latents of its own samples by reference."""
        run, groups = self._run, self.config.prompts
        self.listener.on_stage("learner", f"iteration {index + 1}")
        batch = TrainBatch(
            iteration=index,
            prompts=tuple(prompt.text for prompt in prompts),
            group_ids=group_ids(groups.groups_per_iteration, groups.group_size),
            scores_KN=harvest.scores_KN,
            states_KN=harvest.states_KN,
            latents=(),
        )
        drawn = [DrawnTask(task, latents) for task, latents in zip(tasks, harvest.latents, strict=True)]
        run.team.learner.begin_train(batch, drawn)
        run.team.wait_learner(self.stop.check)
        return run.team.learner.finish_train()

    def _sync(self, report: IterationReport) -> None:
        """The new `old` to every rollout actor, if there is one, with proof of its arrival.

        From here to the end of `_record` a stop request waits: the iteration is done, or it never was.
        """
        run = self._run
        self.listener.on_stage("sync", f"policy {report.policy_version}")
        run.sync.after(report, self.config.learner.lr, _go_on)
        run.harmonizer_state = run.team.harmonizer_state(_go_on)

    def _record(self, prompts: tuple[Prompt, ...], harvest: Harvest, report: IterationReport, watch: Stopwatch) -> None:
        """Ledger, metrics, listener; with that the iteration is done."""
        run, timings_s = self._run, watch.finish()
        began_s = self._remote.now_s()
        run.ledger.append(report.iteration, LedgerEntry(prompts, harvest, report, timings_s))
        run.ema_alpha = tally.ema_alpha(report, run.ema_alpha)
        result = tally.result(self.config, harvest, report, run.ema_alpha, timings_s, watch.bytes_moved)
        run.metrics.iteration(result, run.elapsed_s)
        run.done = result.done
        self.listener.on_iteration(result)
        self._record_s = self._remote.now_s() - began_s

    @property
    def _run(self) -> Run:
        assert self._live is not None, "the run is not up"
        return self._live


def _go_on() -> None:
    """A check that never asks to stop."""
