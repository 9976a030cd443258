"""From a recipe's words to a scorer: built-in names, entry points, dotted paths; where a reward applies; the self-test.

Nothing heavy is imported until a scorer is built.
"""

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol, runtime_checkable

from rewards.config import ARGS_OF_BUILT_IN, Condition, RewardConfig, check_args
from rewards.contract import Metadata, RewardResult, Scorer, State
from rewards.dotted import load_dotted, nearest
from rewards.known import KNOWN_PROMPT, known_image
from rewards.matching import text_target

ENTRY_POINT_GROUP = "marble.rewards"
"""Packages announce scorers of their own under it: `my_reward = "package.module:Class"`."""

_CLASS_OF_BUILT_IN = {
    "pickscore": "rewards.pickscore:PickscoreScorer",
    "hpsv2": "rewards.hpsv2:Hpsv2Scorer",
    "clipscore": "rewards.clipscore:ClipscoreScorer",
    "aesthetic": "rewards.aesthetic:AestheticScorer",
    "imagereward": "rewards.imagereward:ImagerewardScorer",
    "unifiedreward": "rewards.unifiedreward:UnifiedrewardScorer",
    "ocr": "rewards.ocr:OcrScorer",
    "geneval": "rewards.geneval:GenevalScorer",
    "http": "rewards.http_scorer:HttpScorer",
}


_NEED_OF_BUILT_IN: dict[str, Condition] = {"ocr": "quoted", "geneval": "metadata"}
"""What a prompt must carry for a built-in scorer to score it; CLIP scores any."""
_IN_WORDS: dict[Condition, str] = {
    "always": "",
    "quoted": "a text in straight double quotes, or `text` in its metadata",
    "metadata": "`include` in its metadata",
}


@dataclass(frozen=True)
class _Factory:
    """What builds a scorer from its configuration's args."""

    where: str
    build: Callable[[dict[str, Any]], Any]


@runtime_checkable
class SelfTestable(Protocol):
    """A scorer that needs metadata of its own to score the known image."""

    def self_test_metadata(self) -> Metadata:
        """Metadata of a prompt it can score on any image."""
        ...


def build_scorer(name: str, config: RewardConfig) -> Scorer:
    """The scorer of one reward.

    A built-in scorer gets its checked args; any other is called with them as keyword arguments.

    Args:
        name: of the reward in the recipe, for error messages.
        config: what the recipe says of it.

    Raises:
        ValueError: no such scorer (with the nearest names), its args do not fit, or what it builds is not callable.
        Exception: whatever the scorer itself raises when it cannot start, a missing checkpoint above all.
    """
    factory = _find(name, config.scorer)
    scorer = factory.build(config.args)
    if not isinstance(scorer, Scorer):
        raise ValueError(f"rewards.{name}.scorer: {factory.where} built {type(scorer).__name__}, which is not callable")
    return scorer


def known_scorers() -> tuple[str, ...]:
    """Names that `scorer` may take beside dotted paths, built-in ones first."""
    others = {point.name for point in _entry_points()} - set(_CLASS_OF_BUILT_IN)
    return (*_CLASS_OF_BUILT_IN, *sorted(others))


def applicable(config: RewardConfig, source: str, prompt: str, metadata: Metadata) -> bool:
    """Whether a reward applies to a prompt, by the prompt's source and the reward's `when`.

    Metadata that is present but wrong makes it applicable: the scorer then fails that sample and says why, while
    calling it not applicable would hide the mistake.
    """
    if config.applies is not None and source not in config.applies:
        return False
    return _carries(config.when, prompt, metadata)


def can_score(config: RewardConfig, source: str, prompt: str, metadata: Metadata) -> bool:
    """Whether a reward applies to a prompt and the prompt carries what its scorer needs.

    `when: always` sends every prompt of its sources to the scorer, which then calls those without a target not
    applicable; a run in which that is all of them has to be refused before it starts.
    """
    need = _NEED_OF_BUILT_IN.get(config.scorer, "always")
    return applicable(config, source, prompt, metadata) and _carries(need, prompt, metadata)


def need_of(config: RewardConfig) -> str:
    """What a prompt must carry for :func:`can_score`, in words; empty where any prompt will do or nobody can know."""
    return _IN_WORDS[_NEED_OF_BUILT_IN.get(config.scorer, "always")]


def _carries(condition: Condition, prompt: str, metadata: Metadata) -> bool:
    if condition == "always":
        return True
    if condition == "metadata":
        return bool(metadata.get("include"))
    try:
        return text_target(prompt, metadata) is not None
    except ValueError:
        return True


def self_test(scorer: Scorer, side: int = 256) -> RewardResult:
    """Have a scorer score one known image, so that a broken one shows before the first training step.

    Args:
        scorer: what is tested.
        side: pixels of the image; give the run's own size to a scorer that takes no other.

    Returns:
        The scored cell; a scorer of another kind of prompt may call the image not applicable, which is an answer too.

    Raises:
        RuntimeError: the scorer returned a failed cell, with its reason, or no single cell.
        Exception: whatever the scorer itself raises.
    """
    metadata = scorer.self_test_metadata() if isinstance(scorer, SelfTestable) else {}
    result = scorer(known_image(side)[None], [KNOWN_PROMPT], [metadata])
    if not isinstance(result, RewardResult) or len(result.scores) != 1:
        raise RuntimeError(f"{type(scorer).__name__} gave {result!r} for one image, not one cell")
    if result.states[0] == State.FAILED:
        raise RuntimeError(f"{type(scorer).__name__} failed on the known image: {result.reasons[0]}")
    return result


def _find(name: str, scorer: str) -> _Factory:
    if scorer in _CLASS_OF_BUILT_IN:
        _warn_of_namesakes(scorer)
        path = _CLASS_OF_BUILT_IN[scorer]
        return _Factory(path, lambda args: load_dotted(path)(check_args(ARGS_OF_BUILT_IN[scorer], args)))
    try:
        if ":" in scorer:
            return _with_keywords(name, scorer, load_dotted(scorer))
        points = [point for point in _entry_points() if point.name == scorer]
        if points:
            return _with_keywords(name, points[0].value, _load_entry_point(points))
    except ValueError as error:
        raise ValueError(f"rewards.{name}.scorer: {error}") from error
    known = list(known_scorers())
    raise ValueError(
        f"rewards.{name}.scorer: no scorer {scorer!r}{nearest(scorer, known)} "
        f"(known: {', '.join(known)}, or a dotted path package.module:Class)"
    )


def _warn_of_namesakes(built_in: str) -> None:
    """A package must not change what a recipe means by being installed: the built-in scorer wins, and it is said."""
    for point in _entry_points():
        if point.name == built_in:
            text = f"scorer {built_in!r} is the built-in one; {_said(point)} is reached as {point.value!r} only"
            warnings.warn(text, RuntimeWarning, stacklevel=4)


def _load_entry_point(points: list[EntryPoint]) -> Any:
    """What entry points of one name stand for.

    Raises:
        ValueError: they stand for several things, or what they name cannot be loaded, with the cause.
    """
    if len({point.value for point in points}) > 1:
        listed = ", ".join(_said(point) for point in points)
        raise ValueError(f"{points[0].name!r} is announced more than once ({listed}); write one of the paths instead")
    try:
        return points[0].load()
    # A package that is broken may raise anything while it is imported.
    except Exception as error:
        raise ValueError(f"{_said(points[0])} cannot be loaded: {type(error).__name__}: {error}") from error


def _said(point: EntryPoint) -> str:
    """An entry point with the package it comes from."""
    return f"entry point {point.name} = {point.value}" + (f" of {point.dist.name}" if point.dist else "")


def _with_keywords(name: str, where: str, target: Any) -> _Factory:
    if not callable(target):
        raise ValueError(f"{where} is {type(target).__name__}, not a class")

    def build(args: dict[str, Any]) -> Any:
        misfit = _misfit(target, args)
        if misfit:
            raise ValueError(f"rewards.{name}.args do not fit {where}: {misfit}")
        return target(**args)

    return _Factory(where, build)


def _misfit(target: Any, args: dict[str, Any]) -> str:
    """Which argument is missing or unknown; empty when none is.

    Looked for before the call: a TypeError out of the constructor itself is another fault, and keeps its own text.
    """
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):  # classes written in C may have none
        return ""
    try:
        signature.bind(**args)
    except TypeError as error:
        return f"{error}; it takes {signature}"
    return ""


def _entry_points() -> list[EntryPoint]:
    return list(entry_points(group=ENTRY_POINT_GROUP))
