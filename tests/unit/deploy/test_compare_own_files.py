"""A method laid down beside the recipe: with --set below it, and nothing changed that all methods have in common."""

from pathlib import Path

import pytest
from deploy_helpers import edited
from test_compare_order import asked

from deploy.compare import order
from deploy.compare.order import Row
from deploy.compare.own_files import rebased
from deploy.recipe import RECIPES, checked
from learner.errors import UserError

TINY = RECIPES / "tiny.yaml"


def row_of(recipe: Path, method: str, *sets: str) -> Row:
    [row] = order.checked_rows(asked(recipe, methods=method, sets=sets))
    return row


def beside(recipe: Path, method: str, text: str) -> None:
    recipe.with_name(f"{recipe.stem}_{method}.yaml").write_text(f"base: {recipe.name}\n{text}")


def test_stages_of_the_file_are_proportions_of_what_set_asks_for() -> None:
    row = row_of(TINY, "sequential", "run.iterations=160")
    assert row.data["run"]["iterations"] == 160
    data = order.main_data(row, asked(TINY), 42, 160, 1e-3)
    stages = checked(data, "it").config.learner.stages
    assert [stage.iterations for stage in stages] == [80, 30, 20, 20, 10]


def test_stages_that_do_not_add_up_to_the_recipes_iterations_are_proportions_too(recipe_file: Path) -> None:
    beside(recipe_file, "sequential", "learner: {stages: [{rewards: [align], iterations: 30}, "
           "{rewards: [geneval], iterations: 10}]}\n")  # fmt: skip
    row = row_of(recipe_file, "sequential")
    assert row.data["run"]["iterations"] == 4
    stages = checked(order.main_data(row, asked(recipe_file), 42, 4, 1e-3), "it").config.learner.stages
    assert [stage.iterations for stage in stages] == [3, 1]


def test_the_file_comes_last_and_set_stays_where_the_file_says_nothing() -> None:
    row = row_of(TINY, "no_ema", "harmonizer.ema.rho=0.5", "harmonizer.amortize=paper", "learner.kl_beta=0.1")
    assert row.data["harmonizer"]["ema"]["rho"] == 0.0, "the method is that there is none"
    assert row.data["harmonizer"]["amortize"] == "paper"
    assert row.data["learner"]["kl_beta"] == 0.1


@pytest.mark.parametrize("method", ["uniform", "weighted_sum", "sequential", "single_ocr", "flow_grpo_ocr"])
def test_what_a_baseline_cannot_take_is_left_out_and_said_once(method: str) -> None:
    row = row_of(TINY, method, "harmonizer.kl=constraint", "harmonizer.apply=ema")
    assert (row.data["harmonizer"]["kl"], row.data["harmonizer"]["apply"]) == ("outside", "ema")
    assert row.without == ("kl",)


def test_each_set_of_keys_is_one_line() -> None:
    sets = ("harmonizer.kl=constraint",)
    rows = order.checked_rows(asked(TINY, methods="marble,uniform,weighted_sum", sets=sets))
    told = "left out of uniform, weighted_sum, whose methods cannot take it: harmonizer.kl"
    assert order.left_out(rows) == [told]
    assert order.left_out(order.checked_rows(asked(TINY, methods="marble,uniform"))) == []


def test_what_the_file_itself_says_stays(recipe_file: Path) -> None:
    """Also where the recipe steers its min-norm."""
    steered = edited(recipe_file, ("learner:\n", "harmonizer: {floors: {align: 0.1}}\nlearner:\n"))
    beside(steered, "uniform", "harmonizer: {method: fixed, fixed: {align: 0.75, geneval: 0.25}}\n")
    row = row_of(steered, "uniform")
    assert row.data["harmonizer"]["fixed"] == {"align": 0.75, "geneval": 0.25}
    assert row.without == ("floors",)


def test_paths_given_with_set_reach_a_method_of_a_file(recipe_file: Path, workdir: Path) -> None:
    """Those of the recipe lie beside it, those of --set in the working directory."""
    beside(recipe_file, "uniform", "harmonizer: {method: uniform}\n")
    (workdir / "model").symlink_to(recipe_file.parent / "model")
    data = row_of(recipe_file, "uniform", "policy.base=./model").data
    assert data["policy"]["base"] == str(workdir / "model")
    assert data["prompts"]["sources"]["general"]["train"] == str(recipe_file.parent / "general_train.txt")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("prompts: {group_size: 4}", "prompts.group_size is 2 in the recipe, got 4"),
        ("prompts: {groups_per_iteration: 2}", "prompts.groups_per_iteration is 4 in the recipe, got 2"),
        ("eval: {seed: 7}", "eval.seed is 1000 in the recipe, got 7"),
        ("eval: {prompts_per_source: 3}", "eval.prompts_per_source is null in the recipe, got 3"),
        ("eval_sampling: {steps: 20}", "eval_sampling.steps is 10 in the recipe, got 20"),
        ("policy: {resolution: 128}", "policy.resolution is 64 in the recipe, got 128"),
        ("sampling: {steps: 20}", "sampling.steps is 10 in the recipe, got 20"),
        ("rewards: {geneval: {args: {clip: false}}}", "rewards.geneval.args.clip is true in the recipe, got false"),
    ],
)
def test_a_file_that_changes_what_is_compared_is_refused(recipe_file: Path, text: str, told: str) -> None:
    beside(recipe_file, "uniform", f"harmonizer: {{method: uniform}}\n{text}\n")
    with pytest.raises(UserError) as caught:
        row_of(recipe_file, "uniform")
    assert "small_uniform.yaml: " in str(caught.value)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("harmonizer: uniform", "harmonizer: should be a mapping of keys"),
        ("learner: 3", "learner: should be a mapping of keys"),
        ("eval: 3", "eval: should be a mapping of keys"),
        ("learner: {stages: 3}", "learner.stages: "),
        ("learner: {stages: [3]}", "learner.stages.0: should be a mapping of keys"),
        ("harmonizer: {metod: uniform}", "harmonizer.metod: unknown key"),
    ],
)
def test_a_file_that_is_no_recipe_is_told_with_its_keys(recipe_file: Path, text: str, told: str) -> None:
    beside(recipe_file, "uniform", f"{text}\n")
    with pytest.raises(UserError, match=r"small_uniform\.yaml: ") as caught:
        row_of(recipe_file, "uniform")
    assert told in str(caught.value)


def test_another_algorithm_may_draw_in_its_own_way() -> None:
    row = row_of(TINY, "flow_grpo_ocr", "sampling.steps=25")
    assert row.data["sampling"]["sde"] is not None


def test_early_stops_of_the_recipe_are_no_fault_of_a_method_in_stages() -> None:
    """No compared run has any."""
    stop = "eval.early_stop={by: rewards, patience: 2}"
    row = row_of(TINY, "sequential", "eval.every=10", stop)
    assert row.data["eval"]["early_stop"] is None


def test_rebased_by_hand() -> None:
    before = {"a": 1, "b": {"c": 2, "d": 3}, "gone": 1, "taken": 1}
    after = {"a": 1, "b": {"c": 9, "d": 3, "e": 4}, "taken": 1}
    onto = {"a": 5, "b": {"c": 6, "d": 7}, "gone": 2, "more": {"x": 1}}
    assert rebased(before, after, onto) == {"a": 5, "b": {"c": 9, "d": 7, "e": 4}, "more": {"x": 1}}
