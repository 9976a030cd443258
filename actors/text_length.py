"""How many tokens prompts have, counted in the driver with the base model's own tokenizer and without torch."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from actors.prompts import Prompt

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CLIP_MAX_TOKENS = 77
"""Positions of CLIP's published text encoders, start and end included."""
CLIP_WORDS = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
"""What CLIP's tokenizer splits a text at before it looks for known pieces (Radford et al. 2021, published code)."""
NUM_SPECIAL = 2
"""Start and end of text."""

# The same in Python's own expressions, which know no \p{L}: a word costs at least one token.
_AT_LEAST = re.compile(
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[^\W\d_]+|\d|(?:[^\s\w]|_)+", re.IGNORECASE
)


@dataclass(frozen=True)
class TokenCounter:
    """Counts tokens as the base model's first text encoder sees them."""

    max_tokens: int
    """Longest text it takes, with start and end."""
    tokenizer: "Tokenizer | None"
    """None where the tokenizer is not on this machine (a hub id not downloaded yet): counts are then lower bounds."""

    def __call__(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, with start and end."""
        if self.tokenizer is None:
            return [len(_AT_LEAST.findall(text)) + NUM_SPECIAL for text in texts]
        encoded = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [len(item.ids) + NUM_SPECIAL for item in encoded]


def counter_of(base: str) -> TokenCounter:
    """The counter of a base model: a folder in diffusers' format, or a hub id of which the cache is looked at only.

    A tokenizer that cannot be read is none; that the base is broken is told elsewhere.
    """
    folder = _tokenizer_folder(base)
    try:
        return TokenCounter(_max_tokens(folder), _load(folder))
    # The Rust side raises a bare Exception for a file it does not understand.
    except Exception:  # noqa: BLE001
        return TokenCounter(CLIP_MAX_TOKENS, None)


def too_long(counter: TokenCounter, splits: Mapping[str, Mapping[str, Sequence[Prompt]]]) -> str:
    """One line that counts the prompts longer than the text encoder takes; empty when there is none.

    Args:
        splits: by name of the split, the prompts of each source.
    """
    parts = []
    for split, sources in splits.items():
        longer = {name: num_longer(counter, prompts) for name, prompts in sources.items()}
        if any(longer.values()):
            named = ", ".join(f"{name} {count}" for name, count in longer.items() if count)
            total = sum(len(prompts) for prompts in sources.values())
            parts.append(f"{sum(longer.values())} of {total} {split} prompts ({named})")
    if not parts:
        return ""
    at_least = "" if counter.tokenizer is not None else "at least "
    return (
        f"{at_least}{' and '.join(parts)} are longer than {counter.max_tokens} tokens: CLIP's text encoders, and the "
        "rewards built on them, do not see the rest"
    )


def num_longer(counter: TokenCounter, prompts: Sequence[Prompt]) -> int:
    """How many prompts are longer than the text encoder takes."""
    return sum(count > counter.max_tokens for count in counter([prompt.text for prompt in prompts]))


def _tokenizer_folder(base: str) -> Path:
    folder = Path(base).expanduser()
    if folder.is_dir():
        return folder / "tokenizer"
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        cached = try_to_load_from_cache(base, "tokenizer/tokenizer_config.json")
    except HFValidationError:
        cached = None
    return Path(cached).parent if isinstance(cached, str) else folder / "tokenizer"


def _max_tokens(folder: Path) -> int:
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    longest = config.get("model_max_length")
    # An unset one is a number near 1e30.
    return longest if isinstance(longest, int) and 0 < longest < 1_000_000 else CLIP_MAX_TOKENS


def _load(folder: Path) -> "Tokenizer":
    """The tokenizer of a folder: tokenizer.json, or CLIP's older vocab.json and merges.txt."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    whole = folder / "tokenizer.json"
    if whole.is_file():
        tokenizer = Tokenizer.from_file(str(whole))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer
    model = models.BPE.from_file(
        str(folder / "vocab.json"), str(folder / "merges.txt"), end_of_word_suffix="</w>", unk_token="<|endoftext|>"
    )
    tokenizer = Tokenizer(model)
    tokenizer.add_special_tokens(["<|startoftext|>", "<|endoftext|>"])
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(CLIP_WORDS), "removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    return tokenizer
