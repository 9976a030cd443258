"""What a run does between iterations: checkpoints, evaluations, and the last checkpoint when it is asked to stop."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from actors import evaluation
from actors.metrics import HACKING
from actors.remote import ActorLostError, CallFailedError
from actors.results import Alarm, EvaluationResult, Which
from actors.rollout import Slot
from actors.run import Run
from actors.stop import RunStopped
from learner.stages import ends

SAVE_PATIENCE_S = 60.0
"""For the last checkpoint, which takes a second or two; `ray job stop` kills 3 s after its SIGTERM anyway."""


def after_iteration(run: Run, before: EvaluationResult) -> None:
    """What is due now. The checkpoint first: an evaluation that fails then costs nothing."""
    config, done = run.order.config, run.done
    if run.keeper.is_due(done, config.run.iterations):
        checkpoint(run)
    if _evaluation_is_due(run, done):
        assess(run, before, evaluate(run, done, "ema"))
    if run.keeper.last_saved == done:
        prune(run)


def _evaluation_is_due(run: Run, done: int) -> bool:
    config = run.order.config
    regular = config.eval.every > 0 and done > 0 and done % config.eval.every == 0
    return regular or done in ends(config.learner.stages)


def catch_up(run: Run, before: EvaluationResult) -> None:
    """A resumed run knows what its evaluations have said; one that was due when its last life ended is made now."""
    told = {(event.get("done"), event.get("reward")) for event in run.metrics.read() if event.get("event") == HACKING}
    for result in run.recalled:
        run.keeper.note(before, result)
        if _evaluation_is_due(run, result.iteration):
            tell(run, [a for a in run.watch.note(before, result) if (a.done, a.reward) not in told])
    if _evaluation_is_due(run, run.done) and run.done not in {result.iteration for result in run.recalled}:
        assess(run, before, evaluate(run, run.done, "ema"))
        prune(run)


def assess(run: Run, before: EvaluationResult, result: EvaluationResult) -> None:
    """Best checkpoint, early stop, alarms: what an evaluation leads to."""
    kept = run.keeper.note(before, result)
    tell(run, run.watch.note(before, result))
    if (kept or run.watch.verdict) and run.keeper.last_saved != run.done:
        checkpoint(run)


def tell(run: Run, alarms: Sequence[Alarm]) -> None:
    """Each alarm once: to the user, and into metrics.jsonl."""
    for alarm in alarms:
        run.metrics.hacking(alarm, run.elapsed_s)
        run.order.listener.on_warning(alarm.text)


def checkpoint(run: Run) -> None:
    """Rank 0 writes everything a resumed run needs, and the LoRA beside it. A stop request waits for it."""
    run.order.listener.on_stage("checkpoint", f"{run.done} iterations")
    run.team.learner.begin_save(run.keeper.root, run.done, _extra(run))
    run.team.wait_learner(lambda: None)
    _saved(run, run.team.learner.finish_save())


def _extra(run: Run) -> dict[str, Any]:
    return run.keeper.extra(run.harmonizer_state, run.done, run.prompts)


def _saved(run: Run, path: Path) -> None:
    run.keeper.last_saved = run.done
    run.metrics.checkpoint(run.done, path.name, run.elapsed_s)
    run.order.listener.on_checkpoint(path)


def prune(run: Run) -> None:
    """Only now that an evaluation may have found the new checkpoint to be the best."""
    run.team.learner.begin_prune(run.keeper.root, run.order.config.checkpoint.keep_last, run.keeper.best_paths())
    run.team.wait_learner(run.stop.check)


def evaluate(run: Run, iterations_done: int, which: Which) -> EvaluationResult:
    """The held-out scores at this point: read back where they are known, else drawn and scored."""
    order = run.order
    known = evaluation.read_evaluation(order.run_dir, iterations_done, order.config.judge_names)
    if known is not None:
        return known
    config, stage = order.config, "evaluation"
    if which == "ema":
        run.sync.push_eval(run.stop.check)
    slot = slot_of(which)
    draw = evaluation.make_draw(run.prompts.heldout, config.eval, config.eval_sampling, slot)

    def progress(drawn: int, cells_left: int) -> None:
        order.listener.on_stage(stage, f"{drawn}/{len(draw.tasks)} batches, {cells_left} scores to come")

    share = config.actors.max_failed_share
    result = evaluation.evaluate(run.team, draw, iterations_done, which, share, run.stop.check, progress)
    evaluation.write_evaluation(order.run_dir, result)
    if iterations_done >= run.done:  # else its line of an earlier life stands where it belongs
        run.metrics.evaluation(result, run.elapsed_s)
    order.listener.on_evaluation(result)
    return result


def slot_of(which: Which) -> Slot | None:
    """Which adapter an evaluation draws with. Before training it is none, also for a run that starts from a LoRA: the
    base is what every run, and `marble eval`, is held against."""
    return None if which == "before" else "eval"


def note_vitals(run: Run) -> None:
    """Peak memory and the like on record; nothing to lose a finished run over."""
    try:
        run.metrics.vitals(run.team.vitals(run.stop.check), run.done, run.elapsed_s)
    except (ActorLostError, CallFailedError, TimeoutError) as error:
        run.order.listener.on_warning(f"no actor's vitals on record: {error}")


def stopped(run: Run | None, signal_number: int) -> RunStopped:
    """Keeps every iteration that is done; the one under way is drawn again on resume."""
    if run is None:
        return RunStopped(signal_number, 0, None)
    keeper = run.keeper
    if run.done > max(0, keeper.last_saved):
        try:
            _saved(run, run.team.learner.save_now(keeper.root, run.done, _extra(run), SAVE_PATIENCE_S))
        except (ActorLostError, CallFailedError, TimeoutError) as error:
            run.order.listener.on_warning(f"no checkpoint of the last iterations: {error}")
    return RunStopped(signal_number, run.done, keeper.path(keeper.last_saved) if keeper.last_saved >= 0 else None)
