"""Recipes built on others with `base:`."""

from pathlib import Path

import pytest

from deploy import layers
from deploy.recipe import examine, load_recipe
from learner.errors import UserError


def overlay(folder: Path, text: str, name: str = "over.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_mappings_merge_the_rest_is_replaced_and_null_takes_out() -> None:
    """RFC 7396's own cases, as far as recipes can have them."""
    below = {"a": {"b": 1, "c": [1, 2]}, "d": {"e": 3}, "f": "text"}
    above = {"a": {"c": [9], "n": {"x": None, "y": 1}}, "d": None, "f": {"g": 4}}
    assert layers.merged(below, above) == {"a": {"b": 1, "c": [9], "n": {"y": 1}}, "f": {"g": 4}}
    assert below == {"a": {"b": 1, "c": [1, 2]}, "d": {"e": 3}, "f": "text"}


def test_a_recipe_over_another_says_what_differs_only(recipe_file: Path) -> None:
    over = overlay(recipe_file.parent, f"base: {recipe_file.name}\nrun: {{name: over}}\nlearner: {{lr: 2e-3}}\n")
    whole, changed = load_recipe(recipe_file).config, load_recipe(over).config
    assert (changed.run.name, changed.learner.lr) == ("over", 2e-3)
    assert changed.model_copy(update={"run": whole.run, "learner": whole.learner}) == whole
    assert load_recipe(over, ["learner.lr=3e-3"]).config.learner.lr == 3e-3, "--set lies over both"


def test_dotted_paths_start_beside_the_file_that_says_them(recipe_file: Path, tmp_path: Path) -> None:
    """FAULTS 29: the base's ./model lies beside the base, the overlay's ./own.txt beside the overlay."""
    folder = recipe_file.parent / "deeper"
    folder.mkdir()
    (folder / "own.txt").write_text("a\nb\nc\nd\n")
    over = overlay(folder, f"base: ../{recipe_file.name}\nprompts: {{sources: {{general: {{train: ./own.txt}}}}}}\n")
    config = load_recipe(over).config
    assert config.policy.base == str(recipe_file.parent / "model")
    assert config.prompts.sources["general"].train == str(folder / "own.txt")


def test_several_bases_lie_one_over_the_other(recipe_file: Path) -> None:
    overlay(recipe_file.parent, "learner: {lr: 5e-3, timesteps: 1}\n", "faster.yaml")
    over = overlay(recipe_file.parent, f"base: [{recipe_file.name}, faster.yaml]\nlearner: {{timesteps: 2}}\n")
    learner = load_recipe(over).config.learner
    assert (learner.lr, learner.timesteps) == (5e-3, 2)


def test_what_is_wrong_is_told_with_the_file_that_says_it(recipe_file: Path) -> None:
    base = overlay(recipe_file.parent, f"base: {recipe_file.name}\nlearner: {{lrr: 1}}\n", "middle.yaml")
    over = overlay(recipe_file.parent, f"base: {base.name}\nlearner: {{timesteps: none}}\n")
    told = {problem.text.split(": ")[1]: problem.text for problem in examine(over).problems}
    assert told["learner.lrr"].startswith(f"{base}: learner.lrr: unknown key")
    assert told["learner.timesteps"].startswith(f"{over}: learner.timesteps: ")


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("over.yaml", "is built on itself, through"),
        ("none.yaml", "no such file or folder, got 'none.yaml'"),
        ("[]", "wants the path of a recipe or a list of them, got []"),
        ("{a: 1}", "wants the path of a recipe or a list of them, got {'a': 1}"),
    ],
)
def test_refused(recipe_file: Path, named: str, why: str) -> None:
    over = overlay(recipe_file.parent, f"base: {named}\n")
    with pytest.raises(UserError) as caught:
        load_recipe(over)
    [line] = str(caught.value).splitlines()
    assert line.startswith(f"{over}: base: ")
    assert why in line
