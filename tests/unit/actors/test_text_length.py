"""Token counts in the driver against transformers' own tokenizer."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.prompts import Prompt
from actors.text_length import TokenCounter, counter_of, num_longer, too_long
from tests.unit.actors.stand_ins import prompts

ROOT = Path(__file__).parents[3]
TINY = ROOT / "tinyworld" / "weights" / "pipeline"
TEXTS = [
    "",
    'a sign that says "K7F2"',
    "Café   naïve — it's 2024's “best” <|endoftext|>",
    "supercalifragilistic",
    "日本語 and emoji 🙂🙂",
    "under_score a.b,c!!! don't we'LL",
]


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model whose tokenizer comes as vocab.json and merges.txt, as CLIP's does."""
    folder = tmp_path_factory.mktemp("base") / "tokenizer"
    folder.mkdir()
    whole = json.loads((TINY / "tokenizer" / "tokenizer.json").read_text())["model"]
    (folder / "vocab.json").write_text(json.dumps(whole["vocab"]))
    pairs = [" ".join(pair) if isinstance(pair, list) else pair for pair in whole["merges"]]
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(pairs) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 77}))
    return folder.parent


def test_counts_are_those_of_the_pipelines_tokenizer(older: Path) -> None:
    from transformers import CLIPTokenizer

    reference = CLIPTokenizer.from_pretrained(TINY / "tokenizer")
    expected = [len(reference(text).input_ids) for text in TEXTS]
    assert counter_of(str(TINY))(TEXTS) == expected
    assert counter_of(str(older))(TEXTS) == expected
    assert (counter_of(str(TINY)).max_tokens, counter_of(str(older)).max_tokens) == (16, 77)


@settings(deadline=None)  # the machine may be busy
@given(st.text(max_size=40))
def test_without_a_tokenizer_the_count_is_a_lower_bound(text: str) -> None:
    bound = TokenCounter(77, None)([text])[0]
    assert bound <= counter_of(str(TINY))([text])[0]


def test_a_lower_bound_by_hand() -> None:
    """Start, four words, two marks, three digits, end."""
    assert TokenCounter(77, None)(['A cat, a "dog" 123']) == [2 + 4 + 3 + 3]


@pytest.mark.parametrize("base", ["nowhere/at-all", "./none", "a/b/c", "", "no such model"])
def test_a_base_that_is_not_here_gives_a_lower_bound(base: str) -> None:
    """And asks no network."""
    counter = counter_of(base)
    assert (counter.max_tokens, counter.tokenizer) == (77, None)


def test_a_broken_tokenizer_gives_a_lower_bound(tmp_path: Path) -> None:
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer_config.json").write_text("{}")
    (tmp_path / "tokenizer" / "tokenizer.json").write_text('{"model": 3}')
    assert counter_of(str(tmp_path)).tokenizer is None


def test_one_line_counts_all(older: Path) -> None:
    exact = counter_of(str(older))
    long = Prompt("a/0", "a", "cat " * 76)
    just = Prompt("a/1", "a", "a " * 75)
    assert exact([long.text, just.text])[1] == 77
    assert num_longer(exact, [long, just]) == 1
    splits = {"training": {"a": [long, just], "b": prompts("x")}, "held-out": {"a": [just], "b": [long, long]}}
    assert too_long(exact, splits) == (
        "1 of 3 training prompts (a 1) and 2 of 3 held-out prompts (b 2) are longer than 77 tokens: CLIP's text "
        "encoders, and the rewards built on them, do not see the rest"
    )
    assert too_long(TokenCounter(77, None), splits).startswith("at least 1 of 3")
    assert too_long(exact, {"training": {"a": [just]}}) == ""


def test_counting_loads_neither_torch_nor_transformers() -> None:
    """Row 28: it happens in the driver."""
    code = (
        "import sys\n"
        "from actors.text_length import counter_of\n"
        f"assert counter_of({str(TINY)!r})(['a'])\n"
        "print([m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
