"""Methods as changes of a recipe, and the tiny world's recipes of them."""

import json
from pathlib import Path

import pytest

from actors.run_config import RunConfig
from deploy.compare.methods import SUITES, apportioned, choose, in_stages, reward_sets, stages_of, steering
from deploy.compare.own_files import own_file
from deploy.paths import ROOT
from deploy.recipe import RECIPES, checked, differences, load_recipe
from learner.errors import UserError

TINY = RECIPES / "tiny.yaml"
METHODS = [path.stem.removeprefix("tiny_") for path in sorted(RECIPES.glob("tiny_*.yaml"))]
OTHERS = {"16", "long", "published", "published_sequential"}


@pytest.mark.parametrize("name", sorted(set(METHODS) - OTHERS))
def test_recipes_of_the_tiny_world_are_the_methods(name: str) -> None:
    """What `marble compare` makes of any recipe is what stands in the files, but for their names and stages' order."""
    tiny = load_recipe(TINY)
    [method] = choose([name], tiny.config.reward_names)
    made, written = method.change(tiny.resolved), load_recipe(RECIPES / f"tiny_{name}.yaml").resolved
    if name == "sequential":
        made = in_stages(made, made["learner"]["stages"], tiny.config.run.iterations)
    different = {key for key, _, _ in differences(_filled(made), written)}
    assert different <= {"run.name"} | ({"learner.stages"} if name == "sequential" else set())


def _filled(data: dict[str, object]) -> dict[str, object]:
    return RunConfig.model_validate_json(json.dumps(data)).model_dump(mode="json")


def test_flow_grpo_trains_no_more_timesteps_than_its_steps_with_noise() -> None:
    """Of 25 steps of which NFT trains 24 it draws ten, the last one without noise."""
    tiny = load_recipe(TINY, ["sampling.steps=25", "learner.timesteps=24", "learner.updates_per_iteration=1"])
    for updates, timesteps in ((1, 9), (2, 4), (9, 1)):
        data = {**tiny.resolved, "learner": {**tiny.resolved["learner"], "updates_per_iteration": updates}}
        [method] = choose(["flow_grpo_ocr"], tiny.config.reward_names)
        learner = checked(method.change(data), "it").config.learner
        assert learner.timesteps == timesteps
    [fewer] = choose(["flow_grpo_ocr"], tiny.config.reward_names)
    assert fewer.change(load_recipe(TINY).resolved)["learner"]["timesteps"] == 2, "what fits stays"


@pytest.mark.parametrize("name", ["uniform", "weighted_sum", "sequential", "single_ocr", "flow_grpo_ocr"])
def test_a_baseline_keeps_of_the_harmonizer_what_its_method_takes(name: str) -> None:
    steered = ["harmonizer={kl: constraint, kl_bound: 0.1, floors: {ocr: 0.2}, amortize: paper, apply: ema}"]
    recipe = load_recipe(TINY, [*steered, "harmonizer.refresh.n=7", "harmonizer.ema.rho=0.4"])
    [method] = choose([name], recipe.config.reward_names)
    changed = method.change(recipe.resolved)
    data = in_stages(changed, stages_of(changed), 80) if stages_of(changed) else changed
    harmonizer = checked(data, "it").config.harmonizer
    assert (harmonizer.amortize, harmonizer.apply, harmonizer.ema.rho) == ("paper", "ema", 0.4)
    assert (harmonizer.kl, harmonizer.kl_bound, harmonizer.floors) == ("outside", 0.0, None)
    assert harmonizer.refresh.policy == ("every_n" if name == "uniform" else "never")
    assert harmonizer.refresh.n == 7
    assert steering(recipe.resolved) == ("floors", "kl", "kl_bound")


def test_weights_of_gradients_are_none_of_a_sum() -> None:
    weights = "{pickscore: 1, hpsv2: 1, clipscore: 1, ocr: 2, geneval: 2}"
    recipe = load_recipe(TINY, [f"harmonizer={{method: weighted_gradients, weights: {weights}}}"])
    [method] = choose(["weighted_sum"], recipe.config.reward_names)
    assert checked(method.change(recipe.resolved), "it").config.harmonizer.weights is None


def test_every_method_of_the_suites_has_a_recipe() -> None:
    names = load_recipe(TINY).config.reward_names
    paper = {method.name for method in choose(SUITES["paper"], names)}
    assert paper == (set(METHODS) - OTHERS) | {"marble"}
    assert set(SUITES["core"]) < paper
    assert own_file(TINY, "sequential") == RECIPES / "tiny_sequential.yaml"
    assert own_file(TINY, "marble") is None


def test_sequential_is_in_the_papers_proportions() -> None:
    """800, 300, 200, 200, 100 of 1600 steps, on the tiny recipe's 80."""
    stages = load_recipe(RECIPES / "tiny_sequential.yaml").config.learner.stages
    assert [stage.iterations for stage in stages] == apportioned([800, 300, 200, 200, 100], 80) == [40, 15, 10, 10, 5]
    broad, second = ("pickscore", "hpsv2", "clipscore"), ("geneval",)
    assert [stage.rewards for stage in stages] == [broad, second, broad, second, ("ocr",)]


@pytest.mark.parametrize(
    ("shares", "total", "parts"),
    [
        ([800, 300, 200, 200, 100], 1600, [800, 300, 200, 200, 100]),
        ([1, 1, 1], 5, [2, 2, 1]),
        ([1000, 1], 3, [2, 1]),
        ([1000, 1, 1], 3, [1, 1, 1]),
        ([7], 4, [4]),
    ],
)
def test_apportioned(shares: list[int], total: int, parts: list[int]) -> None:
    assert apportioned(shares, total) == parts


def test_sets_are_broad_rewards_together_and_the_others_alone() -> None:
    data = load_recipe(TINY).resolved
    assert reward_sets(data) == [["pickscore", "hpsv2", "clipscore"], ["ocr"], ["geneval"]]
    everywhere = {**data, "rewards": {"a": {"applies": None}, "b": {"applies": list(data["prompts"]["sources"])}}}
    assert reward_sets(everywhere) == [["a", "b"]]
    assert reward_sets({**data, "rewards": {"a": {"applies": ["ocr"]}}}) == [["a"]]


def test_stages_need_an_iteration_each() -> None:
    with pytest.raises(UserError, match="2 stages do not fit into 1 iterations"):
        in_stages({"learner": {}}, [{"rewards": ["a"], "iterations": 1}] * 2, 1)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["marbel"], "no method 'marbel'; there are marble, weighted_sum"),
        (["single_x"], "no method 'single_x'"),
        (["flow_grpo_x"], r"no method 'flow_grpo_x'; .*single\[_a\|b\], flow_grpo\[_a\|b\]"),
        ([], "no method to compare; there are marble"),
    ],
)
def test_unknown_methods_are_refused_with_those_there_are(names: list[str], told: str) -> None:
    with pytest.raises(UserError, match=told):
        choose(names, ("a", "b"))


def test_specialists_are_one_for_each_reward() -> None:
    assert [(method.name, method.of_one) for method in choose(["single", "single_b"], ("a", "b"))] == [
        ("single_a", "a"),
        ("single_b", "b"),
    ]
    assert [(method.name, method.of_one) for method in choose(["flow_grpo"], ("a", "b"))] == [
        ("flow_grpo_a", "a"),
        ("flow_grpo_b", "b"),
    ]


def test_sixteen_rewards_load_and_every_source_is_scored() -> None:
    recipe = load_recipe(RECIPES / "tiny_16.yaml")
    assert len(recipe.config.reward_names) == 16
    tagged = {source.tags for source in recipe.config.prompts.sources.values() if source.tags}
    tags = ("single_object", "two_object", "counting", "colors", "position", "color_attr")
    assert tagged == {(tag,) for tag in tags}
    assert {reward.applies for reward in recipe.config.rewards.values() if reward.scorer == "geneval"} == tagged
    assert Path(recipe.config.policy.base) == ROOT / "tinyworld/weights/pipeline"
