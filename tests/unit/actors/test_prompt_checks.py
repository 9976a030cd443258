"""Prompts against the rewards: what no reward can score, metadata a scorer would fail on, what is merely odd."""

import json
from pathlib import Path
from typing import Any

import pytest

from actors.preflight import PreflightError, check_files
from actors.prompt_checks import bad_metadata, rewards_without_prompts, scored_by, unscored
from actors.prompts import Prompt, read_sources
from actors.run_config import RunConfig
from tests.unit.actors.stand_ins import prompts, recipe
from tests.unit.hollow_model import write_hollow_model

MASK2FORMER = {"detector": "rewards.mask2former:Mask2FormerDetector", "detector_args": {"checkpoint": "a/b"}}
CLIP_COLORS = {"colors": "rewards.clip_colors:ClipColors", "colors_args": {"checkpoint": "a/b"}}
TINY = {"detector": "tinyworld.detector:ColourShapeDetector", "colors": "tinyworld.detector:PaletteColors"}


def geneval_recipe(tmp_path: Path, includes: list[list[dict[str, Any]]], args: dict[str, Any]) -> RunConfig:
    """One GenEval source with a line for each `include`, and one of plain prompts."""
    lines, plain = tmp_path / "g.jsonl", tmp_path / "plain.txt"
    lines.write_text("".join(json.dumps({"tag": "counting", "include": i, "prompt": "x"}) + "\n" for i in includes))
    plain.write_text("a\nb\n")
    files = {"train": str(lines), "heldout": str(lines), "format": "geneval"}
    return recipe(
        prompts={"sources": {"plain": {"train": str(plain), "heldout": str(plain)}, "g": files}},
        rewards={"geneval": {"scorer": "geneval", "args": args, "applies": ["g"]}},
    )


def wrong(config: RunConfig) -> list[str]:
    read, problems = read_sources(config.prompts, "train")
    assert problems == []
    return bad_metadata(config, read, "train")


def test_an_unknown_class_is_named_with_its_line_and_the_nearest_one(tmp_path: Path) -> None:
    includes = [
        [{"class": "dog", "count": 1}],
        [{"class": "mouse", "count": 1}],
        [{"class": "dog", "count": 1, "color": "mauve"}],
    ]
    found = wrong(geneval_recipe(tmp_path, includes, MASK2FORMER | CLIP_COLORS))
    file = tmp_path / "g.jsonl"
    assert found == [
        f"rewards.geneval: {file}, line 2: include[0].class 'mouse' is not one the detector knows; "
        "the nearest is 'computer mouse'",
        f"rewards.geneval: {file}, line 3: include[0].color 'mauve' is unknown; known are red, orange, yellow, green, "
        "blue, purple, pink, brown, black, white",
    ]


def test_the_tiny_worlds_names_are_known_too(tmp_path: Path) -> None:
    found = wrong(geneval_recipe(tmp_path, [[{"class": "crcle", "count": 1, "color": "red"}]], TINY))
    assert len(found) == 1
    assert "the nearest is 'circle'" in found[0]


def test_a_colour_without_a_classifier_is_told(tmp_path: Path) -> None:
    (line,) = wrong(geneval_recipe(tmp_path, [[{"class": "dog", "count": 1, "color": "red"}]], MASK2FORMER))
    assert "known are none (no classifier)" in line


def test_another_detectors_classes_are_not_guessed(tmp_path: Path) -> None:
    """Its module is not imported in the driver either."""
    args = {"detector": "no_such_package.detector:Detector"}
    assert wrong(geneval_recipe(tmp_path, [[{"class": "wug", "count": 1}]], args)) == []


def test_many_of_a_kind_are_counted(tmp_path: Path) -> None:
    found = wrong(geneval_recipe(tmp_path, [[{"class": "wug", "count": 1}]] * 30, MASK2FORMER))
    assert len(found) == 6
    assert found[-1] == f"rewards.geneval: {tmp_path / 'g.jsonl'}: 25 more like these"


def test_preflight_tells_metadata_and_files_at_once(tmp_path: Path) -> None:
    config = geneval_recipe(tmp_path, [[{"class": "wug", "count": 1}]], MASK2FORMER)
    (tmp_path / "plain.txt").write_text("a\n\n")
    with pytest.raises(PreflightError) as caught:
        check_files(config)
    codes = [problem.code for problem in caught.value.problems]
    assert codes == ["prompts.file"] * 2 + ["prompts.metadata"] * 2 + ["model.files"]


def rewards(**each: Any) -> RunConfig:
    return recipe(rewards=each)


SIGNS = prompts('a "X"', "no quotes", 'a lone " quote', "curly “X”", source="signs")
PLAIN = prompts("a", "b")


def test_what_a_scorer_looks_for_decides_what_is_scored() -> None:
    """FAULTS 9: an OCR reward over prompts without a target would be idle for ever."""
    config = rewards(
        text={"scorer": "ocr"}, all={"scorer": "module:A"}, meta={"scorer": "module:B", "when": "metadata"}
    )
    assert scored_by(config.rewards["text"], SIGNS) == 1
    assert scored_by(config.rewards["all"], SIGNS) == 4
    assert scored_by(config.rewards["meta"], SIGNS) == 0
    sources = {"plain": PLAIN, "signs": SIGNS[1:]}
    assert rewards_without_prompts(config, sources, "train") == [
        "rewards.text applies to none of the training prompts (applies: plain, signs; when: always; "
        "scorer ocr needs a text in straight double quotes, or `text` in its metadata)",
        "rewards.meta applies to none of the training prompts (applies: plain, signs; when: metadata)",
    ]


def test_a_target_named_in_metadata_counts() -> None:
    config = rewards(text={"scorer": "ocr"})
    named = [Prompt("s/0", "s", "a sign", {"text": "OPEN"}), Prompt("s/1", "s", "a sign", {"text": " "})]
    assert scored_by(config.rewards["text"], named) == 1


def test_prompts_of_a_named_source_that_are_not_scored_are_odd() -> None:
    """One line a source; `when` leaves prompts out on purpose."""
    sources = {"plain": PLAIN, "signs": SIGNS}
    config = rewards(text={"scorer": "ocr", "applies": ["signs"]})
    assert unscored(config, sources, "train") == [
        "rewards.text scores 1 of 4 training prompts of signs: 3 carry nothing it looks for"
    ]
    assert unscored(rewards(text={"scorer": "ocr", "applies": ["signs"], "when": "quoted"}), sources, "train") == []
    assert unscored(rewards(text={"scorer": "ocr"}), sources, "train") == []


def test_long_prompts_are_one_warning_and_stop_nothing(tmp_path: Path) -> None:
    config = geneval_recipe(tmp_path, [[{"class": "dog", "count": 1}]], MASK2FORMER)
    (tmp_path / "plain.txt").write_text("a\n" + "word " * 80 + "\n")
    write_hollow_model(tmp_path / "model")
    whole = config.model_copy(update={"policy": config.policy.model_copy(update={"base": str(tmp_path / "model")})})
    (warning,) = check_files(whole).warnings
    assert warning.code == "prompts.too_long"
    assert warning.text.startswith(
        "at least 1 of 3 training prompts (plain 1) and 1 of 3 held-out prompts (plain 1) are"
    )
