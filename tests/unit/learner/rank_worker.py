"""What each of several gloo ranks does in the tests of several ranks; results go to a file per rank."""

import os
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from harmonizer.harmonizer import Plan, Signals, Solution
from learner import train_step
from learner.adapters import hash_tensors
from learner.gradients import RewardGradients, combined, reward_gradients
from learner.learner import Learner
from learner.ranks import Ranks
from learner.types import TrainBatch
from tests.unit.learner.batches import NUM_SAMPLES, harmonizer, make_batch, make_learner, randomize, scores
from tests.unit.learner.probes import gradient, kl_row, update_of, watched

AMORTIZE = ("normalized", "paper")
SCENARIOS = ("plain", "one-rank-only", "ranks-differ")
SHIPPED = {"kl_fraction": 0.25, "updates_per_iteration": 2}
"""Numbers of the shipped recipes that make the ranks' work depend on a draw over all of them."""


class Forbidden:
    """Only rank 0 may ask the harmonizer."""

    def plan(self, step: int, active_K: NDArray[np.bool_], signals: Signals | None = None) -> Plan:
        raise AssertionError("another rank than 0 asked for a plan")

    def solve(self, *_: object) -> Solution:
        raise AssertionError("another rank than 0 asked for a solution")

    def reset(self) -> None:
        raise AssertionError("another rank than 0 had the harmonizer forget")


class Failing(Forbidden):
    def plan(self, step: int, active_K: NDArray[np.bool_], signals: Signals | None = None) -> Plan:
        raise RuntimeError("the harmonizer is gone")


def batch_of(scenario: str, learner: Learner) -> TrainBatch:
    """plain; all cells of one reward on rank 0; every rank has rewards of its own."""
    values_KN, states_KN = scores(0)
    if scenario == "one-rank-only":
        states_KN[1, NUM_SAMPLES // 4 :] = 1
    elif scenario == "ranks-differ":
        states_KN[0, NUM_SAMPLES // 2 :] = 1
        states_KN[2, : NUM_SAMPLES // 2] = 1
    return make_batch(learner, 0, scores_KN=values_KN, states_KN=states_KN)


def own_part(batch: TrainBatch, learner: Learner) -> TrainBatch:
    """With only the tasks that hold samples of this rank."""
    samples = learner.rank_slice()
    latents = [
        part for part in batch.latents if part.sample_ids[-1] >= samples.start and part.sample_ids[0] < samples.stop
    ]
    return TrainBatch(**{**vars(batch), "latents": tuple(latents)})


def measure(folder: Path, scenario: str, rank: int = 0, world_size: int = 1, **changes: Any) -> dict[str, Any]:
    """A solving and an amortised step at lr 0, so that both are taken at the same point."""
    balance = harmonizer() if rank == 0 else Forbidden()
    learner = make_learner(folder, rank, world_size, balance=balance, lr=0.0, **changes)  # type: ignore[arg-type]
    randomize(learner)
    seen, patch = watched(learner)
    with patch:
        report = learner.train(own_part(batch_of(scenario, learner), learner))
    (apart,) = seen.apart
    solved, amortized = report.steps
    assert solved.solution is not None
    return {
        "gradients": torch.cat([apart.gradients_KP, kl_row(apart)[None], torch.stack(seen.gradients)]),
        "losses": [*apart.losses_K.tolist(), solved.loss, amortized.loss, solved.kl, amortized.kl],
        "alpha": solved.solution.alpha_K.tolist(),
        "coefficients": [solved.coefficients_K.tolist(), amortized.coefficients_K.tolist()],
        "solved": [solved.solved, amortized.solved],
    }


def amortized(folder: Path, amortize: str, rank: int = 0, world_size: int = 1) -> dict[str, Any]:
    """A solving step, and the amortised one of its α and norms on the same cells, beside Σ a_k g_k + β_KL ∇KL."""
    balance = harmonizer(amortize=amortize) if rank == 0 else Forbidden()
    learner = make_learner(folder, rank, world_size, balance=balance, advantage={"max": 0.8})  # type: ignore[arg-type]
    randomize(learner)
    update = update_of(learner, own_part(batch_of("ranks-differ", learner), learner))
    active_K = update.signal.counts_K > 0
    found: list[RewardGradients] = []

    def kept(*args: Any) -> RewardGradients:
        found.append(reward_gradients(*args))
        return found[0]

    with mock.patch.object(train_step, "reward_gradients", kept):
        direction = learner._step._solved(update, active_K)
    solved = gradient(learner).clone()
    learner._optimizer.clear()
    plan: Plan = learner.ranks.from_first(lambda: balance.plan(1, active_K))
    assert plan.weights is not None
    loss = learner._step._amortized(update, plan.weights).loss
    return {
        "solved": solved,
        "expected": combined(found[0].gradients_KP, plan.weights.coefficients_K)
        + learner.config.kl_beta * kl_row(found[0]),
        "amortized": gradient(learner).clone(),
        "coefficients": (direction.coefficients_K.tolist(), plan.weights.coefficients_K.tolist()),
        "loss": (loss, float(found[0].losses_K.numpy() @ plan.weights.coefficients_K)),
    }


def trained(folder: Path, rank: int, world_size: int) -> dict[str, Any]:
    """Two iterations with a learning rate: do the ranks stay together?"""
    learner = make_learner(folder, rank, world_size, balance=harmonizer() if rank == 0 else Forbidden())  # type: ignore[arg-type]
    reports = [learner.train(own_part(make_batch(learner, i), learner)) for i in range(2)]
    trainable = [n for n, p in learner.policy.transformer.named_parameters() if p.requires_grad]
    return {
        "hashes": [(r.default_hash, r.old_hash) for r in reports],
        "ema": learner.adapter("ema").hash,
        "trainable_is_default": all(name.endswith(".default.weight") for name in trainable) and bool(trainable),
        "iteration": learner.iteration,
    }


def resumed(folder: Path, rank: int, world_size: int) -> dict[str, Any]:
    """Four iterations in one go, and two, a checkpoint, and two in another learner, under SHIPPED."""

    def new() -> tuple[Learner, Any]:
        balance: Any = harmonizer() if rank == 0 else Forbidden()
        return make_learner(folder, rank, world_size, balance=balance, **SHIPPED), balance

    def train(learner: Learner, iterations: range) -> None:
        for i in iterations:
            learner.train(own_part(make_batch(learner, i), learner))

    def hashes(learner: Learner) -> dict[str, str]:
        return {group: hash_tensors(values) for group, values in learner.state()[0].items()}

    straight, _ = new()
    start = straight.adapter("old").hash
    train(straight, range(4))
    first, balance = new()
    train(first, range(2))
    second, other = new()
    second.load_state(*first.state())
    if rank == 0:
        other.load_state_dict(balance.state_dict())
    train(second, range(2, 4))
    return {"start": start, "straight": hashes(straight), "resumed": hashes(second), "steps": second.steps_done}


def staged(folder: Path, rank: int = 0, world_size: int = 1, probe_every: int = 1) -> dict[str, Any]:
    """Three iterations over a stage's border, conflicts measured on every step or never."""
    stages = [{"rewards": ["clip", "ocr"], "iterations": 2}, {"rewards": ["geneval"], "iterations": 1}]
    balance = harmonizer() if rank == 0 else Forbidden()
    learner = make_learner(
        folder, rank, world_size, balance=balance, stages=stages, probe_every=probe_every, max_grad_norm=1e9
    )  # type: ignore[arg-type]
    reports = [learner.train(own_part(make_batch(learner, i), learner)) for i in range(3)]
    conflicts = [conflict for report in reports for conflict in report.conflicts]
    return {
        "hash": reports[-1].default_hash,
        "cosines": [np.concatenate(list(conflict.cosines.values())).tolist() for conflict in conflicts],
        "kinds": [(conflict.step, conflict.against, conflict.solved) for conflict in conflicts],
        "shares": [step.weights_K.tolist() for report in reports for step in report.steps],
    }


def faults(folder: Path, rank: int, world_size: int) -> dict[str, str]:
    """What every rank sees when something goes wrong on one of them."""
    seen = {}
    learner = make_learner(folder, rank, world_size, balance=harmonizer() if rank == 0 else Forbidden())  # type: ignore[arg-type]
    batch = own_part(make_batch(learner, 0), learner)
    cases = {
        "latents": (learner, TrainBatch(**{**vars(batch), "latents": batch.latents if rank == 0 else ()})),
        "harmonizer": (make_learner(folder, rank, world_size, balance=Failing()), batch),  # type: ignore[arg-type]
    }
    for name, (who, what) in cases.items():
        try:
            who.train(what)
        except (ValueError, RuntimeError) as error:
            seen[name] = f"{type(error).__name__}: {error}"
    return seen


def main(rank: int, world_size: int, folder: str, meeting: str, results: str) -> None:
    """All of it on two ranks; on more, only what depends on their number."""
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world_size)
    try:
        found = {scenario: measure(Path(folder), scenario, rank, world_size) for scenario in SCENARIOS}
        found["split"] = measure(Path(folder), "plain", rank, world_size, micro_batch_size=5)
        found["buckets"] = Ranks(rank, world_size).sum_in_buckets((rank + 1) * torch.arange(14.0).view(2, 7), bucket=4)
        found["amortized"] = {how: amortized(Path(folder), how, rank, world_size) for how in AMORTIZE}
        torch.save(found, Path(results) / f"{rank}.pt")
        if world_size > 2:
            return
        found["checkpointed"] = measure(Path(folder), "plain", rank, world_size, gradient_checkpointing=True)
        found["shipped"] = measure(Path(folder), "plain", rank, world_size, **SHIPPED)
        found["resumed"] = resumed(Path(folder), rank, world_size)
        found["staged"] = staged(Path(folder), rank, world_size)
        found["unmeasured"] = staged(Path(folder), rank, world_size, probe_every=0)
        found["trained"] = trained(Path(folder), rank, world_size)
        found["faults"] = faults(Path(folder), rank, world_size)
        torch.save(found, Path(results) / f"{rank}.pt")
    finally:
        dist.destroy_process_group()
