"""Text targets and the two rules by which a text that was read is compared with them.

Which part of a prompt is the target, in writing:

- The target is what stands between the first and the second straight double quote (").
- Several quoted texts: the first one is the target, the rest is scenery.
- A lone straight quote opens nothing: no target.
- Empty quotes, or quotes around spaces only: no target, also when a later pair holds text. The prompt asks for nothing
  that could be read, and guessing another pair would score a text that nobody named first.
- Curly quotes and single quotes are ordinary characters. The public recipes read straight quotes only, and treating
  other marks as quotes would change which prompts their scores cover.
- `text` in a prompt's metadata names the target outright and wins over quotes. null is no `text`: tables
  store it where a row has none.

A prompt without a target is not applicable to OCR; it never scores 0.
"""

from typing import Literal

from rewards.contract import Metadata

MatchRule = Literal["published", "strict"]
Quoting = Literal["none", "one", "several", "lone", "empty", "curly"]
"""How a prompt quotes: one or several texts in straight double quotes (the first is the target); a lone straight quote,
an empty first pair, or curly double quotes only (no target)."""

_CURLY = "\u201c\u201d\u201e\u201f"


def quoted_text(prompt: str) -> str | None:
    """Text inside the first pair of straight double quotes, as written, or None (rules above)."""
    pieces = prompt.split('"', maxsplit=2)
    if len(pieces) < 3 or not pieces[1].strip():
        return None
    return pieces[1]


def quoting(prompt: str) -> Quoting:
    """How a prompt quotes (rules above)."""
    num_straight = prompt.count('"')
    if num_straight >= 2:
        if quoted_text(prompt) is None:
            return "empty"
        return "several" if num_straight >= 4 else "one"
    if num_straight:
        return "lone"
    return "curly" if any(mark in prompt for mark in _CURLY) else "none"


def text_target(prompt: str, metadata: Metadata) -> str | None:
    """Text the image of this prompt should show, or None when the prompt asks for none.

    Raises:
        ValueError: metadata has a `text` that is not a string.
    """
    text = metadata.get("text")
    if text is None:
        return quoted_text(prompt)
    if not isinstance(text, str):
        raise ValueError(f"metadata text must be a string, got {text!r}")
    return text if text.strip() else None


def normalized(text: str) -> str:
    """Text as both rules compare it: spaces removed, lower case."""
    return text.replace(" ", "").lower()


def edit_distance(a: str, b: str) -> int:
    """Levenshtein distance: fewest insertions, deletions and substitutions that turn a into b."""
    # One row of the usual table at a time: row[j] is the distance of a[:i] to b[:j].
    row = list(range(len(b) + 1))
    for i, char_a in enumerate(a, start=1):
        diagonal, row[0] = row[0], i
        for j, char_b in enumerate(b, start=1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (char_a != char_b))
    return row[-1]


def published_match(read: str, target: str) -> float:
    """1 - min(dist, len)/len with len of the target, and no distance at all if the target occurs in what was read.

    Source: the OCR reward of Flow-GRPO and DiffusionNFT (PAPER 4, `match: published`). It pays for covering an image
    with letters: a one-letter target is found in nearly any word. Kept for comparison with published numbers.

    Args:
        read: everything read, lines joined in reading order.
        target: non-empty text wanted.
    """
    read, target = normalized(read), _normalized_target(target)
    if target in read:
        return 1.0
    return 1.0 - min(edit_distance(read, target), len(target)) / len(target)


def strict_match(read: str, target: str) -> float:
    """1 - dist/max(len): every letter too many costs as much as one missing (PAPER 4, `match: strict`).

    Args:
        read: everything read, lines joined in reading order.
        target: non-empty text wanted.
    """
    read, target = normalized(read), _normalized_target(target)
    return 1.0 - edit_distance(read, target) / max(len(read), len(target))


def match(rule: MatchRule, read: str, target: str) -> float:
    """Score in [0, 1] of what was read against the target, by the rule named."""
    return published_match(read, target) if rule == "published" else strict_match(read, target)


def _normalized_target(target: str) -> str:
    text = normalized(target)
    if not text:
        raise ValueError("an empty target has no match score; its sample is not applicable")
    return text
