"""The tokenizer: a real CLIPTokenizer, one token a word, one a glyph, everything within 16."""

from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer, CLIPTokenizer

from tinyworld.captions import sample_prompt, words
from tinyworld.negatives import corrupt
from tinyworld.scene import SOURCES
from tinyworld.splits import SIGN_ALPHABET
from tinyworld.tokenizer import MAX_TOKENS, build_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> CLIPTokenizer:
    return build_tokenizer()


def test_every_word_is_one_token(tokenizer: CLIPTokenizer) -> None:
    assert [word for word in words() if len(tokenizer(word).input_ids) != 3] == []


def test_captions_fit_into_16_tokens(tokenizer: CLIPTokenizer) -> None:
    rng = np.random.default_rng(0)
    captions = [sample_prompt(rng, SOURCES[i % 3], ("seen", "unseen")[i % 2]).caption for i in range(2000)]
    captions += [corrupt(caption, rng) for caption in captions]
    assert max(len(ids) for ids in tokenizer(captions).input_ids) <= MAX_TOKENS == tokenizer.model_max_length


def test_sign_texts_are_single_glyphs(tokenizer: CLIPTokenizer) -> None:
    rng = np.random.default_rng(1)
    for _ in range(500):
        text = "".join(rng.choice(list(SIGN_ALPHABET), 5))
        tokens = tokenizer.tokenize(f'a sign that reads "{text}"')[5:-1]
        assert [token.removesuffix("</w>") for token in tokens] == list(text.lower())


def test_any_text_has_tokens(tokenizer: CLIPTokenizer) -> None:
    ids = tokenizer("Gämse 🦌 über dem See").input_ids
    assert ids[0] == tokenizer.bos_token_id
    assert ids[-1] == tokenizer.eos_token_id
    assert tokenizer.eos_token_id not in ids[1:-1]


def test_saving_and_loading_changes_nothing(tokenizer: CLIPTokenizer, tmp_path: Path) -> None:
    tokenizer.save_pretrained(tmp_path)
    rng = np.random.default_rng(2)
    captions = [sample_prompt(rng, SOURCES[i % 3], "seen").caption for i in range(100)]
    for loaded in (CLIPTokenizer.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)):
        assert loaded(captions).input_ids == tokenizer(captions).input_ids
        assert loaded.model_max_length == MAX_TOKENS
        assert loaded.pad_token_id == loaded.eos_token_id
