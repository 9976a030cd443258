"""What each of several gloo ranks does in Flow-GRPO's tests of several ranks; results go to a file per rank."""

import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from harmonizer.config import HarmonizerConfig
from harmonizer.harmonizer import Harmonizer
from learner.config import SamplingConfig
from learner.learner import Learner
from tests.unit.learner.batches import REWARDS, randomize
from tests.unit.learner.grpo_batches import make_batch, make_learner, sampling
from tests.unit.learner.probes import watched
from tests.unit.learner.rank_worker import Forbidden, own_part

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "one reward": {"rewards": REWARDS[:1]},
    "split": {"micro_batch_size": 5},
    "guided": {"how": sampling(guidance_scale=2.5)},
    "kl on a share": {"kl_fraction": 0.25},
}


def measure(folder: Path, case: str, rank: int = 0, world_size: int = 1, **more: Any) -> dict[str, Any]:
    """A solving and an amortised step at lr 0, both off-policy: gradients, losses, and how far the policy is."""
    numbers: dict[str, Any] = {"clip_range": 0.01, "lr": 0.0, **CASES[case], **more}
    names, how = numbers.pop("rewards", REWARDS), numbers.pop("how", sampling())
    assert isinstance(how, SamplingConfig)
    balance = Harmonizer(names, HarmonizerConfig()) if rank == 0 else Forbidden()
    learner = make_learner(folder, names, rank, world_size, balance, how, **numbers)
    randomize(learner)
    seen, patch = watched(learner)
    with patch:
        report = learner.train(own_part(make_batch(learner, 0, how), learner))
    (apart,) = seen.apart
    return {
        "gradients": torch.cat([apart.rows_RP, torch.stack(seen.gradients)]),
        "losses": [step.loss for step in report.steps],
        "numbers": [x for s in report.steps for x in (s.kl, s.grad_norm, s.clip_fraction, s.approx_kl)],
        "solved": [step.solved for step in report.steps],
    }


def trained(folder: Path, rank: int, world_size: int) -> list[tuple[str, str]]:
    """Hashes of two iterations with a learning rate, each drawn by what the former one published."""
    balance = Harmonizer(REWARDS, HarmonizerConfig()) if rank == 0 else Forbidden()
    learner: Learner = make_learner(folder, REWARDS, rank, world_size, balance)
    reports = [learner.train(own_part(make_batch(learner, i), learner)) for i in range(2)]
    return [(report.default_hash, report.old_hash) for report in reports]


def main(rank: int, world_size: int, folder: str, meeting: str, results: str) -> None:
    """All cases, in one start of the processes."""
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world_size)
    try:
        found: dict[str, Any] = {case: measure(Path(folder), case, rank, world_size) for case in CASES}
        found["trained"] = trained(Path(folder), rank, world_size)
        torch.save(found, Path(results) / f"{rank}.pt")
    finally:
        dist.destroy_process_group()
