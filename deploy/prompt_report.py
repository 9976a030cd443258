"""What `marble data` shows: prompts per source and split, and how many of them each reward scores."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from actors.prompt_checks import SPLITS, bad_metadata, judges_of, prompt_warnings, rewards_without_prompts, scored_by
from actors.prompts import Prompt, Split, read_sources
from actors.run_config import RunConfig
from actors.text_length import TokenCounter, counter_of, num_longer
from deploy.errors import EXIT_USER, tell
from deploy.files import to_json
from deploy.recipe import load_recipe
from rewards.config import RewardConfig
from rewards.matching import Quoting, quoting


@dataclass(frozen=True)
class SourceCounts:
    """One split of one source."""

    prompts: int
    distinct: int
    """Different texts."""
    too_long: int
    """Longer than the base model's text encoder takes."""
    metadata: int
    """With metadata."""
    quoting: Mapping[Quoting, int]
    tags: Mapping[str, int]
    """GenEval's tags."""


@dataclass(frozen=True)
class Report:
    """Everything `marble data` tells."""

    sources: Mapping[Split, Mapping[str, SourceCounts]]
    """By split and source; sources that could not be read are missing."""
    scored: Mapping[Split, Mapping[str, Mapping[str, int]]]
    """By split, reward and source: prompts that get a score."""
    shared: Mapping[str, int]
    """By source: held-out prompts whose text is a training prompt of that source too."""
    counter: TokenCounter
    problems: Sequence[str]
    warnings: Sequence[str]


def report_prompts(path: Path, sets: Sequence[str], as_json: bool) -> int:
    """Print the report; returns the exit code.

    Raises:
        UserError: the recipe does not load.
    """
    config = load_recipe(path, sets).config
    report = make_report(config)
    tell(report.problems, report.warnings)
    if as_json:
        print(to_json(to_data(path, config, report)))
    else:
        _print(config, report)
    return EXIT_USER if report.problems else 0


def make_report(config: RunConfig) -> Report:
    """Read every source and count."""
    counter = counter_of(config.policy.base)
    read: dict[Split, dict[str, tuple[Prompt, ...]]] = {}
    problems: list[str] = []
    for split in SPLITS:
        read[split], unread = read_sources(config.prompts, split)
        problems += [*unread, *bad_metadata(config, read[split], split)]
        if not unread:
            problems += rewards_without_prompts(config, read[split], split)
    whole = not problems
    return Report(
        sources={s: {name: _counts(prompts, counter) for name, prompts in read[s].items()} for s in SPLITS},
        scored={
            split: {
                name: {source: scored_by(reward, prompts) for source, prompts in read[split].items()}
                for _, name, reward in judges_of(config, split)
            }
            for split in SPLITS
        },
        shared={
            name: _shared(read["train"][name], held) for name, held in read["heldout"].items() if name in read["train"]
        },
        counter=counter,
        problems=tuple(dict.fromkeys(problems)),
        warnings=[w.text for w in prompt_warnings(config, read["train"], read["heldout"])] if whole else [],
    )


def _counts(prompts: Sequence[Prompt], counter: TokenCounter) -> SourceCounts:
    kinds = Counter(quoting(prompt.text) for prompt in prompts)
    tags = Counter(str(prompt.metadata["tag"]) for prompt in prompts if prompt.metadata.get("tag") is not None)
    return SourceCounts(
        prompts=len(prompts),
        distinct=len({prompt.text for prompt in prompts}),
        too_long=num_longer(counter, prompts),
        metadata=sum(bool(prompt.metadata) for prompt in prompts),
        quoting={kind: kinds[kind] for kind in get_args(Quoting)},
        tags=dict(sorted(tags.items())),
    )


def _shared(train: Sequence[Prompt], held: Sequence[Prompt]) -> int:
    known = {prompt.text for prompt in train}
    return sum(prompt.text in known for prompt in held)


def to_data(path: Path, config: RunConfig, report: Report) -> dict[str, Any]:
    """The report as JSON has it."""
    return {
        "recipe": str(path),
        "ok": not report.problems,
        "problems": list(report.problems),
        "warnings": list(report.warnings),
        "max_tokens": report.counter.max_tokens,
        "tokens_exact": report.counter.tokenizer is not None,
        "sources": {
            name: {
                "format": source.format,
                **{s: asdict(report.sources[s][name]) for s in SPLITS if name in report.sources[s]},
                "heldout_also_in_train": report.shared.get(name),
            }
            for name, source in config.prompts.sources.items()
        },
        "rewards": {name: _reward_data(report, name, reward) for name, reward in config.rewards.items()},
        "heldout_rewards": {
            name: _reward_data(report, name, reward) for name, reward in config.heldout_rewards.items()
        },
    }


def _reward_data(report: Report, name: str, reward: RewardConfig) -> dict[str, Any]:
    """What one reward scores; a held-out one has no training prompts."""
    scored = {split: report.scored[split][name] for split in SPLITS if name in report.scored[split]}
    return {
        "scorer": reward.scorer,
        "applies": reward.applies,
        "when": reward.when,
        **{split: {"scored": sum(by.values()), "by_source": by} for split, by in scored.items()},
    }


def _print(config: RunConfig, report: Report) -> None:
    from rich.console import Console
    from rich.table import Table

    def table(*titles: str) -> Table:
        made = Table(box=None, padding=(0, 1), header_style="dim")
        for index, title in enumerate(titles):
            made.add_column(title, justify="right" if index else "left", no_wrap=True)
        return made

    names = list(config.prompts.sources)
    sources = table("source", "prompts", "long", "quoted", "lone", "curly", "metadata")
    rewards = table("scored by", "prompts", *names)
    for split, kind in SPLITS.items():
        for name, one in report.sources[split].items():
            quoted, lone, curly = one.quoting["one"] + one.quoting["several"], one.quoting["lone"], one.quoting["curly"]
            cells = (one.prompts, one.too_long, quoted, lone, curly, one.metadata)
            sources.add_row(f"{name}, {kind}", *map(str, cells))
        for name, scored in report.scored[split].items():
            cells_of = [str(scored[source]) if source in scored else "?" for source in names]
            rewards.add_row(f"{name}, {kind}", str(sum(scored.values())), *cells_of)
    console = Console(highlight=False)
    console.print(sources)
    exact = "" if report.counter.tokenizer is not None else "at least these, "
    console.print(
        f"long: {exact}over {report.counter.max_tokens} tokens; quoted: a text in straight quotes\n", style="dim"
    )
    console.print(rewards)
    for name, count in report.shared.items():
        if count:
            console.print(f"{name}: {count} held-out prompts are training prompts too")
