"""When checkpoints are written, which are kept, and what a resumed run starts from."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.config import CheckpointConfig
from actors.evaluation import evaluated, evaluation_path, gain, read_evaluation
from actors.preflight import PromptSets
from actors.results import EvaluationResult
from harmonizer.harmonizer import Harmonizer
from learner import json_text
from learner.errors import CheckpointError, UserError


@dataclass(frozen=True)
class ResumePoint:
    """A whole checkpoint and what of it the controller itself needs."""

    path: Path
    iterations_done: int
    harmonizer: Mapping[str, Any]


class Keeper:
    """Checkpoint folders of one run."""

    def __init__(self, config: CheckpointConfig, run_dir: Path, followed: Sequence[str] | None = None) -> None:
        """
        Args:
            followed: rewards over which the best is the one with the greatest mean gain; None is all of them.
        """
        self.root = run_dir / "checkpoints"
        self.last_saved = -1
        """Iterations done at the last checkpoint; -1 before the first."""
        self._config, self._run_dir, self._followed = config, run_dir, followed
        self._gains: dict[int, float] = {}

    def is_due(self, iterations_done: int, num_iterations: int) -> bool:
        """Every n-th iteration, and the last."""
        return iterations_done % self._config.every == 0 or iterations_done == num_iterations

    def note(self, before: EvaluationResult, result: EvaluationResult) -> bool:
        """Takes an evaluation into account; returns whether its policy is among those to keep.

        One in which no followed reward has a scored cell is never the best.
        """
        figure = gain(before, result, self._followed)
        if result.which != "before" and math.isfinite(figure):
            self._gains[result.iteration] = figure
        return result.iteration in self._best()

    def best_paths(self) -> list[Path]:
        """Checkpoints to keep whatever their age."""
        return [self.path(done) for done in self._best() if self.path(done).is_dir()]

    def path(self, iterations_done: int) -> Path:
        """Where a checkpoint lies."""
        return self.root / f"{iterations_done:06d}"

    def _best(self) -> list[int]:
        """The best evaluations so far; of equals, the earlier."""
        return sorted(self._gains, key=lambda done: (-self._gains[done], done))[: self._config.keep_best]

    def extra(self, harmonizer: Mapping[str, Any], iterations_done: int, prompts: PromptSets) -> dict[str, Any]:
        """What goes into a checkpoint's state beside the learner's."""
        return {"harmonizer": dict(harmonizer), "iterations_done": iterations_done, "prompts": digest(prompts)}

    def resume_point(self, prompts: PromptSets, harmonizer: Harmonizer) -> ResumePoint:
        """The newest whole checkpoint.

        Args:
            prompts: of the run.
            harmonizer: of the run's recipe, to see that it takes the state; it is left with it.

        Raises:
            CheckpointError: there is none, it was written over other prompts, or its state is none of a run's.
        """
        # Not at the top: it loads torch, which a fresh run's driver does without.
        from learner import checkpoint

        path = checkpoint.latest(self.root)
        if path is None:
            torn = any(self.root.glob("[0-9]*")) if self.root.is_dir() else False
            what = "no whole checkpoint, only torn ones" if torn else "no checkpoint"
            raise CheckpointError(f"nothing to resume: {what} in {self.root}")
        state = json_text.parse((path / checkpoint.STATE).read_bytes())
        problem = _state_problem(state, harmonizer)
        if problem:
            raise CheckpointError(
                f"cannot resume from {path}: {checkpoint.STATE} {problem}; "
                "without this checkpoint an older one is taken"
            )
        if state.get("prompts") != digest(prompts):
            raise CheckpointError(f"cannot resume from {path}: the prompt files have changed since")
        self.last_saved = state["iterations_done"]
        return ResumePoint(path, self.last_saved, state["harmonizer"])

    def drop_later_evaluations(self, iterations_done: int) -> None:
        """Of iterations that will be done again."""
        for done in evaluated(self._run_dir):
            if done > iterations_done:
                evaluation_path(self._run_dir, done).unlink()

    def recall(self, reward_names: Sequence[str], warn: Callable[[str], None]) -> list[EvaluationResult]:
        """The evaluations of the run's earlier lives, the base's left out, in their order.

        One that cannot be read gets another name; what is still needed of it is drawn and scored again.
        """
        results: list[EvaluationResult] = []
        for done in evaluated(self._run_dir):
            try:
                result = read_evaluation(self._run_dir, done, reward_names)
            except UserError as error:
                path = evaluation_path(self._run_dir, done)
                aside = path.rename(path.with_name(f"{path.name}.unreadable"))
                warn(f"{error}; it is now {aside.name}")
                continue
            if result is not None and done:
                results.append(result)
        return results


def _state_problem(state: Mapping[str, Any], harmonizer: Harmonizer) -> str:
    """What of a whole checkpoint's state the controller cannot use; empty where it is as :meth:`Keeper.extra` wrote."""
    if type(state.get("iterations_done")) is not int or state["iterations_done"] < 0:
        return f"has no count `iterations_done`, got {state.get('iterations_done')!r}"
    for part in ("learner", "harmonizer"):
        if not isinstance(state.get(part), dict):
            return f"has no mapping `{part}`"
    try:
        harmonizer.load_state_dict(state["harmonizer"])
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        return f"does not fit: {error}"
    return ""


def digest(prompts: PromptSets) -> str:
    """SHA-256 over ids, texts and metadata of all prompts that a run draws from, in their order."""
    everything = [*(p for source in prompts.train.values() for p in source), *prompts.heldout]
    lines = (json.dumps([p.prompt_id, p.text, dict(p.metadata)], sort_keys=True) for p in everything)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
