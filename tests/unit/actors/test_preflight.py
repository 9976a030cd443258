"""Preflight: everything that is wrong, at once. Rows 19, 23, 24 and 29 of the faults table touch it."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from actors.preflight import (
    Asked,
    PreflightError,
    asked_by_role,
    check_files,
    model_problems,
    placement_problems,
    scorer_problems,
    start_problems,
)
from actors.run_config import RunConfig
from rewards.scorer_args import IMAGEREWARD_FILES
from tests.unit.actors.stand_ins import recipe
from tests.unit.hollow_model import write_hollow_checkpoint, write_hollow_model


def files(tmp_path: Path, **sections: Any) -> RunConfig:
    """A recipe whose files are there."""
    plain, signs = tmp_path / "plain.txt", tmp_path / "signs.txt"
    plain.write_text("cat\ndog\n")
    signs.write_text('a "X"\nb "Y"\n')
    model = write_hollow_model(tmp_path / "model")
    sources = {name: {"train": str(path), "heldout": str(path)} for name, path in (("plain", plain), ("signs", signs))}
    defaults: dict[str, Any] = {"policy": {"base": str(model)}, "prompts": {"sources": sources}}
    return recipe(**{**defaults, **sections})


def test_good_files_give_the_prompts_of_both_splits(tmp_path: Path) -> None:
    found = check_files(files(tmp_path))
    assert [p.prompt_id for p in found.heldout] == ["plain/0", "plain/1", "signs/0", "signs/1"]
    assert {name: len(prompts) for name, prompts in found.train.items()} == {"plain": 2, "signs": 2}


def test_every_problem_is_a_line_of_its_own(tmp_path: Path) -> None:
    config = files(tmp_path, policy={"base": "./nowhere"})
    (tmp_path / "plain.txt").write_text("cat\n\n")
    (tmp_path / "signs.txt").write_bytes(b"\xff")
    with pytest.raises(PreflightError) as caught:
        check_files(config)
    assert [p.code for p in caught.value.problems] == ["prompts.file"] * 4 + ["model.files"]
    text = "\n".join(caught.value.lines)
    assert text.count("plain.txt, line 2: empty line") == 2, "as training and as held-out prompts"
    assert text.count("not UTF-8") == 2
    assert "policy.base: ./nowhere does not exist" in text
    assert "\n" not in str(caught.value)


def test_a_reward_without_any_prompt_it_applies_to_is_named_with_its_conditions(tmp_path: Path) -> None:
    config = files(tmp_path)
    (tmp_path / "signs.txt").write_text("no quotes\nnone here\n")
    with pytest.raises(PreflightError) as caught:
        check_files(config)
    assert caught.value.lines == (
        "rewards.text applies to none of the training prompts (applies: signs; when: quoted)",
        "rewards.text applies to none of the held-out prompts (applies: signs; when: quoted)",
    )


BUILT_IN: dict[str, Any] = {
    "sign": {"scorer": "ocr", "applies": ["signs"]},
    "objects": {"scorer": "geneval", "args": {"detector": "a:B"}, "applies": ["objects"]},
}


def built_in(tmp_path: Path, rewards: dict[str, Any], objects: str, file_format: str) -> RunConfig:
    """A recipe with the shipped rewards and their default `when`; `objects` is the text of a file of that format."""
    path = tmp_path / "objects.file"
    path.write_text(objects)
    files_of = {"plain": tmp_path / "plain.txt", "signs": tmp_path / "signs.txt", "objects": path}
    sources = {name: {"train": str(file), "heldout": str(file)} for name, file in files_of.items()}
    sources["objects"]["format"] = file_format
    return files(tmp_path, rewards=BUILT_IN | rewards, prompts={"sources": sources, "groups_per_iteration": 3})


OBJECT_LINE = '{"prompt": "a cat", "include": [{"class": "cat", "count": 1}]}\n'


def test_shipped_rewards_with_prompts_that_carry_what_they_need(tmp_path: Path) -> None:
    assert check_files(built_in(tmp_path, {}, OBJECT_LINE, "geneval")).heldout[-1].metadata["include"]


def test_ocr_without_a_single_text_is_refused(tmp_path: Path) -> None:
    config = built_in(tmp_path, {}, OBJECT_LINE, "geneval")
    (tmp_path / "signs.txt").write_text("no quotes\nnone here\n")
    with pytest.raises(PreflightError) as caught:
        check_files(config)
    assert caught.value.lines[0] == (
        "rewards.sign applies to none of the training prompts (applies: signs; when: always; "
        "scorer ocr needs a text in straight double quotes, or `text` in its metadata)"
    )
    assert len(caught.value.lines) == 2


def test_held_out_prompts_that_are_never_evaluated_do_not_count(tmp_path: Path) -> None:
    config = built_in(tmp_path, {}, OBJECT_LINE, "geneval")
    (tmp_path / "signs.txt").write_text('none here\na "X"\n')
    check_files(config)
    first_only = config.model_copy(update={"eval": config.eval.model_copy(update={"prompts_per_source": 1})})
    with pytest.raises(PreflightError, match=r"^rewards\.sign applies to none of the held-out prompts"):
        check_files(first_only)


@pytest.mark.parametrize(
    ("rewards", "objects", "file_format"),
    [
        ({}, OBJECT_LINE, "lines"),
        ({"objects": {**BUILT_IN["objects"], "applies": ["plain"]}}, OBJECT_LINE, "geneval"),
    ],
    ids=["a file of objects read as lines", "a source of plain lines"],
)
def test_geneval_without_metadata_is_refused(
    tmp_path: Path, rewards: dict[str, Any], objects: str, file_format: str
) -> None:
    with pytest.raises(PreflightError, match=r"needs `include` in its metadata") as caught:
        check_files(built_in(tmp_path, rewards, objects, file_format))
    assert len(caught.value.lines) == 2


@pytest.mark.parametrize("notes", [None, [None], [""], ["{}"], ['{"include": []}'], ['{"tag": "counting"}']])
def test_geneval_on_parquet_without_metadata_is_refused(tmp_path: Path, notes: list[str | None] | None) -> None:
    config = built_in(tmp_path, {}, "", "parquet")
    table = {"prompt": ["a cat"]} | ({} if notes is None else {"metadata": pa.array(notes, pa.string())})
    pq.write_table(pa.table(table), tmp_path / "objects.file")
    with pytest.raises(PreflightError, match=r"rewards\.objects applies to none of the training prompts"):
        check_files(config)


def test_a_source_too_small_for_an_iteration_is_named(tmp_path: Path) -> None:
    config = files(tmp_path)
    (tmp_path / "plain.txt").write_text("cat\n")
    grown = config.model_copy(update={"prompts": config.prompts.model_copy(update={"groups_per_iteration": 4})})
    with pytest.raises(PreflightError, match="plain has 1 training prompts, but each iteration draws 2"):
        check_files(grown)


def test_metadata_that_is_wrong_hides_nothing_else(tmp_path: Path) -> None:
    shapes = {"scorer": "geneval", "args": {"detector": "tinyworld.detector:ColourShapeDetector"}}
    config = built_in(tmp_path, {"objects": {**shapes, "applies": ["objects"]}}, OBJECT_LINE, "geneval")
    (tmp_path / "signs.txt").write_text("no quotes\nnone here\n")
    grown = config.model_copy(update={"prompts": config.prompts.model_copy(update={"groups_per_iteration": 9})})
    with pytest.raises(PreflightError) as caught:
        check_files(grown)
    assert {problem.code for problem in caught.value.problems} == {
        "prompts.metadata",
        "prompts.too_few",
        "rewards.no_prompts",
    }


def test_a_file_that_cannot_be_read_does_not_hide_that_another_is_too_small(tmp_path: Path) -> None:
    config = files(tmp_path)
    (tmp_path / "plain.txt").write_text("cat\n\n")
    grown = config.model_copy(update={"prompts": config.prompts.model_copy(update={"groups_per_iteration": 6})})
    with pytest.raises(PreflightError) as caught:
        check_files(grown)
    assert [problem.code for problem in caught.value.problems] == ["prompts.file", "prompts.file", "prompts.too_few"]
    assert "signs has 2 training prompts, but each iteration draws 3" in caught.value.lines[-1]


def test_a_method_whose_extra_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = files(tmp_path, harmonizer={"method": "nash_mtl"})
    monkeypatch.setattr("harmonizer.config.find_spec", lambda name: None if name == "ecos" else "there")
    with pytest.raises(PreflightError) as caught:
        check_files(config)
    assert caught.value.lines == (
        "harmonizer.method nash_mtl needs ecos, which this environment lacks: "
        "pip install -e '.[torchjd]' -c constraints.txt",
    )


def test_a_model_folder_is_looked_at(tmp_path: Path) -> None:
    assert model_problems("stabilityai/stable-diffusion-3.5-medium") == []
    assert "does not exist" in model_problems(str(tmp_path / "none"))[0]
    assert "has no model_index.json" in model_problems(str(tmp_path))[0]
    folder = write_hollow_model(tmp_path / "model")
    assert model_problems(str(folder)) == []
    (folder / "vae" / "config.json").unlink()
    assert model_problems(str(folder)) == [f"policy.base: {folder}: vae: config.json is missing"]


def test_a_scorers_checkpoint_is_looked_at(tmp_path: Path) -> None:
    checkpoint = write_hollow_checkpoint(tmp_path / "clip", "model")
    taste = {"scorer": "hpsv2", "args": {"checkpoint": str(checkpoint)}}
    hub = {"scorer": "hpsv2", "args": {"checkpoint": "owner/name"}}
    config = files(tmp_path, rewards={"taste": taste, "far": hub})
    check_files(config)
    (checkpoint / "model.safetensors").unlink()
    with pytest.raises(PreflightError) as caught:
        check_files(config)
    assert caught.value.lines == (f"rewards.taste.args.checkpoint: {checkpoint}: model.safetensors is missing",)
    assert [problem.code for problem in caught.value.problems] == ["rewards.files"]
    (checkpoint / "HPS_v2.1_compressed.pt").touch()
    assert scorer_problems(config) == [], "open_clip's own format"


def test_checkpoints_of_every_format_are_looked_at(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    args = {"checkpoint": str(empty)}
    parts = {
        "detector": "rewards.mask2former:Mask2FormerDetector",
        "detector_args": args,
        "colors": "rewards.clip_colors:ClipColors",
        "colors_args": args,
    }
    rewards = {
        "clip": {"scorer": "clipscore", "args": args},
        "human": {"scorer": "imagereward", "args": args},
        "objects": {"scorer": "geneval", "args": parts},
        "own": {"scorer": "a:B", "args": args},
    }
    lacks = ("config.json is missing", "model.safetensors is missing")
    assert scorer_problems(recipe(rewards=rewards)) == [
        *(f"rewards.clip.args.checkpoint: {empty}: {lack}" for lack in lacks),
        *(f"rewards.human.args.checkpoint: {empty}: {file} is missing" for file in IMAGEREWARD_FILES),
        *(f"rewards.objects.args.detector_args.checkpoint: {empty}: {lack}" for lack in lacks),
        *(f"rewards.objects.args.colors_args.checkpoint: {empty}: {lack}" for lack in lacks),
    ]


def test_each_kind_of_broken_start_has_its_code(tmp_path: Path) -> None:
    """Row 29: a pool's Python is looked at with the models, before Ray is started."""
    (tmp_path / "clip").mkdir()
    config = recipe(
        policy={"base": str(tmp_path / "gone")},
        rewards={"align": {"scorer": "clipscore", "args": {"checkpoint": str(tmp_path / "clip")}}},
        actors={"pools": {"align": {"runtime_env": {"py_executable": str(tmp_path / "python")}}}},
    )
    found = start_problems(config)
    assert [problem.code for problem in found] == ["model.files", *["rewards.files"] * 2, "rewards.environment"]
    with pytest.raises(PreflightError) as caught:
        check_files(config)
    assert set(found) <= set(caught.value.problems)


GIB = 2.0**30


def roles(**each: tuple[int, dict[str, float]]) -> tuple[Asked, ...]:
    return tuple(Asked(name, replicas, amounts) for name, (replicas, amounts) in each.items())


def test_what_fits_is_no_problem() -> None:
    asked = roles(rollout=(4, {"CPU": 0.1}), learner=(1, {"CPU": 0.1}), scorer=(5, {"CPU": 0.1}))
    assert placement_problems(asked, {"CPU": 1.0}, [{"CPU": 1.0}]) == []


def test_row_23_what_does_not_fit_is_listed_by_role_with_asked_against_available() -> None:
    asked = roles(rollout=(8, {"GPU": 1.0, "CPU": 1.0}), learner=(2, {"GPU": 4.0}))
    (problem,) = placement_problems(asked, {"CPU": 32.0, "GPU": 8.0}, [{"CPU": 32.0, "GPU": 8.0}])
    assert problem == "not enough GPU: rollout 8 x 1, learner 2 x 4 ask for 16, available is 8"


def test_row_23_a_custom_resource_nobody_has_is_an_error() -> None:
    (problem,) = placement_problems(roles(learner=(1, {"h200": 1.0})), {"CPU": 2.0}, [{"CPU": 2.0}])
    assert problem == "not enough h200: learner 1 x 1 ask for 1, available is 0"


def test_row_23_an_actor_must_fit_on_one_node() -> None:
    node = {"CPU": 8.0, "GPU": 4.0, "memory": 8 * GIB, "node:10.0.0.1": 1.0}
    (problem,) = placement_problems(roles(learner=(1, {"GPU": 8.0})), {"GPU": 8.0, "CPU": 16.0}, [node, node])
    assert "role learner: no node has room for replica 1 of 1, which asks for 8 GPU on one node" in problem
    assert "nodes have 8 CPU, 4 GPU; 8 CPU, 4 GPU" in problem


def test_every_role_is_asked_for_and_the_harmonizer_is_one() -> None:
    config = recipe(actors={"rollout": {"replicas": 3, "num_cpus": 1}, "pools": {"b": {"replicas": 2}}})
    asked = {role.role: role for role in asked_by_role(config)}
    assert list(asked) == ["rollout", "reward.a", "reward.b", "reward.text", "harmonizer", "learner"]
    assert (asked["rollout"].replicas, asked["rollout"].each) == (3, {"CPU": 1.0})
    assert asked["reward.b"].replicas == 2
