"""What a solving step costs: ``python benchmarks/learner_step.py [--full] [--json] [--sd35] [--cpu-time]``.

Whole optimizer steps (forwards of all three policies, gradients, QP, AdamW, EMA) of a randomly weighted SD3 transformer
of 34M parameters, in one process, taking turns; medians over rounds, as ratios to `weighted_sum` (NFT on one mixed
advantage). Rows: one_reward and weighted_sum; k_pass, K autograd passes; two_pass, the solving step; bare_passes, the
same with its backward passes alone and no weight gradient formed, which is the least that two passes can cost;
amortized, the steps in between; avg_n10, a solve every ten steps; avg_every_step, a solve on each; checkpointed ones,
with gradient checkpointing. Then the QP. Letters: K rewards, N samples, T timesteps.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from random_policy import CPU, SD35_MEDIUM, SEED, Size, random_policy

from harmonizer.config import HarmonizerConfig
from harmonizer.harmonizer import AmortizedWeights, Harmonizer, Plan, Signals, Solution
from learner import train_step
from learner.cells import LocalBatch, Schedule, micro_batches
from learner.config import LearnerConfig
from learner.contraction import Contraction
from learner.ema import Ema
from learner.forward import Forward, trainable
from learner.gradients import RewardGradients, reward_gradients
from learner.k_pass import k_pass_gradients
from learner.optimizer import LoraOptimizer
from learner.policy import TextEmbeddings
from learner.ranks import Ranks
from learner.train_step import Signal, TrainStep, Update

REFRESH = 10
"""Steps from solve to solve in avg_n10."""
SCORED = 0.8
"""Share of cells with signal."""
WEIGHTED_SUM, ONE_REWARD, K_PASS, TWO_PASS, AMORTIZED = "weighted_sum", "one_reward", "k_pass", "two_pass", "amortized"
BARE = "bare_passes"
CHECKPOINTED = "_checkpointed"
K_PASS_ROUNDS = 2
"""K passes take most of the time and vary least."""
NUM_QP = 40


class Fixed:
    """A harmonizer that solves, or takes even weights, as it is told."""

    def __init__(self, balance: Harmonizer, solves: bool) -> None:
        self._balance = balance
        self._solves = solves

    def plan(self, step: int, active_K: NDArray[np.bool_], signals: Signals | None = None) -> Plan:
        even_K = active_K / active_K.sum()
        return Plan(self._solves, None if self._solves else AmortizedWeights(even_K, even_K, active_K, 1.0))

    def solve(
        self,
        step: int,
        gramian_KK: NDArray[np.float64],
        active_K: NDArray[np.bool_],
        kl_cosines_K: NDArray[np.float64] | None = None,
    ) -> Solution:
        return self._balance.solve(step, gramian_KK, active_K, kl_cosines_K)


class Bench:
    """Steps on one policy; optimizer and EMA are shared, for their cost does not depend on their content."""

    def __init__(self, size: Size, device: str) -> None:
        self.size = size
        self.policy = random_policy(size, device)
        self._balances: dict[int, Harmonizer] = {}
        self._config = LearnerConfig(lr=1e-6, timesteps=size.timesteps, micro_batch_size=size.micro_batch)
        self._optimizer = LoraOptimizer(trainable(self.policy), self._config)
        self._ema = Ema(self._optimizer.parameters, 0.9)
        draws = torch.Generator().manual_seed(SEED)
        n, dtype = size.num_samples, self.policy.dtype
        tokens = torch.randn(n, size.tokens, size.text_widths[0], generator=draws).to(device, dtype)
        pooled = torch.randn(n, size.text_widths[1], generator=draws).to(device, dtype)
        x0 = torch.randn(n, *self.policy.latent_shape, generator=draws).to(device)
        self._batch = LocalBatch(
            0, tuple(range(n)), x0, TextEmbeddings(tokens, pooled), torch.arange(n, device=x0.device)
        )

    def step(self, row: str, num_rewards: int, kl_fraction: float, micro_batches_run: int | None = None) -> None:
        """Take one step of a row's kind, on all micro-batches or the first few."""
        kind = row.removesuffix(CHECKPOINTED)
        count = 1 if kind in (WEIGHTED_SUM, ONE_REWARD) else num_rewards
        names = tuple(f"r{k}" for k in range(count))
        fraction = {"kl_fraction": kl_fraction} if kl_fraction else {"kl_beta": 0.0}
        config = self._config.model_copy(update=fraction)
        forward = Forward(self.policy, config.nft_beta, config.kl_beta > 0, config.autocast)
        # Kept from step to step, as in a run: its first solve compiles the QP.
        balance = self._balances.setdefault(count, Harmonizer(names, HarmonizerConfig()))
        client = Fixed(balance, solves=kind in (K_PASS, TWO_PASS, BARE))
        trainer = TrainStep(config, names, forward, self._optimizer, self._ema, client, Ranks(0, 1), None)
        schedule = Schedule(
            SEED,
            torch.linspace(0.95, 0.05, config.timesteps),
            config.timesteps,
            config.micro_batch_size,
            self.size.num_samples,
            config.kl_fraction,
        )
        cells = micro_batches(self._batch, schedule, 0)[:micro_batches_run]
        with self._mode(row):
            record = trainer.run(Update(0, 0, cells, self.size.num_cells, self._signal(count), on_policy=False))
        if not record.applied:
            raise RuntimeError(f"{row}: {record.skip_reason}")

    def _signal(self, num_rewards: int) -> Signal:
        draws = torch.Generator().manual_seed(SEED + 1)
        shape = (num_rewards, self.size.num_samples)
        signal = torch.rand(shape, generator=draws) < SCORED
        signal[:, 0] = True
        device = self.policy.device
        accepted = torch.rand(shape, generator=draws).to(device)
        return Signal(accepted, signal.to(device), signal.sum(1).numpy())

    @contextmanager
    def _mode(self, row: str) -> Iterator[None]:
        """With K passes in place of two, or with gradient checkpointing, where the row says so."""

        def k_pass(outcomes: Any, layers: Any, *rest: Any) -> RewardGradients:
            return k_pass_gradients(outcomes, [layer.weight for layer in layers], *rest)

        def nothing(*_: Any) -> None:
            """A mock's own stand-in would keep what it is called with."""

        def bare(*arguments: Any) -> RewardGradients:
            with mock.patch.object(Contraction, "contract", nothing):
                found = reward_gradients(*arguments)
            found.rows_RP.normal_()  # something to solve for
            return found

        transformer: Any = self.policy.transformer
        transformer.gradient_checkpointing = False
        if row.endswith(CHECKPOINTED):
            transformer.enable_gradient_checkpointing()
        gradients = k_pass if row.startswith(K_PASS) else bare if row == BARE else reward_gradients
        with mock.patch.object(train_step, "reward_gradients", gradients):
            yield


Case = tuple[str, int, float]
"""Row, K, kl_fraction."""


def cases(rewards: list[int], fractions: list[float]) -> list[Case]:
    """All that is measured; the weighted sum does not depend on K and is measured once per share of KL, as K = 1."""
    single = [(row, 1, f) for f in fractions for row in (WEIGHTED_SUM, ONE_REWARD)]
    several = [(row, k, f) for f in fractions for k in rewards for row in (K_PASS, TWO_PASS, AMORTIZED)]
    several += [(BARE, rewards[0], f) for f in fractions]
    checkpointed = [(WEIGHTED_SUM + CHECKPOINTED, 1, fractions[0]), (TWO_PASS + CHECKPOINTED, rewards[0], fractions[0])]
    return single + several + checkpointed


def timed(call: Callable[[], None], clock: Callable[[], float], device: str) -> float:
    """Seconds of one call."""
    started = clock()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return clock() - started


def measure(
    bench: Bench, every: list[Case], rounds: int, minutes: float, clock: Callable[[], float], device: str
) -> dict[Case, list[float]]:
    """Seconds per case and round, after one step each that is not counted; no round begins after so many minutes."""
    seconds: dict[Case, list[float]] = {case: [] for case in every}
    for case in every:
        bench.step(*case, micro_batches_run=1)
    started = time.perf_counter()
    for index in range(rounds):
        if index and time.perf_counter() - started > 60 * minutes:
            break
        for case in every:
            if case[0] != K_PASS or index < K_PASS_ROUNDS:
                seconds[case].append(timed(lambda case=case: bench.step(*case), clock, device))  # type: ignore[misc]
    return seconds


def peak_bytes(call: Callable[[], None], device: str) -> int:
    """Most memory of tensors that a call held at once, above what was held before it."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        return torch.cuda.max_memory_allocated() - before
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        call()
    results: Any = profile.profiler.kineto_results if profile.profiler else None
    changes = sorted((event.start_ns(), event.nbytes()) for event in results.events() if event.name() == "[memory]")
    return int(np.cumsum([size for _, size in changes]).max(initial=0))


def table(seconds: dict[Case, list[float]], peaks: dict[Case, int]) -> list[dict[str, Any]]:
    """One row per case, and the averages that follow from them."""
    medians = {case: statistics.median(times) for case, times in seconds.items()}
    for row, k, f in list(medians):
        if row == TWO_PASS:
            solve, other = medians[row, k, f], medians[AMORTIZED, k, f]
            medians["avg_n10", k, f] = (solve + (REFRESH - 1) * other) / REFRESH
            medians["avg_every_step", k, f] = solve
    full = max(f for _, _, f in medians)
    return [
        {
            "row": row,
            "K": k,
            "kl_fraction": f,
            "ratio": median / medians[WEIGHTED_SUM, 1, f],
            "ratio_full_kl": median / medians[WEIGHTED_SUM, 1, full],
            "spread": (max(times) - min(times)) / median if (times := seconds.get((row, k, f))) else None,
            "peak_bytes": peaks.get((row, k, f)),
        }
        for (row, k, f), median in sorted(medians.items(), key=lambda item: (-item[0][2], item[0][1]))
    ]


def qp_rows(rewards: list[int], clock: Callable[[], float]) -> list[dict[str, float]]:
    """Milliseconds of a warm solve, and of the first, on random Gram matrices."""
    rows = []
    for k in rewards:
        balance = Harmonizer([f"r{i}" for i in range(k)], HarmonizerConfig())
        draws = np.random.default_rng(SEED)
        times = []
        for step in range(NUM_QP + 1):
            gradients = draws.normal(size=(k, 3 * k)) + 0.3
            started = clock()
            balance.solve(step, gradients @ gradients.T, np.ones(k, dtype=np.bool_))
            times.append(1000 * (clock() - started))
        rows.append({"K": k, "milliseconds": statistics.median(times[1:]), "first_milliseconds": times[0]})
    return rows


def show(found: dict[str, Any]) -> None:
    """The figures as tables."""
    print(f"{found['parameters'] / 1e6:.1f}M parameters, LoRA {found['trained'] / 1e6:.2f}M, {found['setup']}")
    print(f"{'row':<28}{'K':>4}{'kl':>6}{'ratio':>8}{'to full kl':>12}{'spread':>8}{'peak MiB':>10}")
    for row in found["rows"]:
        spread = "" if row["spread"] is None else f"{row['spread']:.1%}"
        peak = "" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 2**20:.1f}"
        print(
            f"{row['row']:<28}{row['K']:>4}{row['kl_fraction']:>6g}{row['ratio']:>8.3f}{row['ratio_full_kl']:>12.3f}"
            f"{spread:>8}{peak:>10}"
        )
    weighted_sum = next(row for row in found["rows"] if row["row"] == WEIGHTED_SUM)
    for row in found["rows"]:
        if row["row"] == TWO_PASS and row["kl_fraction"] == weighted_sum["kl_fraction"]:
            more = (row["peak_bytes"] - weighted_sum["peak_bytes"]) / 1e6
            vectors = (row["K"] + 2) * found["trained"] * 4 / 1e6
            print(
                f"a solving step of {row['K']} rewards holds {more:.1f} MB more; (K + 2) P 4 bytes are {vectors:.1f} MB"
            )
    for row in found["qp"]:
        print(f"QP of {row['K']} rewards: {row['milliseconds']:.2f} ms, the first {row['first_milliseconds']:.0f} ms")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Everything that is printed."""
    size, device = (SD35_MEDIUM, "cuda") if args.sd35 else (CPU, "cpu")
    rewards = [1, 2, 5, 8, 16] if args.full else args.rewards or ([5] if args.sd35 else [5, 16])
    torch.set_num_threads(args.threads)
    bench = Bench(size, device)
    every = cases(sorted(rewards), sorted(args.kl_fractions, reverse=True))
    clock = time.process_time if args.cpu_time else time.perf_counter
    minutes = args.minutes or (2.0 if args.sd35 else 7.0)
    seconds = measure(bench, every, args.rounds, minutes, clock, device)
    peaks = {case: peak_bytes(lambda case=case: bench.step(*case, micro_batches_run=1), device) for case in every}  # type: ignore[misc]
    return {
        "parameters": sum(parameter.numel() for parameter in bench.policy.transformer.parameters()),
        "trained": sum(parameter.numel() for parameter in trainable(bench.policy).values()),
        "setup": f"{size.num_cells} cells in micro-batches of {size.micro_batch}, "
        f"{len(seconds[WEIGHTED_SUM, 1, max(args.kl_fractions)])} rounds on {device}, "
        f"weighted sum {statistics.median(seconds[WEIGHTED_SUM, 1, max(args.kl_fractions)]):.2f} s"
        + (" of CPU time" if args.cpu_time else ""),
        "rows": table(seconds, peaks),
        "qp": qp_rows(sorted(rewards), clock),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rewards", type=int, nargs="+", metavar="K", help="5 16; with --sd35: 5")
    parser.add_argument("--kl-fractions", type=float, nargs="+", default=[1.0, 0.25, 0.0], help="0: KL off")
    parser.add_argument("--full", action="store_true", help="K = 1, 2, 5, 8, 16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, help="no round begins later: 7; with --sd35: 2")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sd35", action="store_true", help="the shape of SD3.5 Medium in bfloat16, on a GPU")
    parser.add_argument("--cpu-time", action="store_true", help="count CPU seconds: for a machine that is busy")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = run(args)
    print(json.dumps(found, indent=2)) if args.json else show(found)


if __name__ == "__main__":
    main()
