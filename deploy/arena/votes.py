"""Key files and vote files, written and read."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from deploy.arena.blinding import SIDES, TOKEN_DIGITS, Side, arena_id, token
from deploy.arena.tally import TIE, Judged
from deploy.errors import one_line
from learner import json_text
from learner.errors import UserError

Choice = Literal["left", "right", "tie"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


File = TypeVar("File", bound=_Strict)


class KeySide(_Strict):
    """One side, as the tally calls it."""

    label: str
    path: str
    done: int


class KeyPrompt(_Strict):
    """One prompt of the arena."""

    prompt_id: str
    source: str
    prompt: str


class KeyFile(_Strict):
    """What only those who count the votes should see."""

    format: Literal["marble-arena-key"]
    version: Literal[1]
    key: str = Field(pattern=r"^[0-9a-f]{64}$")
    a: KeySide
    b: KeySide
    pairs: list[KeyPrompt]
    identical: list[KeyPrompt]
    """Not shown: the pictures are the same."""


class Vote(_Strict):
    """One choice."""

    pair: str = Field(pattern=rf"^[0-9a-f]{{{TOKEN_DIGITS}}}$")
    choice: Choice
    seconds: float = Field(ge=0)


class VoteFile(_Strict):
    """What the page exports."""

    format: Literal["marble-arena-votes"]
    version: Literal[1]
    arena: str
    voter: str
    exported: str
    """ISO 8601, in UTC."""
    votes: list[Vote]


@dataclass(frozen=True)
class Counted:
    """All votes on all pairs."""

    pairs: tuple[Judged, ...]
    """Those with a vote, then those with the same pictures, which count as ties."""
    unjudged: int
    voters: int
    votes: int
    choices: Mapping[str, int]
    warnings: tuple[str, ...]


def read_key(path: Path) -> KeyFile:
    """
    Raises:
        UserError: no key file of ours.
    """
    return _read(path, KeyFile, "a key file of marble arena")


def read_votes(path: Path) -> VoteFile:
    """
    Raises:
        UserError: no votes of ours.
    """
    return _read(path, VoteFile, "a vote file of marble arena")


def _read(path: Path, model: type[File], what: str) -> File:
    try:
        return model.model_validate(json_text.parse(path.read_bytes()))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise UserError(f"{path} is not {what}: {f'{place}: ' if place else ''}{one_line(first['msg'])}") from error
    except OSError as error:
        raise UserError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    except ValueError as error:
        raise UserError(f"{path} is not {what}: {error}") from error


def count(key: KeyFile, files: Mapping[Path, VoteFile]) -> Counted:
    """Every voter's choices as worth to side a.

    Raises:
        UserError: votes of another arena, on pairs it does not have, or none at all.
    """
    arena = arena_id(key.key)
    for path, file in files.items():
        if file.arena != arena:
            raise UserError(f"{path} holds votes of arena {file.arena}, the key is of arena {arena}")
    sides = {token(key.key, one.prompt_id, left): (one.prompt_id, left) for one in key.pairs for left in SIDES}
    newest, warnings = _newest_of_each_voter(files)
    for_a: dict[str, list[float]] = {one.prompt_id: [] for one in key.pairs}
    choices: Counter[str] = Counter()
    for path, file in newest.items():
        # A pair that stands twice in a file was voted on again: the later vote counts.
        for pair, vote in {vote.pair: vote for vote in file.votes}.items():
            if pair not in sides:
                raise UserError(f"{path}: pair {pair} is none of arena {arena}")
            prompt_id, left = sides[pair]
            for_a[prompt_id].append(worth_to_a(vote.choice, left))
            choices[vote.choice] += 1
    if not choices:
        raise UserError(f"no votes in {', '.join(map(str, files))}")
    judged = [Judged(one.source, tuple(for_a[one.prompt_id])) for one in key.pairs if for_a[one.prompt_id]]
    ties = [Judged(one.source, (TIE,)) for one in key.identical]
    return Counted(
        pairs=(*judged, *ties),
        unjudged=len(key.pairs) - len(judged),
        voters=len(newest),
        votes=choices.total(),
        choices=choices,
        warnings=tuple(warnings),
    )


def worth_to_a(choice: Choice, left: Side) -> float:
    """1 where a was chosen, 0 where b was, ½ for a tie."""
    if choice == "tie":
        return TIE
    return float((choice == "left") == (left == "a"))


def _newest_of_each_voter(files: Mapping[Path, VoteFile]) -> tuple[dict[Path, VoteFile], list[str]]:
    """A voter who saved twice counts once, with the later file."""
    newest: dict[str, Path] = {}
    warnings = []
    for path, file in files.items():
        other = newest.get(file.voter)
        if other is not None:
            older, later = sorted((other, path), key=lambda p: files[p].exported)
            warnings.append(f"{older} and {later} are of the same voter; only the later one, {later}, counts")
            path = later
        newest[file.voter] = path
    return {path: files[path] for path in newest.values()}, warnings


def key_data(
    key: str, sides: Sequence[KeySide], pairs: Sequence[KeyPrompt], same: Sequence[KeyPrompt]
) -> dict[str, Any]:
    """What key.json holds."""
    file = KeyFile(
        format="marble-arena-key", version=1, key=key, a=sides[0], b=sides[1], pairs=list(pairs), identical=list(same)
    )
    return file.model_dump(mode="json")
