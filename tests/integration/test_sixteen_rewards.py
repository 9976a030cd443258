"""The shipped recipe of sixteen rewards, cut to one small iteration, with its real scorers and without processes."""

from pathlib import Path

import numpy as np
import pytest

from actors.ledger_parts import STEPS, read_table
from deploy.recipe import RECIPES, load_recipe
from tests.integration.small_run import run, samples

SMALL = (
    "run.iterations=1",
    "prompts.groups_per_iteration=8",
    "prompts.group_size=4",
    "prompts.chunk_size=8",
    "eval.prompts_per_source=1",
    "eval.batch_size=8",
    "sampling.steps=4",
    "eval_sampling.steps=4",
    "learner.updates_per_iteration=1",
    "learner.timesteps=1",
    "actors.rollout.replicas=1",
    "actors.learner.replicas=1",
)
SUMMED = (
    "learner.objective=weighted_sum",
    "harmonizer={method: weighted_gradients, refresh: {policy: never}}",
)


@pytest.mark.parametrize("summed", [False, True])
def test_it_trains_by_gradients_and_by_their_sum(summed: bool, tmp_path: Path) -> None:
    recipe = load_recipe(RECIPES / "tiny_16.yaml", [*SMALL, *(SUMMED if summed else ())])
    names = recipe.config.reward_names
    summary, recorder, _ = run(recipe.config, tmp_path / "run")
    assert recorder.warnings == []
    assert set(summary.rewards) == set(names)
    rows = samples(tmp_path / "run")
    for name in names:
        assert any(row[f"state_{name}"] == 0 for row in rows), f"{name} scored nothing"
        assert not any(row[f"state_{name}"] == 2 for row in rows), f"{name} failed"
    [step] = read_table(tmp_path / "run", STEPS).to_pylist()
    assert step["applied"]
    if summed:
        assert step["weight_weighted_sum"] == 1.0
        return
    weights = np.array([step[f"weight_{name}"] for name in names])
    assert weights.sum() == pytest.approx(1.0)
    active = [name for name in names if step[f"active_{name}"]]
    assert len(active) >= 10, "all but rewards whose few groups score alike"
    assert step["status"] in ("optimal", "stationary")
    assert step["worst_cosine"] > -1e-6
