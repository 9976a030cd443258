"""The world: splits share nothing, rendering is deterministic, prompt files are what the script writes."""

import hashlib
import json
from typing import get_args

import numpy as np
import pytest

from tinyworld.captions import GENEVAL_TAGS, Prompt, sample_geneval, sample_prompt, words
from tinyworld.make_prompts import PROMPTS, SIZES, all_prompts, file_name, file_text
from tinyworld.negatives import corrupt
from tinyworld.palette import COLORS, MAX_TINT_CHROMA, SHAPES, tint, tone
from tinyworld.preferences import alter
from tinyworld.render import render
from tinyworld.scene import SIZE, SOURCES, Item, Scene, Source
from tinyworld.splits import SIGN_ALPHABET, Kind, Split, coloured_items, combination, kind_of_text
from tinyworld.world import realise

GOLDEN = "6214ecdcc7ddce729bc7b36b923f7bdf2257933a17118d6f8ad4fbb8f3d8923d"
"""SHA-256 of the pictures of ``golden_images``; a change here needs new weights."""


@pytest.fixture(scope="module")
def files() -> dict[tuple[str, Split], list[Prompt]]:
    return all_prompts()


def golden_images() -> bytes:
    rng = np.random.default_rng(7)
    return b"".join(render(realise(sample_prompt(rng, SOURCES[i % 3], "seen"), rng)).tobytes() for i in range(60))


def test_prompt_files_are_what_the_script_writes(files: dict[tuple[str, Split], list[Prompt]]) -> None:
    for (source, split), prompts in files.items():
        assert (PROMPTS / file_name(source, split)).read_text(encoding="utf-8") == file_text(source, prompts)


def test_prompt_files_hold_enough_distinct_prompts(files: dict[tuple[str, Split], list[Prompt]]) -> None:
    assert SIZES["heldout"] == 192
    assert SIZES["train"] >= 600
    for (_, split), prompts in files.items():
        assert len({prompt.caption for prompt in prompts}) == len(prompts) == SIZES[split]


@pytest.mark.parametrize("source", get_args(Source))
def test_splits_share_no_text_and_no_combination(files: dict[tuple[str, Split], list[Prompt]], source: str) -> None:
    train, heldout = files[source, "train"], files[source, "heldout"]
    assert not {p.caption for p in train} & {p.caption for p in heldout}
    assert not {p.text for p in train if p.text} & {p.text for p in heldout if p.text}
    assert not {combination(p.things) for p in train if p.things} & {combination(p.things) for p in heldout if p.things}


def test_half_of_what_is_trained_on_is_new_to_the_base(files: dict[tuple[str, Split], list[Prompt]]) -> None:
    """Held-out prompts name coloured shapes the base has never drawn; training has each of them in another company."""
    by_split: dict[str, set[tuple[str, str | None]]] = {split: set() for split in SIZES}
    for (_, split), prompts in files.items():
        by_split[split] |= {thing for prompt in prompts for thing in prompt.things if thing[1]}
    unseen = set(coloured_items("unseen"))
    assert by_split["heldout"] >= unseen
    coloured = [p for source in ("general", "geneval") for p in files[source, "heldout"] if any(c for _, c in p.things)]
    assert all(set(prompt.things) & unseen for prompt in coloured)
    assert by_split["train"] == unseen | set(coloured_items("seen"))
    pairs = [prompt for prompt in files["geneval", "train"] if prompt.metadata["tag"] == "color_attr"]
    new = [prompt for prompt in pairs if set(prompt.things) & unseen]
    assert 0.4 < len(new) / len(pairs) < 0.6
    assert all(kind_of_text(prompt.text or "") == "seen" for prompt in files["ocr", "train"])


def test_every_tag_is_held_out(files: dict[tuple[str, Split], list[Prompt]]) -> None:
    assert {prompt.metadata["tag"] for prompt in files["geneval", "heldout"]} == set(GENEVAL_TAGS)


@pytest.mark.parametrize("kind", ["seen", "unseen"])
def test_generated_scenes_keep_to_their_kind(kind: Kind) -> None:
    other: Kind = "unseen" if kind == "seen" else "seen"
    rng = np.random.default_rng(0)
    coloured = _things(rng, other)
    for _ in range(600):
        scene = realise(sample_prompt(rng, SOURCES[int(rng.integers(3))], kind), rng, kind)
        assert not {(item.shape, item.color) for item in scene.items} & coloured
        if scene.sign:
            assert kind_of_text(scene.sign.text) == kind


def _things(rng: np.random.Generator, kind: Kind) -> set[tuple[str, str | None]]:
    return {thing for _ in range(400) for thing in sample_geneval(rng, kind, "color_attr").things}


def test_geneval_metadata_follows_the_public_format() -> None:
    rng = np.random.default_rng(1)
    counting = sample_geneval(rng, "seen", "counting")
    number = counting.metadata["include"][0]["count"]
    assert number == len(counting.things)
    assert counting.metadata["exclude"] == [{"class": counting.things[0][0], "count": number + 1}]
    position = sample_geneval(rng, "seen", "position")
    (first, second), relation = position.things, position.relation
    assert position.metadata["include"] == [
        {"class": second[0], "count": 1},
        {"class": first[0], "count": 1, "position": [relation, 0]},
    ]
    assert position.caption.endswith(f"{first[0]} {relation} a {second[0]}")
    for tag in GENEVAL_TAGS:
        metadata = sample_geneval(rng, "unseen", tag).metadata
        assert next(iter(metadata)) == "tag"
        assert list(metadata)[-1] == "prompt"
        assert json.loads(json.dumps(metadata)) == metadata


def test_pictures_are_the_same_bytes_everywhere() -> None:
    assert hashlib.sha256(golden_images()).hexdigest() == GOLDEN


@pytest.mark.parametrize("source", SOURCES)
def test_scene_shows_its_prompt(source: Source) -> None:
    rng = np.random.default_rng(2)
    for _ in range(200):
        prompt = sample_prompt(rng, source, "seen")
        scene = realise(prompt, rng)
        assert [item.shape for item in scene.items] == [shape for shape, _ in prompt.things]
        assert all(color in (None, item.color) for item, (_, color) in zip(scene.items, prompt.things, strict=True))
        assert (scene.sign.text if scene.sign else None) == prompt.text
        assert all(_inside(item) for item in scene.items)
        assert prompt.saturation[0] <= scene.style.saturation <= prompt.saturation[1]


def _inside(item: Item) -> bool:
    return all(item.radius <= centre <= SIZE - item.radius for centre in (item.x, item.y))


def test_objects_are_darker_or_more_saturated_than_backgrounds() -> None:
    lightest = min(min(tint(hue, 1.0)) for hue in np.linspace(0, 1, 48))
    assert lightest / 255 > 0.97 - MAX_TINT_CHROMA - 0.01
    assert max(min(tone(color, s)) for color in COLORS for s in (0.0, 0.5, 1.0)) / 255 < 0.46


def test_hard_negatives_differ_and_stay_in_the_vocabulary() -> None:
    rng = np.random.default_rng(3)
    known = {*words(), "and", "a", "star"}
    for index in range(600):
        prompt = sample_prompt(rng, SOURCES[index % 3], "seen")
        wrong = corrupt(prompt.caption, rng)
        assert wrong != prompt.caption
        assert {word for word in wrong.split() if not word.startswith('"')} <= known


def test_altered_prompts_show_something_else() -> None:
    rng = np.random.default_rng(4)
    for index in range(600):
        prompt = sample_prompt(rng, SOURCES[index % 3], "seen")
        other = alter(prompt, rng)
        assert (other.things, other.relation, other.text) != (prompt.things, prompt.relation, prompt.text)
        assert other.caption == prompt.caption
        assert isinstance(realise(other, rng), Scene)
        assert set(other.text or "") <= set(SIGN_ALPHABET)
        assert {shape for shape, _ in other.things} <= set(SHAPES)
