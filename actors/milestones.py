"""What a run does between iterations: checkpoints, evaluations, and the last checkpoint when it is asked to stop."""

import time
from collections.abc import Callable

from actors import evaluation
from actors.ensemble import MemberFailedError
from actors.results import EvaluationResult, Which
from actors.rollout import Slot
from actors.run import Run
from actors.stop import RunStopped, StopRequestedError
from learner.errors import UserError

SAVE_PATIENCE_S = 60.0
"""For the checkpoint of a run that was asked to stop; who sent SIGTERM kills earlier if it wants to."""


def after_iteration(run: Run, before: EvaluationResult) -> None:
    """What is due now. The checkpoint first: an evaluation that fails then costs nothing."""
    config, done = run.order.config, run.done
    if run.keeper.is_due(done, config.run.iterations):
        checkpoint(run, run.stop.check_patiently)
    if config.eval.every and done % config.eval.every == 0:
        kept = run.keeper.note(before, evaluate(run, done, "ema"))
        if kept and run.keeper.last_saved != done:
            checkpoint(run, run.stop.check_patiently)
    if run.keeper.last_saved == done:
        prune(run)


def checkpoint(run: Run, check: Callable[[], None]) -> None:
    """Rank 0 writes everything a resumed run needs, and the LoRA beside it."""
    learner, keeper = run.team.learner, run.keeper
    run.order.listener.on_stage("checkpoint", f"{run.done} iterations")
    learner.begin_harmonizer_state()
    run.team.wait_learner(check)
    extra = keeper.extra(learner.finish_harmonizer_state(), run.done, run.prompts)
    learner.begin_save(keeper.root, run.done, extra)
    run.team.wait_learner(check)
    path = learner.finish_save()
    keeper.last_saved = run.done
    run.metrics.checkpoint(run.done, path.name, run.elapsed_s)
    run.order.listener.on_checkpoint(path)


def prune(run: Run) -> None:
    """Only now that an evaluation may have found the new checkpoint to be the best."""
    run.team.learner.begin_prune(run.keeper.root, run.order.config.checkpoint.keep_last, run.keeper.best_paths())
    run.team.wait_learner(run.stop.check_patiently)


def evaluate(run: Run, iterations_done: int, which: Which) -> EvaluationResult:
    """The held-out scores at this point: read back where they are known, else drawn and scored."""
    order = run.order
    known = evaluation.read_evaluation(order.run_dir, iterations_done, order.config.reward_names)
    if known is not None:
        return known
    config, stage = order.config, "evaluation"
    if which == "ema":
        run.sync.push_eval(run.stop.check)
    slot = slot_of(which, config.policy.init_lora)
    draw = evaluation.make_draw(run.prompts.heldout, config.eval, config.eval_sampling, slot)

    def progress(drawn: int, cells_left: int) -> None:
        order.listener.on_stage(stage, f"{drawn}/{len(draw.tasks)} batches, {cells_left} scores to come")

    share = config.actors.max_failed_share
    result = evaluation.evaluate(run.team, draw, iterations_done, which, share, run.stop.check, progress)
    evaluation.write_evaluation(order.run_dir, result)
    run.metrics.evaluation(result, run.elapsed_s)
    order.listener.on_evaluation(result)
    return result


def slot_of(which: Which, init_lora: str | None) -> Slot | None:
    """Which adapter an evaluation draws with: before training, the base, or the LoRA the run starts from."""
    return None if which == "before" and init_lora is None else "eval"


def stopped(run: Run | None, signal_number: int) -> RunStopped:
    """Keeps what is done, where the learner stands between two iterations and there is time."""
    if run is None:
        return RunStopped(signal_number, 0, None)
    deadline_s = time.monotonic() + SAVE_PATIENCE_S

    def in_time() -> None:
        if time.monotonic() > deadline_s:
            raise StopRequestedError(f"it took longer than {SAVE_PATIENCE_S:g} s")

    run.team.abandon_work()
    keeper = run.keeper
    if run.at_boundary and run.done > max(0, keeper.last_saved):
        try:
            checkpoint(run, in_time)
        except (StopRequestedError, UserError, MemberFailedError) as error:
            run.order.listener.on_warning(f"no checkpoint of the last iterations: {error}")
    return RunStopped(signal_number, run.done, keeper.path(keeper.last_saved) if keeper.last_saved >= 0 else None)
