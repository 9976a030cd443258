"""What `marble arena` does: write a page and its key, or count votes."""

import math
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from deploy.arena.blinding import new_key
from deploy.arena.page import html
from deploy.arena.sides import Match, Pair, kept_match
from deploy.arena.tally import CONFIDENCE, Interval, Tally, left_share, tally
from deploy.arena.votes import Counted, KeyFile, KeyPrompt, KeySide, count, key_data, read_key, read_votes
from deploy.errors import loading, tell
from deploy.files import to_json, write_json, write_text
from deploy.report.naming import named_runs
from deploy.rundir import RunDir, expanded, require_writable
from learner.errors import UserError

FOLDER, PAGE, KEY = Path("arena"), "arena.html", "key.json"


def write_arena(runs: Sequence[Path], out: Path | None, per_source: int | None, device: str | None) -> None:
    """Write the page and the key of these runs into a folder.

    Raises:
        UserError: no two runs, nothing to compare, or a folder that holds an arena already.
    """
    with loading():
        run_dirs = _one_or_two(runs)
        folder = expanded(out or FOLDER, "--out").absolute()
        _require_free(folder)
    match = _match(run_dirs, per_source, device)
    tell((), match.warnings)
    key = new_key()
    with loading(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        # The key first: a page without its key would collect votes that nobody can count.
        write_json(folder / KEY, _key_data(match, key))
        write_text(folder / PAGE, html(match, key))
    print(f"{folder / PAGE}  {len(match.pairs)} pairs; {len(match.identical)} more are the same on both sides")
    print(f"{folder / KEY}  says which side is which; keep it from those who vote")


def _one_or_two(runs: Sequence[Path]) -> list[RunDir]:
    found = named_runs(runs)
    if len(runs) == 2 and len(found) == 1:
        raise UserError(f"{runs[0]} and {runs[1]} are the same run; one run alone is compared with its base")
    if len(found) > 2:
        raise UserError(f"an arena compares two runs, or one with its base, got {len(found)}")
    return found


def _require_free(folder: Path) -> None:
    taken = next((folder / name for name in (PAGE, KEY) if os.path.lexists(folder / name)), None)
    if taken is not None:
        raise UserError(f"{taken} exists, and its votes need its key; choose another folder with --out FOLDER")
    require_writable(folder / PAGE)


def _match(runs: Sequence[RunDir], per_source: int | None, device: str | None) -> Match:
    if per_source is None:
        with loading():
            return kept_match(runs)
    # Not at the top: it loads torch.
    from deploy.arena.fresh import drawn_match

    console = Console(stderr=True)
    with console.status("loading") as status:
        return drawn_match(runs, per_source, device, status.update)


def _key_data(match: Match, key: str) -> dict[str, Any]:
    def prompts(pairs: Sequence[Pair]) -> list[KeyPrompt]:
        return [KeyPrompt(prompt_id=pair.prompt_id, source=pair.source, prompt=pair.prompt) for pair in pairs]

    sides = [KeySide(label=side.label, path=side.path, done=side.done) for side in (match.a, match.b)]
    return key_data(key, sides, prompts(match.pairs), prompts(match.identical))


# -- counting ---------------------------------------------------------------------------------------------------------


def count_votes(files: Sequence[Path], key_file: Path | None, as_json: bool) -> None:
    """Print who was preferred how often.

    Raises:
        UserError: no votes, no key, or ones that do not belong together.
    """
    paths = [expanded(path, "VOTES") for path in files]
    votes = {path: read_votes(path) for path in paths}
    key = read_key(_find_key(key_file, paths))
    counted = count(key, votes)
    rows = tally(counted.pairs)
    tell((), counted.warnings)
    if as_json:
        print(to_json(_data(key, counted, rows)))
        return
    _print(key, counted, rows)


def _find_key(given: Path | None, votes: Sequence[Path]) -> Path:
    if given is not None:
        return expanded(given, "--key")
    places = list(dict.fromkeys([*(path.parent / KEY for path in votes), FOLDER / KEY]))
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise UserError(f"no key in {' or '.join(map(str, places))}; name it with --key key.json")
    return found


def _data(key: KeyFile, counted: Counted, rows: Sequence[Tally]) -> dict[str, Any]:
    return {
        "a": key.a.model_dump(),
        "b": key.b.model_dump(),
        "confidence": CONFIDENCE,
        "voters": counted.voters,
        "votes": counted.votes,
        "choices": dict(counted.choices),
        "left_share": asdict(left_share(counted.choices)),
        "unjudged": counted.unjudged,
        "identical": len(key.identical),
        "tallies": [asdict(row) for row in rows],
    }


def _print(key: KeyFile, counted: Counted, rows: Sequence[Tally]) -> None:
    shown = Table(box=None, padding=(0, 1), header_style="bold")
    for title in ("source", "pairs", "A", "tie", "B", "A wins", "95% interval", "without ties", "95% interval"):
        shown.add_column(title, justify="left" if title == "source" else "right")
    for row in rows:
        numbers = [str(row.pairs), str(row.wins_a), str(row.ties), str(row.wins_b)]
        shown.add_row(row.source, *numbers, *_interval(row.a), *_interval(row.a_decided))
    console = Console()
    console.print(f"A: {_named(key.a)}\nB: {_named(key.b)}", markup=False, highlight=False)
    console.print(shown)
    left = left_share(counted.choices)
    share, span = _interval(left)
    voters = f"{counted.voters} voter{'s' if counted.voters != 1 else ''}"
    lines = [
        f"{counted.votes} votes of {voters}; left was chosen in {share} of those that chose a side ({span}).",
        f"{counted.unjudged} pairs have no vote; {len(key.identical)} with the same pictures count as ties.",
        "A pair counts once, with the mean of its voters' votes; a tie is half a win for either. Intervals: Wilson.",
    ]
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def _named(side: KeySide) -> str:
    return f"{side.label}, " + (f"after {side.done} iterations" if side.done else "before training")


def _interval(one: Interval) -> tuple[str, str]:
    if math.isnan(one.rate):
        return "-", "-"
    return f"{one.rate:.1%}", f"{one.low:.0%} to {one.high:.0%}"
