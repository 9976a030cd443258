"""Prompts against what the rewards need of them, before anything is drawn."""

from collections.abc import Mapping, Sequence

from actors import text_length
from actors.prompt_files import capped
from actors.prompts import Prompt, Split, file_of
from actors.run_config import RunConfig
from learner.errors import Problem
from rewards.config import RewardConfig
from rewards.metadata_check import MetadataCheck
from rewards.registry import can_score, need_of

Sources = Mapping[str, Sequence[Prompt]]
"""Prompts by source."""

SPLITS: Mapping[Split, str] = {"train": "training", "heldout": "held-out"}
"""In words."""


def rewards_without_prompts(config: RunConfig, sources: Sources, split: Split) -> list[str]:
    """One line for each reward that can score none of a split's prompts; of the held-out ones those that are drawn.

    Held-out rewards are never asked about training prompts.
    """
    count = config.eval.prompts_per_source if split == "heldout" else None
    drawn = {source: prompts[:count] for source, prompts in sources.items()}
    return [
        f"{key} applies to none of the {SPLITS[split]} prompts "
        f"(applies: {', '.join(reward.applies or sources)}; when: {reward.when}{_need_told(reward)})"
        for key, _, reward in judges_of(config, split)
        if not any(scored_by(reward, prompts) for prompts in drawn.values())
    ]


def judges_of(config: RunConfig, split: Split) -> list[tuple[str, str, RewardConfig]]:
    """(key path, name, configuration) of the rewards that score a split: training prompts are scored by some only."""
    return [judge for judge in config.judges() if split == "heldout" or judge[1] in config.rewards]


def _need_told(reward: RewardConfig) -> str:
    need = need_of(reward)
    return f"; scorer {reward.scorer} needs {need}" if need else ""


def scored_by(reward: RewardConfig, prompts: Sequence[Prompt]) -> int:
    """How many prompts a reward gives a score."""
    return sum(can_score(reward, prompt.source, prompt.text, prompt.metadata) for prompt in prompts)


def bad_metadata(config: RunConfig, sources: Sources, split: Split) -> list[str]:
    """Prompts whose metadata a reward's scorer would fail on, with file and line; the first few of each source."""
    lines: list[str] = []
    for key, _, reward in judges_of(config, split):
        check = MetadataCheck(reward)
        for source, prompts in sources.items():
            entry = config.prompts.sources[source]
            unit = "row" if entry.format == "parquet" else "line"
            where = f"{key}: {file_of(entry, split)}"
            found = [
                f"{where}, {unit} {number}: {wrong}"
                for number, prompt in enumerate(prompts, start=1)
                if can_score(reward, source, prompt.text, prompt.metadata)
                and (wrong := check(prompt.text, prompt.metadata))
            ]
            lines += capped(found, where)
    return lines


def prompt_warnings(config: RunConfig, train: Sources, held: Sources) -> tuple[Problem, ...]:
    """What is odd about prompts that can all be used."""
    counter = text_length.counter_of(config.policy.base)
    splits: Mapping[Split, Sources] = {"train": train, "heldout": held}
    long = text_length.too_long(counter, {SPLITS[split]: sources for split, sources in splits.items()})
    missed = [line for split, sources in splits.items() for line in unscored(config, sources, split)]
    return (
        *(Problem("prompts.too_long", line) for line in [long] if line),
        *(Problem("prompts.unscored", line) for line in missed),
    )


def unscored(config: RunConfig, sources: Sources, split: Split) -> list[str]:
    """One line for each source that a reward names in `applies` and does not score in full."""
    lines = []
    for key, _, reward in judges_of(config, split):
        # `when` leaves prompts out on purpose.
        for source in reward.applies or () if reward.when == "always" else ():
            prompts = sources[source]
            missed = len(prompts) - scored_by(reward, prompts)
            if missed:
                lines.append(
                    f"{key} scores {len(prompts) - missed} of {len(prompts)} {SPLITS[split]} prompts of {source}: "
                    f"{missed} carry nothing it looks for"
                )
    return lines
