"""Flow-GRPO's keys: what goes together, and what is refused (rows 19 and 24 of the faults table)."""

from pathlib import Path

import pytest

from deploy.errors import ProblemsError
from deploy.recipe import RECIPES, load_recipe
from learner.errors import UserError

BASE = ("learner.timesteps=2", "learner.updates_per_iteration=1")
FLOW_GRPO = (
    *BASE,
    "learner.algorithm=flow_grpo",
    "learner.old_policy.slope=0",
    "sampling={steps: 10, sde: {window: 2}}",
)


def lines_of(path: Path, *sets: str) -> str:
    """What is refused; nothing when the recipe loads."""
    try:
        load_recipe(path, sets)
    except ProblemsError as error:
        return "\n".join(error.lines)
    except UserError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("more", [(), ("sampling.guidance_scale=4.5",), ("sampling.sde={noise_level: 0.9}",)])
def test_loads(more: tuple[str, ...], recipe_file: Path) -> None:
    """Row 19: guidance is Flow-GRPO's to have, without an override."""
    assert lines_of(recipe_file, *FLOW_GRPO, *more) == ""


REFUSED = {
    "learner.algorithm=nft": "sampling.sde is for learner.algorithm: flow_grpo, got nft",
    "learner.algorithm=grpo": "learner.algorithm: should be 'nft' or 'flow_grpo', got \"grpo\"",
    "sampling.sde=null": "learner.algorithm is flow_grpo, whose rollouts need noise: set sampling.sde",
    "learner.old_policy.slope=0.1": "flow_grpo draws with the trained policy itself; set it to 0",
    "learner.timesteps=3": "learner.timesteps is 3, but 10 sampling steps",
    "learner.updates_per_iteration=2": "updates_per_iteration x timesteps = 4 is more than the 2 trainable timesteps",
    "learner.timestep_fraction=0.5": "set sampling.sde.window_range: [0, 5]",
    "learner.clip_range=0": "learner.clip_range: should be greater than 0, got 0",
    "eval_sampling.sde={}": "eval_sampling.sde is for rollouts only",
    "sampling.sde={window: 10}": "a window of 10 steps within [0, 9] does not fit 10 steps",
    "sampling.sde={windw: 2}": "the nearest valid key is sampling.sde.window",
    "sampling.sde={noise_level: -1}": "sampling.sde.noise_level: should be greater than 0, got -1",
}


@pytest.mark.parametrize("setting", REFUSED)
def test_refused_in_one_line_with_what_is_right(setting: str, recipe_file: Path) -> None:
    """Row 24."""
    found = lines_of(recipe_file, *FLOW_GRPO, setting)
    assert REFUSED[setting] in found
    assert "\n" not in found


@pytest.mark.parametrize("reward", ["pickscore", "hpsv2", "clipscore", "ocr", "geneval"])
def test_the_shipped_recipes_train_one_reward_each_on_all_steps_with_noise(reward: str) -> None:
    config = load_recipe(RECIPES / f"tiny_flow_grpo_{reward}.yaml").config
    assert config.learner.algorithm == "flow_grpo"
    assert [(stage.rewards, stage.iterations) for stage in config.learner.stages] == [((reward,), 80)]
    assert config.learner.num_trainable(config.sampling) == 9
