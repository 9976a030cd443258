"""Prompt files in, prompt groups out.

A prompt's identity is its id (`source/index`), never its text: two sources may share a sentence. What is wrong with a
file is said in one line that names the file and the line, before anything runs.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from actors.config import PromptsConfig, PromptSourceConfig
from actors.prompt_files import PromptFileError, PromptFormat, read_rows
from learner.errors import UserError
from rewards.contract import Metadata

__all__ = ["Prompt", "PromptFormat", "PromptSampler", "Split", "file_of", "read_prompts", "read_sources", "shortages"]

Split = Literal["train", "heldout"]


@dataclass(frozen=True)
class Prompt:
    """One prompt of one source."""

    prompt_id: str
    """`source/index`, the index counting from 0 in its file."""
    source: str
    text: str
    metadata: Metadata = field(default_factory=dict)
    """What the file says beyond the text (GenEval's include, exclude and tag); empty for plain lines."""


def read_prompts(
    path: str | Path, file_format: PromptFormat, source: str, tags: Sequence[str] | None = None
) -> tuple[Prompt, ...]:
    """All prompts of one file, in its order; with tags those only whose metadata carry one of them.

    Raises:
        UserError: the file is missing or empty, or lines of it are no prompts; names source, file and lines. Or no
            prompt carries a tag; names those there are.
    """
    try:
        rows = read_rows(Path(path), file_format)
    except PromptFileError as error:
        raise PromptFileError([f"prompt source {source}: {line}" for line in error.lines]) from error
    prompts = tuple(Prompt(f"{source}/{i}", source, text, metadata) for i, (text, metadata) in enumerate(rows))
    if tags is None:
        return prompts
    there = sorted({str(prompt.metadata.get("tag")) for prompt in prompts})
    unknown = [tag for tag in tags if tag not in there]
    if unknown:
        line = (
            f"prompt source {source}: {path} has no prompt with tag {', '.join(unknown)}; tags are {', '.join(there)}"
        )
        raise PromptFileError([line])
    return tuple(prompt for prompt in prompts if prompt.metadata.get("tag") in tags)


def read_sources(config: PromptsConfig, split: Split) -> tuple[dict[str, tuple[Prompt, ...]], list[str]]:
    """One split of every source, and the problems of those that could not be read (all of them, not only the first)."""
    read: dict[str, tuple[Prompt, ...]] = {}
    problems: list[str] = []
    for name, source in config.sources.items():
        try:
            read[name] = read_prompts(file_of(source, split), source.format, name, source.tags)
        except PromptFileError as error:
            problems += error.lines
    return read, problems


def file_of(source: PromptSourceConfig, split: Split) -> str:
    """The file of one split of a source."""
    return source.train if split == "train" else source.heldout


class PromptSampler:
    """Which prompts an iteration draws: a function of (seed, iteration) and nothing else, so resume needs no state."""

    def __init__(self, sources: Mapping[str, Sequence[Prompt]], groups_per_iteration: int, seed: int) -> None:
        """Draw equally from every source.

        Raises:
            UserError: a source has fewer prompts than one iteration draws from it.
        """
        self._sources = {name: tuple(prompts) for name, prompts in sources.items()}
        self._per_source = groups_per_iteration // len(self._sources)
        self._seed = seed
        problems = shortages(self._sources, groups_per_iteration)
        if problems:
            raise UserError("; ".join(problems))

    def groups(self, iteration: int) -> tuple[Prompt, ...]:
        """The prompts of one iteration, all distinct, sources taking turns so that every rank sees a mix."""
        drawn = [self._drawn(name, iteration) for name in self._sources]
        return tuple(prompts[i] for i in range(self._per_source) for prompts in drawn)

    def _drawn(self, name: str, iteration: int) -> list[Prompt]:
        """This iteration's prompts of one source: the next stretch of the epoch's shuffled order.

        An epoch ends early rather than run over into the next one, whose order could repeat a prompt within the
        iteration; the few left over differ from epoch to epoch.
        """
        prompts = self._sources[name]
        iterations_per_epoch = len(prompts) // self._per_source
        epoch, position = divmod(iteration, iterations_per_epoch)
        digest = hashlib.sha256(f"prompts\0{self._seed}\0{name}\0{epoch}".encode()).digest()
        order = np.random.default_rng(int.from_bytes(digest[:16], "little")).permutation(len(prompts))
        start = position * self._per_source
        return [prompts[i] for i in order[start : start + self._per_source]]


def shortages(sources: Mapping[str, Sequence[Prompt]], groups_per_iteration: int) -> list[str]:
    """One line for each source that is too small for the distinct prompts an iteration draws from it."""
    wanted = groups_per_iteration // max(1, len(sources))
    return [
        f"prompt source {name} has {len(prompts)} training prompts, but each iteration draws {wanted} distinct ones"
        for name, prompts in sources.items()
        if len(prompts) < wanted
    ]
