"""`marble data`: what is counted, for people and for programs, and what is said of files that cannot be read."""

import json
from pathlib import Path
from typing import Any

from deploy_helpers import GENEVAL_LINE, Marble, edited, problem, tree

GENERAL = """\
a cat
a cat
a sign that says "A" beside "B"
a sign that says "C"
a lone " quote
the letters “LYDR”
the mark ‹ and it's 'single'
"""


def counted(recipe_file: Path, marble: Marble, *args: str) -> dict[str, Any]:
    ran = marble("data", recipe_file, "--json", *args)
    assert ran.code == 0, ran.err
    data: dict[str, Any] = json.loads(ran.out)
    return data


def with_ocr(recipe_file: Path, more: str = "") -> None:
    edited(recipe_file, ("learner:\n", f"  ocr:\n    scorer: ocr\n{more}learner:\n"))


def test_held_out_rewards_score_held_out_prompts_only(recipe_file: Path, marble: Marble) -> None:
    (recipe_file.parent / "general_heldout.txt").write_text('a "B"\nno text\n')
    data = counted(recipe_file, marble, "--set", "heldout_rewards.reader={scorer: ocr, applies: [general]}")
    assert data["heldout_rewards"]["reader"]["heldout"] == {"scored": 1, "by_source": {"general": 1, "geneval": 0}}
    assert "train" not in data["heldout_rewards"]["reader"]
    assert list(data["rewards"]) == ["align", "geneval"]
    ran = marble("data", recipe_file, "--set", "heldout_rewards.reader={scorer: ocr, applies: [general]}")
    assert "reader, held-out" in ran.out
    assert "reader, training" not in ran.out


def test_counts_per_source_and_reward(recipe_file: Path, workdir: Path, marble: Marble) -> None:
    folder = recipe_file.parent
    (folder / "general_train.txt").write_text(GENERAL + "long " * 90 + "\n")
    position = '{"prompt": "p", "tag": "position", "include": [{"class": "circle", "count": 1}]}\n'
    (folder / "geneval_train.jsonl").write_text(GENEVAL_LINE * 3 + position)
    with_ocr(recipe_file)
    before = tree(workdir.parent)
    ran = marble("data", recipe_file, "--json", "--set", "rewards.ocr.applies=[general]")
    # The held-out file has no quotes: an OCR reward that scores nothing is an error.
    assert ran.code == 2
    data = json.loads(ran.out)
    [told] = data["problems"]
    assert told.startswith("rewards.ocr applies to none of the held-out prompts (applies: general; when: always; ")
    assert data["sources"]["general"] == {
        "format": "lines",
        "train": {
            "prompts": 8,
            "distinct": 7,
            "too_long": 1,
            "metadata": 0,
            "quoting": {"none": 4, "one": 1, "several": 1, "lone": 1, "empty": 0, "curly": 1},
            "tags": {},
        },
        "heldout": {
            "prompts": 8,
            "distinct": 8,
            "too_long": 0,
            "metadata": 0,
            "quoting": {"none": 8, "one": 0, "several": 0, "lone": 0, "empty": 0, "curly": 0},
            "tags": {},
        },
        "heldout_also_in_train": 0,
    }
    assert data["sources"]["geneval"]["train"]["tags"] == {"position": 1, "single_object": 3}
    assert data["sources"]["geneval"]["train"]["metadata"] == 4
    assert data["sources"]["geneval"]["heldout_also_in_train"] == 8
    assert data["rewards"]["align"]["train"] == {"scored": 12, "by_source": {"general": 8, "geneval": 4}}
    assert data["rewards"]["ocr"]["train"] == {"scored": 2, "by_source": {"general": 2, "geneval": 0}}
    assert data["rewards"]["geneval"]["train"] == {"scored": 4, "by_source": {"general": 0, "geneval": 4}}
    assert (data["max_tokens"], data["tokens_exact"]) == (77, False)
    assert tree(workdir.parent) == before


def test_long_prompts_are_one_warning(recipe_file: Path, marble: Marble) -> None:
    path = recipe_file.parent / "general_train.txt"
    path.write_text(path.read_text() + ("long " * 90 + "\n") * 3)
    ran = marble("data", recipe_file)
    assert ran.code == 0
    assert len(ran.lines) == 1
    assert ran.lines[0].startswith("warning: at least 3 of 19 training prompts (general 3) are longer than 77 tokens")
    assert counted(recipe_file, marble)["warnings"] == [ran.lines[0].removeprefix("warning: ")]


def test_prompts_that_a_named_source_hides_from_a_reward(recipe_file: Path, marble: Marble) -> None:
    for split in ("train", "heldout"):
        (recipe_file.parent / f"general_{split}.txt").write_text('says "A"\n' * 4 + "says nothing\n")
    with_ocr(recipe_file, "    applies: [general]\n")
    assert counted(recipe_file, marble)["warnings"] == [
        f"rewards.ocr scores 4 of 5 {kind} prompts of general: 1 carry nothing it looks for"
        for kind in ("training", "held-out")
    ]
    assert counted(recipe_file, marble, "--set", "rewards.ocr.when=quoted")["warnings"] == []


def test_a_tag_that_is_null_is_none(recipe_file: Path, marble: Marble) -> None:
    clause = '"include": [{"class": "circle", "count": 1}]'
    for split in ("train", "heldout"):
        (recipe_file.parent / f"geneval_{split}.jsonl").write_text(f'{{"prompt": "p", "tag": null, {clause}}}\n' * 8)
    counts = counted(recipe_file, marble)["sources"]["geneval"]["train"]
    assert (counts["prompts"], counts["tags"], counts["metadata"]) == (8, {}, 8)


def test_tables_fit_a_terminal(recipe_file: Path, marble: Marble) -> None:
    out = marble("data", recipe_file).out.splitlines()
    assert max(map(len, out)) <= 80
    assert any(line.split()[:3] == ["general,", "training", "8"] for line in out)
    assert any(line.split()[:3] == ["align,", "held-out", "16"] for line in out)
    assert "general: 8 held-out prompts are training prompts too" in out


def test_broken_files_are_told_and_the_rest_is_counted(recipe_file: Path, marble: Marble) -> None:
    path = recipe_file.parent / "geneval_train.jsonl"
    path.write_text(path.read_text() + '{"prompt": "x"}\n')
    ran = marble("data", recipe_file)
    problem(ran, "geneval_train.jsonl, line 9: GenEval metadata needs `include`")
    rows = [line.split() for line in ran.out.splitlines()]
    assert ["align,", "training", "8", "8", "?"] in rows
    assert ["align,", "held-out", "16", "8", "8"] in rows


def test_a_class_nobody_knows(recipe_file: Path, marble: Marble) -> None:
    edited(recipe_file, ('"some.module:Detector"', '"tinyworld.detector:ColourShapeDetector"'))
    for split in ("train", "heldout"):
        path = recipe_file.parent / f"geneval_{split}.jsonl"
        path.write_text(path.read_text() + '{"prompt": "x", "include": [{"class": "crcle", "count": 1}]}\n')
    ran = marble("data", recipe_file)
    lines = problem(
        ran, "line 9: include[0].class 'crcle' is not one the detector knows; the nearest is 'circle'", count=2
    )
    assert "geneval_train.jsonl" in lines[0]
    assert "geneval_heldout.jsonl" in lines[1]


def test_a_recipe_that_does_not_load(recipe_file: Path, marble: Marble) -> None:
    problem(marble("data", recipe_file, "--set", "learner.lrr=1"), "nearest valid key is learner.lr")
