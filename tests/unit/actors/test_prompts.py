"""Prompts with their identity, and the sampler that draws them."""

import pickle
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from actors.config import PromptsConfig
from actors.keeper import digest
from actors.preflight import PromptSets
from actors.prompts import Prompt, PromptSampler, read_prompts, read_sources, shortages
from learner.errors import UserError


def write(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def test_prompts_have_ids_by_position(tmp_path: Path) -> None:
    path = write(tmp_path / "p.txt", 'a cat\na sign that says "A"\na cat\n')
    prompts = read_prompts(path, "lines", "general")
    assert [p.prompt_id for p in prompts] == ["general/0", "general/1", "general/2"]
    assert [p.text for p in prompts] == ["a cat", 'a sign that says "A"', "a cat"]
    assert all(p.source == "general" and p.metadata == {} for p in prompts)


def test_prompts_of_some_tags_keep_their_place_in_the_file(tmp_path: Path) -> None:
    line = '{"prompt": "%s", "tag": "%s", "include": [{"class": "cat", "count": 1}]}\n'
    path = write(tmp_path / "p.jsonl", "".join(line % pair for pair in (("a", "x"), ("b", "y"), ("c", "x"))))
    assert [p.prompt_id for p in read_prompts(path, "geneval", "s", ("x",))] == ["s/0", "s/2"]
    assert [p.text for p in read_prompts(path, "geneval", "s", ("y", "x"))] == ["a", "b", "c"]
    with pytest.raises(UserError, match=r"prompt source s: .*p\.jsonl has no prompt with tag z; tags are x, y"):
        read_prompts(path, "geneval", "s", ("x", "z"))


def test_what_is_wrong_names_the_source_too(tmp_path: Path) -> None:
    path = write(tmp_path / "p.txt", "a\n\n\n")
    with pytest.raises(UserError, match=r"prompt source s: .*p\.txt, line 2: empty line.*; prompt source s: .*line 3"):
        read_prompts(path, "lines", "s")


def test_metadata_that_passes_can_be_digested_and_sent(tmp_path: Path) -> None:
    """Row 5: every checkpoint takes a digest of it."""
    path = tmp_path / "p.parquet"
    note = {"include": [{"class": "cat", "count": 2, "color": None}], "size": 0.5, "deep": {"er": ["é"]}}
    pq.write_table(pa.table({"prompt": ["a"], "metadata": [note]}), path)
    prompts = read_prompts(path, "parquet", "s")
    assert prompts[0].metadata == note
    assert digest(PromptSets({"s": prompts}, prompts)) != digest(PromptSets({"s": prompts}, ()))
    assert pickle.loads(pickle.dumps(prompts)) == prompts


def test_every_unreadable_source_is_named(tmp_path: Path) -> None:
    good = write(tmp_path / "good.txt", "a\n")
    config = PromptsConfig.model_validate(
        {
            "sources": {
                "one": {"train": str(tmp_path / "none.txt"), "heldout": str(good)},
                "two": {"train": str(good), "heldout": str(good)},
                "three": {"train": str(write(tmp_path / "bad.txt", "\n")), "heldout": str(good)},
            }
        }
    )
    read, problems = read_sources(config, "train")
    assert list(read) == ["two"]
    assert len(problems) == 2
    assert "none.txt is not a file" in problems[0]


def make_sources(**sizes: int) -> dict[str, tuple[Prompt, ...]]:
    return {name: tuple(Prompt(f"{name}/{i}", name, f"{name} {i}") for i in range(n)) for name, n in sizes.items()}


def test_every_iteration_draws_equally_and_no_prompt_twice() -> None:
    sampler = PromptSampler(make_sources(a=7, b=11, c=3), 9, seed=1)
    for iteration in range(20):
        groups = sampler.groups(iteration)
        assert Counter(p.source for p in groups) == {"a": 3, "b": 3, "c": 3}
        assert len({p.prompt_id for p in groups}) == 9


def test_an_epoch_repeats_no_prompt_and_another_epoch_has_another_order() -> None:
    sampler = PromptSampler(make_sources(a=8), 2, seed=1)
    epochs = [[p.prompt_id for i in range(4 * e, 4 * e + 4) for p in sampler.groups(i)] for e in range(2)]
    assert all(sorted(epoch) == sorted(f"a/{i}" for i in range(8)) for epoch in epochs)
    assert epochs[0] != epochs[1]


def test_what_an_iteration_draws_depends_on_seed_and_iteration_only() -> None:
    """Row 5: resuming needs no sampler state."""
    first, second = (PromptSampler(make_sources(a=9, b=9), 4, seed=5) for _ in range(2))
    for iteration in range(5):
        first.groups(iteration)
    assert first.groups(5) == second.groups(5)
    assert PromptSampler(make_sources(a=9, b=9), 4, seed=6).groups(5) != second.groups(5)


def test_a_source_that_is_too_small_is_an_error_that_names_it() -> None:
    sources = make_sources(a=9, b=1)
    assert len(shortages(sources, 4)) == 1
    with pytest.raises(UserError, match="b has 1 training prompts, but each iteration draws 2"):
        PromptSampler(sources, 4, seed=1)
