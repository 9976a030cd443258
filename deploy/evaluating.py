"""What `marble eval` does: the same held-out prompts drawn by the base and by a LoRA, scored by every reward.

Rollout actors and reward pools are those of a run; there is no learner. The LoRA is pushed as a run pushes its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actors.prompts import Prompt, PromptFormat, read_prompts
from actors.results import EvaluationResult, RewardSummary, Which
from actors.run_config import RunConfig
from deploy.drawing import lora_of, owning_run, with_lora
from deploy.errors import ProblemsError
from deploy.files import to_json
from deploy.libraries import quiet
from deploy.paths import SECTIONS
from deploy.recipe import load_recipe
from deploy.record import evaluation_record
from deploy.rundir import RunDir, load_run
from learner.errors import UserError

if TYPE_CHECKING:
    from actors.rollout import Loaded
    from actors.team import Team

FORMATS: dict[str, PromptFormat] = {".txt": "lines", ".jsonl": "geneval", ".parquet": "parquet"}


@dataclass(frozen=True)
class Subject:
    """What is evaluated, and with what."""

    lora: Path
    config: RunConfig
    """Its policy starts from the LoRA."""
    prompts: tuple[Prompt, ...]


def evaluate_lora(
    what: Path, recipe: Path | None, prompts: Path | None, source: str | None, address: str | None, as_json: bool
) -> None:
    """Evaluate base and LoRA, and print both.

    Raises:
        UserError: no such run, LoRA or prompts, or something could not be loaded or scored.
    """
    subject = find_subject(what, recipe, prompts, source)
    before, after = run_evaluation(subject, address)
    # Not at the top: it loads ray.
    from actors.evaluation import summarise

    rewards = summarise(before, after)
    if as_json:
        print(to_json(report(subject, rewards, before, after)))
        return
    from rich.console import Console

    from deploy import summary

    trained, heldout = _sections(subject.config, rewards)
    Console().print(summary.table(trained, "base", "LoRA", heldout))


def find_subject(what: Path, recipe: Path | None, prompts: Path | None, source: str | None) -> Subject:
    """LoRA, recipe and prompts of an evaluation.

    Raises:
        UserError: one of them is missing, or does not fit.
    """
    from actors.evaluation import heldout
    from actors.prompts import read_sources

    if source is not None and prompts is None:
        raise UserError(f"--source {source} says what --prompts stands in for; without --prompts it means nothing")
    is_run = RunDir(what.absolute()).config.is_file()
    lora = lora_of(load_run(what)[0]) if is_run else what
    if not lora.exists():
        raise UserError(f"{what} is neither a run directory nor a LoRA: no such file or folder")
    owner = what if is_run else owning_run(lora)
    if recipe is None and owner is None:
        raise UserError(f"{what} lies in no run directory; name its base, prompts and rewards with --recipe")
    config = load_recipe(recipe).config if recipe is not None else load_run(owner or what)[1].config
    config = config.model_copy(update={"policy": with_lora(config.policy, lora, strict=is_run and recipe is None)})
    if prompts is not None:
        return Subject(lora, config, _other_prompts(config, prompts, source))
    sources, problems = read_sources(config.prompts, "heldout")
    if problems:
        raise ProblemsError(problems)
    return Subject(lora, config, heldout(sources, config.eval.prompts_per_source))


def _other_prompts(config: RunConfig, path: Path, source: str | None) -> tuple[Prompt, ...]:
    """Prompts of a file of the user's, as if they stood in one of the recipe's sources."""
    file_format = FORMATS.get(path.suffix.lower())
    if file_format is None:
        raise UserError(f"--prompts {path}: wants one of {', '.join(FORMATS)}")
    sources = config.prompts.sources
    fitting = [name for name, s in sources.items() if source in (None, name) and s.format == file_format]
    if source is not None and source not in sources:
        raise UserError(f"--source {source}: prompt sources are {', '.join(sources)}")
    if source is not None:
        fitting = [source]
    if len(fitting) != 1:
        raise UserError(
            f"--prompts {path}: say with --source which of {', '.join(fitting or sources)} it stands in for"
        )
    return read_prompts(path, file_format, fitting[0])


def run_evaluation(subject: Subject, address: str | None) -> tuple[EvaluationResult, EvaluationResult]:
    """Both evaluations, base first, on Ray."""
    from actors.local_ray import connected, new_identity
    from actors.preflight import check_cluster, start_problems
    from actors.remote import RayRemote
    from actors.team import Team, ray_spawn
    from deploy.progress.console import stage_printer

    config, say = subject.config, stage_printer()
    problems = start_problems(config)
    if problems:
        raise ProblemsError(problems)
    with connected(config, address):
        check_cluster(config)
        team = Team(config, RayRemote(), ray_spawn(new_identity(config.run.name)), lambda text: say("warning", text))
        try:
            team.start(_go_on, lambda detail: say("starting actors", detail), without=["learner"])
            push(team, subject.lora)
            return _drawn(team, subject, "before", say), _drawn(team, subject, "ema", say)
        finally:
            team.close()


def _drawn(team: "Team", subject: Subject, which: Which, say: Callable[[str, str], None]) -> EvaluationResult:
    from actors.evaluation import evaluate, make_draw

    config = subject.config
    draw = make_draw(subject.prompts, config.eval, config.eval_sampling, None if which == "before" else "eval")
    label = "base" if which == "before" else "LoRA"

    def progress(drawn: int, left: int) -> None:
        say(label, f"{drawn}/{len(draw.tasks)} tasks drawn, {left} scores to come")

    return evaluate(team, draw, 0, which, config.actors.max_failed_share, _go_on, progress)


def _go_on() -> None:
    """Nobody asks an evaluation to stop but Ctrl-C."""


def push(team: "Team", lora: Path) -> None:
    """Put a LoRA into every rollout actor, proved by its hash there."""
    quiet()
    from actors.crew import Standing
    from learner.adapters import hash_tensors
    from learner.export import load_lora
    from learner.types import AdapterState

    arrays = {key: tensor.numpy() for key, tensor in load_lora(lora).tensors.items()}
    state = AdapterState(arrays, 0, hash_tensors(arrays))
    team.rollouts.broadcast("eval", Standing("load_adapter", ("eval", state, len(arrays)), _proved(state.hash)))
    team.settle(_go_on)


def _proved(expected: str) -> "Callable[[Loaded], None]":
    def verify(loaded: "Loaded") -> None:
        if loaded.policy_hash != expected:
            raise UserError(f"a rollout actor holds adapter {loaded.policy_hash[:12]}, pushed was {expected[:12]}")

    return verify


def _sections(
    config: RunConfig, rewards: Mapping[str, RewardSummary]
) -> tuple[dict[str, RewardSummary], dict[str, RewardSummary]]:
    """Rewards that were trained on, and held-out ones."""
    trained = {name: reward for name, reward in rewards.items() if name in config.rewards}
    return trained, {name: reward for name, reward in rewards.items() if name not in trained}


def report(
    subject: Subject, rewards: Mapping[str, RewardSummary], before: EvaluationResult, after: EvaluationResult
) -> dict[str, Any]:
    """Scores, and everything that is needed to get the same ones again."""
    return {
        **{
            section: {
                name: {"base": r.before, "lora": r.after, "se": r.se, "n": r.n, "failed": after.failed[name]}
                for name, r in found.items()
            }
            for section, found in zip(SECTIONS, _sections(subject.config, rewards), strict=True)
        },
        "seconds": before.seconds + after.seconds,
        "record": {
            "lora": str(subject.lora),
            "num_prompts": len(subject.prompts),
            **evaluation_record(subject.config),
        },
    }
