"""One iteration: what changes, what is published, what is refused (FAULTS 1, 5, 6, 17, 21)."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from learner import adapters, train_step
from learner.adapters import hash_tensors
from learner.amortized import AmortizedLoss
from learner.config import LoraConfig
from learner.errors import UserError
from learner.gradients import RewardGradients, reward_gradients
from learner.learner import Learner, rank_slice
from learner.types import IterationReport, TrainBatch
from tests.unit.learner.batches import NUM_SAMPLES, REWARDS, SEED, harmonizer, make_batch, make_learner, scores
from tests.unit.learner.probes import gradient, kl_row, watched


@pytest.fixture
def learner(tiny_folder: Path) -> Learner:
    return make_learner(tiny_folder)


def fingerprint(learner: Learner) -> dict[str, str]:
    """Hash of every tensor group."""
    return {group: hash_tensors(tensors) for group, tensors in learner.state()[0].items()}


def silent(learner: Learner, iteration: int = 0) -> TrainBatch:
    """A batch without any scored cell."""
    values_KN, states_KN = scores(iteration)
    return make_batch(learner, iteration, scores_KN=values_KN, states_KN=np.full_like(states_KN, 2))


def test_an_iteration_reports_what_it_did(learner: Learner) -> None:
    start = learner.adapter("old")
    report = learner.train(make_batch(learner, 0))
    assert [step.step for step in report.steps] == [0, 1]
    assert [step.solved for step in report.steps] == [True, False]
    assert all(step.applied and not step.skip_reason and step.iteration == 0 for step in report.steps)
    for step in report.steps:
        assert step.weights_K.sum() == pytest.approx(1)
        assert np.isfinite([step.loss, step.kl, step.grad_norm, step.mean_norm, step.seconds]).all()
    solution = report.steps[0].solution
    assert solution is not None
    np.testing.assert_allclose(report.steps[0].weights_K, solution.alpha_K, rtol=1e-12)
    assert np.isfinite(solution.report.cosines_K).all()
    assert report.advantages_KN.shape == report.signal_KN.shape == (len(REWARDS), NUM_SAMPLES)
    assert (report.applied, report.policy_version) == (True, 1)
    assert report.eta == pytest.approx(0.002)
    assert report.old_hash != start.hash
    assert report.default_hash == learner.adapter("default").hash
    assert report.old_hash == learner.adapter("old").hash
    assert set(report.timings_s) == {"prepare", "steps", "publish"}


def test_all_adapters_start_equal_and_published(learner: Learner) -> None:
    default, old, ema = (learner.adapter(slot) for slot in ("default", "old", "ema"))
    assert default.hash == old.hash == ema.hash
    assert default.policy_version == old.policy_version == 0
    assert len(old.tensors) == 2 * adapters.num_target_modules(learner.policy.transformer)


def test_old_and_ema_follow_their_rules(tiny_folder: Path) -> None:
    learner = make_learner(tiny_folder, old_policy={"slope": 0.2, "max": 0.9}, ema_decay=0.75, updates_per_iteration=1)
    old = ema = learner.adapter("default").tensors
    for iteration, rate in enumerate((0.2, 0.4, 0.6)):
        report = learner.train(make_batch(learner, iteration))
        default = learner.adapter("default").tensors
        assert report.eta == pytest.approx(rate)
        old = {key: rate * old[key] + (1 - rate) * default[key] for key in old}
        ema = {key: 0.75 * ema[key] + 0.25 * default[key] for key in ema}
        for slot, expected in (("old", old), ("ema", ema)):
            found = learner.adapter(slot).tensors  # type: ignore[arg-type]
            for key, value in found.items():
                np.testing.assert_allclose(value, expected[key], atol=1e-7)


def test_eta_zero_publishes_default_itself(tiny_folder: Path) -> None:
    learner = make_learner(tiny_folder, old_policy={"slope": 0.0})
    report = learner.train(make_batch(learner, 0))
    assert report.old_hash == report.default_hash


def test_eta_one_publishes_nothing(tiny_folder: Path) -> None:
    learner = make_learner(tiny_folder, old_policy={"slope": 1.0, "max": 1.0})
    report = learner.train(make_batch(learner, 0))
    assert (report.applied, report.policy_version) == (True, 0)
    assert report.old_hash != report.default_hash


def test_lr_zero_applies_but_changes_nothing(tiny_folder: Path) -> None:
    """DESIGN 2.5: the hash of `default` changes if and only if a step was applied with lr > 0."""
    learner = make_learner(tiny_folder, lr=0.0)
    before = learner.adapter("default").hash
    report = learner.train(make_batch(learner, 0))
    assert (report.applied, report.policy_version) == (True, 0)
    assert report.default_hash == report.old_hash == before
    assert learner.steps_done == 2


def test_a_batch_without_signal_changes_and_publishes_nothing(learner: Learner) -> None:
    """FAULTS 17: no step, untouched moments, and the reason is on record."""
    learner.train(make_batch(learner, 0))
    before, steps = fingerprint(learner), learner.steps_done
    report = learner.train(silent(learner, 1))
    assert fingerprint(learner) == before
    assert (report.applied, report.policy_version, learner.steps_done) == (False, 1, steps)
    assert {step.skip_reason for step in report.steps} == {"no reward has signal in this batch"}
    assert not report.signal_KN.any()
    assert learner.train(make_batch(learner, 2)).steps[0].step == steps


def poisoned(*rows: int) -> Callable[..., RewardGradients]:
    """reward_gradients with rows (K is KL) that are not finite."""

    def broken(*args: Any, **kwargs: Any) -> RewardGradients:
        found = reward_gradients(*args, **kwargs)
        for row in rows:
            target = kl_row(found) if row == len(REWARDS) else found.gradients_KP[row]
            assert target is not None
            target[3] = float("nan")
        return found

    return broken


def test_a_reward_with_a_broken_gradient_leaves_the_step(learner: Learner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_step, "reward_gradients", poisoned(1))
    record = learner.train(make_batch(learner, 0)).steps[0]
    assert record.applied
    assert record.active_K.tolist() == [True, False, True]
    assert record.weights_K[1] == record.coefficients_K[1] == 0
    assert record.solution is not None
    assert record.solution.report.left == {"ocr": "non-finite gradient"}
    assert np.isfinite(record.grad_norm)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ((0, 1, 2), "no reward left to weigh: clip: non-finite gradient, ocr: non-finite gradient, geneval: non-"),
        ((3,), "the KL gradient is not finite"),
    ],
)
def test_broken_gradients_take_no_step(
    rows: tuple[int, ...], reason: str, learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAULTS 17: moments, EMA and adapters as they were."""
    before = fingerprint(learner)
    monkeypatch.setattr(train_step, "reward_gradients", poisoned(*rows))
    report = learner.train(make_batch(learner, 0))
    assert fingerprint(learner) == before
    assert not report.applied
    assert report.steps[0].skip_reason.startswith(reason)


@pytest.mark.parametrize("loss", [AmortizedLoss(float("nan"), 0.1), AmortizedLoss(1.0, float("inf"))])
def test_a_broken_loss_takes_no_amortised_step(
    loss: AmortizedLoss, learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner.train(make_batch(learner, 0))
    before = fingerprint(learner)
    monkeypatch.setattr(train_step, "accumulate", lambda *args: loss)
    report = learner.train(make_batch(learner, 1))
    assert not report.steps[0].solved
    assert report.steps[0].skip_reason in {"the loss is nan", "KL is inf"}
    assert fingerprint(learner) == before or report.steps[1].solved


def test_a_gradient_that_is_zero_takes_no_step(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner(tiny_folder, kl_beta=0.0)
    monkeypatch.setattr(train_step, "combined", lambda g, a: torch.zeros_like(g[0]))
    report = learner.train(make_batch(learner, 0))
    assert report.steps[0].skip_reason == "the gradient's norm is 0.0"
    assert not report.steps[0].applied


def test_the_norm_is_logged_before_clipping(tiny_folder: Path) -> None:
    """FAULTS 21."""
    learner = make_learner(tiny_folder, max_grad_norm=1e-3, updates_per_iteration=1)
    clipped = []
    adamw = learner._optimizer._adamw
    step = adamw.step
    adamw.step = lambda: (clipped.append(float(gradient(learner).norm())), step())  # type: ignore[assignment, return-value]
    record = learner.train(make_batch(learner, 0)).steps[0]
    assert record.grad_norm > 2e-3
    assert clipped == [pytest.approx(1e-3, rel=1e-3)]


def test_kl_is_kept_apart_and_measured(tiny_folder: Path) -> None:
    """At the base it is zero; later its gradient has a cosine and a share."""
    learner = make_learner(tiny_folder, balance=harmonizer(refresh={"policy": "every_step"}), kl_beta=5.0, lr=1e-2)
    first, second = learner.train(make_batch(learner, 0)).steps
    assert first.kl == pytest.approx(0, abs=1e-12)
    assert first.kl_share == pytest.approx(0, abs=1e-6)
    assert second.kl > 0
    assert -1 <= second.kl_cosine <= 1
    assert second.kl_share > 1e-3


def test_without_kl_no_reference_is_run(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner(tiny_folder, kl_beta=0.0)
    seen: list[str | None] = []
    using = adapters.using
    monkeypatch.setattr(adapters, "using", lambda model, name: (seen.append(name), using(model, name))[1])
    for step in learner.train(make_batch(learner, 0)).steps:
        assert np.isnan([step.kl, step.kl_cosine, step.kl_share]).all()
        assert step.applied
    assert seen == ["old"]  # the first step is on-policy, the second is not; never the reference


def test_the_first_step_on_policy_saves_the_old_forward(learner: Learner, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []
    using = adapters.using
    monkeypatch.setattr(adapters, "using", lambda model, name: (seen.append(name), using(model, name))[1])
    learner.train(make_batch(learner, 0))
    assert seen == [None, "old", None]
    learner.train(make_batch(learner, 1))
    assert seen[3:] == ["old", None, "old", None]  # η > 0: `old` is no longer `default`


def test_updates_of_an_iteration_train_on_timesteps_of_their_own(learner: Learner) -> None:
    seen, patch = watched(learner)
    with patch:
        learner.train(make_batch(learner, 0))
    cosine = torch.nn.functional.cosine_similarity(seen.gradients[0], seen.gradients[1], dim=0)
    assert float(cosine) < 0.99
    with pytest.raises(UserError, match=r"timesteps x updates_per_iteration = 6, but 5 sampling steps .* give 4"):
        make_learner(Path(learner.policy.config.base), timesteps=3)


def changed(batch: TrainBatch, index: int, **changes: Any) -> TrainBatch:
    """With one rollout task's latents changed."""
    latents = list(batch.latents)
    latents[index] = replace(latents[index], **changes)
    return replace(batch, latents=tuple(latents))


BAD_BATCHES: dict[str, tuple[Callable[[TrainBatch], TrainBatch], str]] = {
    "another policy": (
        lambda b: replace(b, latents=tuple(replace(part, policy_hash="f" * 64) for part in b.latents)),
        r"policy version 0 \(ffffffffffff\) come from a policy that was never published: the learner keeps 0",
    ),
    "two policies": (
        lambda b: changed(b, 1, policy_version=3),
        "must come from one policy, got version 0 .* version 3",
    ),
    "no latents": (lambda b: replace(b, latents=()), "must come from one policy, got none"),
    "a task missing": (lambda b: replace(b, latents=b.latents[1:]), "latents of sample 0 came 0 times, not once"),
    "a task twice": (lambda b: replace(b, latents=(*b.latents, b.latents[2])), "latents of sample 8 came 2 times"),
    "another shape": (
        lambda b: changed(b, 0, x0_NChw=np.zeros((4, 16, 8, 8), np.float32)),
        r"latents have shape \[4, 16, 8, 8\], expected \[4, 16, 4, 4\]",
    ),
    "not finite": (
        lambda b: changed(b, 1, x0_NChw=np.full((4, 16, 4, 4), np.nan, np.float32)),
        r"latents of samples \[4, 5, 6, 7\] are not finite",
    ),
    "scores": (
        lambda b: replace(b, scores_KN=b.scores_KN[:2]),
        r"scores_KN has shape \[2, 12\], expected \[3, 12\] \(12 samples, rewards clip, ocr, geneval\)",
    ),
    "groups": (lambda b: replace(b, group_ids=b.group_ids[:5]), r"group_ids has shape \[5\], expected \[12\]"),
    "prompts": (lambda b: replace(b, prompts=b.prompts[:5]), r"prompts has shape \[5\]"),
}


@pytest.mark.parametrize("name", BAD_BATCHES)
def test_a_bad_batch_is_refused_and_changes_nothing(name: str, learner: Learner) -> None:
    """FAULTS 1: v_old must be the very policy that drew the batch."""
    change, message = BAD_BATCHES[name]
    before = learner.state()[1], fingerprint(learner)
    with pytest.raises(UserError, match=message):
        learner.train(change(make_batch(learner, 0)))
    assert (learner.state()[1], fingerprint(learner)) == before
    assert learner.train(make_batch(learner, 0)).applied


def test_an_iteration_is_trained_once(learner: Learner) -> None:
    batch = make_batch(learner, 4)
    learner.train(batch)
    with pytest.raises(UserError, match="iteration 4 was trained already; the last one is 4"):
        learner.train(batch)


def test_staleness_trains_against_the_policy_that_drew_the_batch(tiny_folder: Path) -> None:
    learner = make_learner(tiny_folder, max_staleness=1)
    late = make_batch(learner, 1)
    drew = learner.adapter("old")
    learner.train(make_batch(learner, 0))
    learner.train(late)
    module = adapters.read(learner.policy.transformer, "old")
    assert hash_tensors(module) == drew.hash != learner.adapter("old").hash
    assert learner.policy_version == 2
    with pytest.raises(UserError, match=r"version 0 .* are too old: the learner keeps 1 .*, 2"):
        learner.train(replace(late, iteration=2))


def test_without_staleness_the_former_policy_is_refused(learner: Learner) -> None:
    late = make_batch(learner, 1)
    learner.train(make_batch(learner, 0))
    with pytest.raises(UserError, match="are too old"):
        learner.train(late)


def test_a_broken_rule_is_an_error(learner: Learner, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS 1: steps that are said to be applied but do not arrive."""
    monkeypatch.setattr(learner._optimizer, "step", lambda norm: None)
    with pytest.raises(RuntimeError, match="did not change, but a step was applied with lr 0"):
        learner.train(make_batch(learner, 0))


def test_copies_do_not_change_with_training(learner: Learner) -> None:
    """FAULTS 6: on a CPU a kept reference would be the live weights."""
    learner.train(make_batch(learner, 0))
    kept = {slot: learner.adapter(slot) for slot in ("default", "old", "ema")}
    state = learner.state()[0]
    hashes = {group: hash_tensors(tensors) for group, tensors in state.items()}
    learner.train(make_batch(learner, 1))
    for adapter in kept.values():
        assert hash_tensors(adapter.tensors) == adapter.hash
    assert {group: hash_tensors(tensors) for group, tensors in state.items()} == hashes
    for adapter in kept.values():
        for array in adapter.tensors.values():
            array[...] = 0
    assert learner.adapter("default").hash == fingerprint(learner)["default"] != hash_tensors(kept["default"].tensors)


def test_reading_the_ema_leaves_the_raw_weights(learner: Learner) -> None:
    """FAULTS 6: before and after evaluation weights were read and a checkpoint was made."""
    learner.train(make_batch(learner, 0))
    before = fingerprint(learner)
    assert learner.adapter("ema").hash != learner.adapter("default").hash
    learner.state()
    assert fingerprint(learner) == before


def test_the_run_seed_decides_the_start(tiny_folder: Path, learner: Learner) -> None:
    other = make_learner(tiny_folder)
    assert other.adapter("default").hash == learner.adapter("default").hash
    assert learner._schedule.seed == SEED


def test_init_lora_is_the_first_published_policy(learner: Learner, tiny_folder: Path, tmp_path: Path) -> None:
    from learner.export import save_lora

    learner.train(make_batch(learner, 0))
    ema = learner.adapter("ema")
    lora = LoraConfig(rank=4, alpha=6.0)
    save_lora(tmp_path, {key: torch.from_numpy(value) for key, value in ema.tensors.items()}, lora)
    heir = make_learner(tiny_folder, policy={"init_lora": str(tmp_path)})
    assert heir.adapter("default").hash == heir.adapter("old").hash == heir.adapter("ema").hash == ema.hash


def test_running_sigmas_go_on_over_batches(learner: Learner) -> None:
    first = learner.train(make_batch(learner, 0))
    assert isinstance(first, IterationReport)
    values_KN, states_KN = scores(0)
    expected = [values_KN[k][states_KN[k] == 0].astype(np.float64).std() for k in range(3)]
    np.testing.assert_allclose(learner._running_sigma_R, expected, rtol=1e-6)


@pytest.mark.parametrize(("num_samples", "world_size"), [(12, 1), (12, 2), (13, 4), (3, 3)])
def test_rank_slices_are_contiguous_and_cover(num_samples: int, world_size: int) -> None:
    slices = [rank_slice(num_samples, rank, world_size) for rank in range(world_size)]
    assert [i for s in slices for i in range(num_samples)[s]] == list(range(num_samples))
    sizes = [s.stop - s.start for s in slices]
    assert max(sizes) - min(sizes) <= 1


def test_ranks_without_a_process_group_are_refused(tiny_folder: Path) -> None:
    with pytest.raises(ValueError, match="world_size is 2, but torch's process group has 0 ranks"):
        make_learner(tiny_folder, rank=1, world_size=2)
    with pytest.raises(ValueError, match=r"rank must be in 0\.\.0, got 3"):
        make_learner(tiny_folder, rank=3)


EFFECTS: dict[str, dict[str, Any]] = {
    "lr": {"lr": 2e-3},
    "betas": {"betas": (0.5, 0.9)},
    "eps": {"eps": 1e-3},
    "weight_decay": {"weight_decay": 5.0},
    "max_grad_norm": {"max_grad_norm": 1e-6},
    "nft_beta": {"nft_beta": 0.2},
    "kl_beta": {"kl_beta": 50.0},
    "updates_per_iteration": {"updates_per_iteration": 1},
    "timesteps": {"timesteps": 1},
    "timestep_fraction": {"timestep_fraction": 0.6, "timesteps": 1},
    "ema_decay": {"ema_decay": 0.3},
    "autocast": {"autocast": "bfloat16"},
    "advantage.std": {"advantage": {"std": "batch"}},
    "advantage.eps": {"advantage": {"eps": 0.5}},
    "advantage.eps_scale": {"advantage": {"eps": 0.5, "eps_scale": "absolute"}},
    "advantage.max": {"advantage": {"max": 1.0}},
    "old_policy.slope": {"old_policy": {"slope": 0.1}},
    "old_policy.flat_steps": {"old_policy": {"slope": 0.1, "flat_steps": 3}},
    "old_policy.max": {"old_policy": {"slope": 0.1, "max": 0.05}},
}


def test_every_key_has_an_effect(tiny_folder: Path) -> None:
    """FAULTS 24: no two of these recipes leave the same run behind."""
    outcomes = {}
    for name, changes in {"none": {}, **EFFECTS}.items():
        learner = make_learner(tiny_folder, **changes)
        learner.train(make_batch(learner, 0))
        outcomes[name] = tuple(learner.adapter(slot).hash for slot in ("default", "old", "ema"))
    assert len(set(outcomes.values())) == len(outcomes), outcomes
