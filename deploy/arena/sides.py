"""The pictures of both sides: those that runs kept of their held-out prompts, or new ones.

Only pictures of the same prompt with the same noise are a pair.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deploy import strict_yaml
from deploy.report.naming import labels
from deploy.report.numbers.replicates import flat
from deploy.report.pictures import PictureSet, data_uri, read_pictures
from deploy.report.reading import read_evaluations
from deploy.rundir import RunDir
from learner.errors import UserError

BASE = "base"
ARENA_SIDE = 1024
"""Pixels up to which pictures are shown as they are: people are to judge details."""
SAME_NOISE = ("eval.seed", "policy.resolution")
"""Keys of a recipe that decide the noise of a held-out picture, beside the prompts."""
BESIDE = ("policy.base", "eval_sampling.steps", "eval_sampling.solver", "eval_sampling.guidance_scale")
"""Keys that change pictures for other reasons than training; a difference is told."""


@dataclass(frozen=True)
class Entry:
    """One picture."""

    source: str
    prompt: str
    uri: str


@dataclass(frozen=True)
class Contestant:
    """One side: whose pictures, and which."""

    label: str
    path: str
    done: int
    """Iterations done; 0 is the base."""
    entries: Mapping[str, Entry]
    """By prompt id."""


@dataclass(frozen=True)
class Pair:
    """The pictures of one prompt."""

    prompt_id: str
    source: str
    prompt: str
    a: str
    b: str
    """Pictures as data addresses."""


@dataclass(frozen=True)
class Match:
    """What is compared."""

    a: Contestant
    b: Contestant
    pairs: tuple[Pair, ...]
    identical: tuple[Pair, ...]
    """Pairs whose pictures are the same to the byte, which nobody can choose between."""
    warnings: tuple[str, ...]


def kept_match(runs: Sequence[RunDir]) -> Match:
    """The newest pictures that two runs kept of their held-out prompts; of one run, its base's and its newest.

    Raises:
        UserError: a run has none, or those of the two are not of the same prompts with the same noise.
    """
    if len(runs) == 1:
        only = runs[0]
        return matched(_contestant(only, BASE, base=True), _contestant(only, only.path.name, base=False))
    warnings = checked([strict_yaml.load(run.config) for run in runs], labels([run.path for run in runs]))
    names = labels([run.path for run in runs])
    a, b = (_contestant(run, name, base=False) for run, name in zip(runs, names, strict=True))
    if _evaluated(runs[0], a.done) != _evaluated(runs[1], b.done):
        raise UserError(f"{a.path} and {b.path} were evaluated on other held-out prompts, so their noise differs")
    return matched(a, b, warnings)


def checked(configs: Sequence[Mapping[str, Any]], names: Sequence[str]) -> tuple[str, ...]:
    """Differences of two recipes that change pictures for other reasons than training, a line each.

    Raises:
        UserError: pictures of the two have different noise.
    """
    first, second = (flat(config) for config in configs)

    def told(key: str) -> str:
        return f"{key} is {first.get(key)} in {names[0]} and {second.get(key)} in {names[1]}"

    for key in SAME_NOISE:
        if first.get(key) != second.get(key):
            raise UserError(f"{told(key)}: pictures with different noise are no pair")
    return tuple(told(key) for key in BESIDE if first.get(key) != second.get(key))


def matched(a: Contestant, b: Contestant, warnings: tuple[str, ...] = ()) -> Match:
    """Pairs of the same prompt.

    Raises:
        UserError: there is none that differs.
    """
    both = [i for i, one in a.entries.items() if i in b.entries and one.prompt == b.entries[i].prompt]
    pairs = [Pair(i, a.entries[i].source, a.entries[i].prompt, a.entries[i].uri, b.entries[i].uri) for i in both]
    shown = tuple(pair for pair in pairs if pair.a != pair.b)
    if not shown:
        why = "every picture is the same on both sides" if pairs else "they show no prompt in common"
        raise UserError(f"nothing to choose between {a.label} and {b.label}: {why}")
    return Match(a, b, shown, tuple(pair for pair in pairs if pair.a == pair.b), warnings)


def _contestant(run: RunDir, label: str, *, base: bool) -> Contestant:
    sets, problems = read_pictures(run.samples)
    found = [one for one in sets if (one.done == 0) == base and one.pictures]
    if not found:
        which = "the base" if base else "a later evaluation"
        raise UserError(f"{run.path} has no pictures of {which}" + (f" ({problems[0]})" if problems else ""))
    return Contestant(label, str(run.path), found[-1].done, _entries(found[-1]))


def _entries(found: PictureSet) -> dict[str, Entry]:
    return {p.prompt_id: Entry(p.source, p.prompt, data_uri(p.path, ARENA_SIDE)) for p in found.pictures}


def _evaluated(run: RunDir, done: int) -> tuple[str, ...]:
    """Ids of the prompts of an evaluation; a prompt's place among them decides its noise."""
    missing: list[str] = []
    found = next((one for one in read_evaluations(run, missing) if one.done == done), None)
    if found is None:
        raise UserError(f"{run.path}: {missing[0] if missing else f'no evaluation after {done} iterations'}")
    return found.prompt_ids
