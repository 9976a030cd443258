"""Held-out rewards: what a recipe may say of them, and that everything but training has them."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from actors.preflight import PreflightError, asked_by_role, check_files, scorer_problems
from actors.run_config import RunConfig
from actors.team import Team
from tests.unit.actors.in_process import InProcess
from tests.unit.actors.stand_ins import recipe
from tests.unit.hollow_model import write_hollow_model

JUDGES = {"judge": {"scorer": "module:J"}, "reader": {"scorer": "ocr", "applies": ["signs"]}}


def refused(**sections: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        recipe(**sections)
    return str(caught.value)


def test_training_has_k_rewards_and_evaluations_have_them_all() -> None:
    config = recipe(heldout_rewards=JUDGES)
    assert config.reward_names == ("a", "b", "text")
    assert config.judge_names == ("a", "b", "text", "judge", "reader")
    assert [key for key, _, _ in config.judges()][-2:] == ["heldout_rewards.judge", "heldout_rewards.reader"]
    roles = [asked.role for asked in asked_by_role(config)]
    assert roles[1:6] == ["reward.a", "reward.b", "reward.text", "reward.judge", "reward.reader"]


def test_a_pool_of_a_held_out_reward_is_configured_like_any_other() -> None:
    config = recipe(heldout_rewards=JUDGES, actors={"pools": {"reader": {"replicas": 3, "num_gpus": 0.5}}})
    assert config.pool("reader").replicas == 3
    assert config.scorer("reader").args["device"] == "cuda"
    cpu = {"scorer": "ocr", "args": {"device": "cpu"}}
    text = refused(heldout_rewards={"reader": cpu}, actors={"pools": {"reader": {"num_gpus": 0.5}}})
    assert "heldout_rewards.reader.args.device is cpu" in text


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"heldout_rewards": {"a": {"scorer": "m:J"}}}, "heldout_rewards.a is a training reward too"),
        ({"heldout_rewards": {"x": {"scorer": "m:J", "applies": ["no"]}}}, "heldout_rewards.x.applies names ['no']"),
        ({"eval": {"best_by": "heldout_rewards"}}, "eval.best_by is heldout_rewards, but the recipe has none"),
        ({"eval": {"early_stop": {}}}, "eval.early_stop.by is heldout_rewards, but the recipe has none"),
        (
            {"heldout_rewards": JUDGES, "eval": {"best_by": "juge"}},
            "eval.best_by must be one of rewards, heldout_rewards, a, b, text, judge, reader, got juge; did you mean "
            "judge?",
        ),
        (
            {"heldout_rewards": JUDGES, "checkpoint": {"keep_best": 0}, "eval": {"every": 0, "early_stop": {}}},
            "eval.early_stop needs eval.every > 0",
        ),
        ({"heldout_rewards": {"rewards": {"scorer": "m:J"}}}, "no reward can be called rewards"),
        ({"eval": {"early_stop": {"by": "a", "patience": 0}}}, "greater than or equal to 1"),
        ({"harmonizer": {"method": "fixed", "fixed": {"judge": 1.0}}, "heldout_rewards": JUDGES}, "judge"),
    ],
)
def test_what_makes_no_sense_is_refused(sections: dict[str, Any], message: str) -> None:
    assert message in refused(**sections)


def test_followed_rewards_by_name_and_by_section() -> None:
    config = recipe(heldout_rewards=JUDGES)
    assert config.followed("rewards") == ("a", "b", "text")
    assert config.followed("heldout_rewards") == ("judge", "reader")
    assert config.followed("judge") == ("judge",)


def test_only_evaluations_are_scored_by_all_pools() -> None:
    remote = InProcess()
    team = Team(recipe(heldout_rewards=JUDGES), remote, remote.spawn, lambda text: None)
    assert tuple(team.pools_of(evaluation=False)) == ("a", "b", "text")
    assert tuple(team.pools_of(evaluation=True)) == ("a", "b", "text", "judge", "reader")
    assert [crew.role for crew in team.crews][-2:] == ["reward.judge", "reward.reader"]


def files(tmp_path: Path, heldout: str, **sections: Any) -> RunConfig:
    """One source whose training prompts have no quoted text."""
    tmp_path.mkdir(exist_ok=True)
    train, held = tmp_path / "train.txt", tmp_path / "held.txt"
    train.write_text("cat\ndog\n")
    held.write_text(heldout)
    sources = {name: {"train": str(train), "heldout": str(held)} for name in ("plain", "signs")}
    policy = {"base": str(write_hollow_model(tmp_path / "model"))}
    rewards = {"a": {"scorer": "module:A"}}
    return recipe(policy=policy, prompts={"sources": sources}, rewards=rewards, **sections)


def test_only_held_out_prompts_must_carry_what_a_held_out_reward_needs(tmp_path: Path) -> None:
    assert check_files(files(tmp_path, 'a "X"\nb "Y"\n', heldout_rewards=JUDGES)).heldout
    with pytest.raises(PreflightError) as caught:
        check_files(files(tmp_path / "bare", "no text\n", heldout_rewards=JUDGES))
    (line,) = caught.value.lines
    assert line.startswith("heldout_rewards.reader applies to none of the held-out prompts (applies: signs; ")


def test_its_checkpoint_is_looked_at_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "clip").mkdir()
    judge = {"scorer": "clipscore", "args": {"checkpoint": str(tmp_path / "clip")}}
    lines = scorer_problems(recipe(heldout_rewards={"judge": judge}))
    assert lines
    assert all(line.startswith(f"heldout_rewards.judge.args.checkpoint: {tmp_path / 'clip'}: ") for line in lines)
