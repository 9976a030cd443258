"""Builds the world's CLIP tokenizer: all bytes, plus one token for each word of the captions.

A real ``CLIPTokenizer`` with 16 positions. Any text can be tokenized (bytes), words of the world cost one token each,
and sign texts stay single characters: every merge contains a vowel, and sign texts have none.
"""

from itertools import pairwise
from typing import Final

from transformers import CLIPTokenizer
from transformers.convert_slow_tokenizer import bytes_to_unicode

from tinyworld.captions import words

MAX_TOKENS: Final = 16
"""Positions of a caption, start and end tokens included."""
END_OF_WORD: Final = "</w>"
VOWELS: Final = frozenset("aeiou")

Merge = tuple[str, str]


def build_tokenizer() -> CLIPTokenizer:
    """Tokenizer of the tiny world; the same on every call."""
    merges: list[Merge] = []
    for word in words():
        merges.extend(_missing_merges(word, merges))
    characters = sorted(bytes_to_unicode().values())
    tokens = characters + [c + END_OF_WORD for c in characters] + ["".join(merge) for merge in merges]
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    vocab = {token: index for index, token in enumerate(dict.fromkeys(tokens))}
    return CLIPTokenizer(vocab=vocab, merges=merges, model_max_length=MAX_TOKENS)


def _split_word(word: str, merges: list[Merge]) -> list[str]:
    """Symbols of a word after all merges, best rank first, as BPE applies them."""
    symbols = [*word[:-1], word[-1] + END_OF_WORD]
    rank = {merge: index for index, merge in enumerate(merges)}
    while True:
        pairs = [(rank[pair], i) for i, pair in enumerate(pairwise(symbols)) if pair in rank]
        if not pairs:
            return symbols
        _, at = min(pairs)
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]


def _missing_merges(word: str, merges: list[Merge]) -> list[Merge]:
    """Merges that, added after the given ones, make the word one token.

    They start at a vowel and grow from it, so that every merged token holds one.

    Raises:
        ValueError: the word has no vowel.
    """
    symbols = _split_word(word, merges)
    seeds = [i for i, symbol in enumerate(symbols) if VOWELS & set(symbol.removesuffix(END_OF_WORD))]
    if not seeds:
        raise ValueError(f"caption word {word!r} has no vowel; its merges could join letters of a sign text")
    at, added = seeds[0], []
    while at + 1 < len(symbols):
        added.append((symbols[at], symbols[at + 1]))
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    while at > 0:
        added.append((symbols[at - 1], symbols[at]))
        symbols[at - 1 : at + 1] = [symbols[at - 1] + symbols[at]]
        at -= 1
    return added
