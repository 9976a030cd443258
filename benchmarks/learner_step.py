"""What a solving step costs: ``python benchmarks/learner_step.py [--full] [--json] [--sd35] [--cpu-time]``.

Optimizer steps (forwards of all three policies, gradients, QP, AdamW, EMA) of a randomly weighted SD3 transformer of
34M parameters, in one process, taking turns; medians, over rounds, of ratios to `weighted_sum` (NFT on one mixed
advantage) of the same round. Rows: one_reward and weighted_sum; k_pass, K autograd passes; two_pass, the solving step;
bare_passes, the same with its backward passes alone and no weight gradient formed, which is the least that two passes
can cost; amortized, the steps in between; avg_n10, a solve every ten steps; avg_every_step, a solve on each;
checkpointed ones, with gradient checkpointing. Then the QP. Letters: K rewards, N samples, T timesteps.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from random_policy import CPU, SD35_MEDIUM, SEED
from step_kinds import AMORTIZED, BARE, CHECKPOINTED, K_PASS, ONE_REWARD, TWO_PASS, WEIGHTED_SUM, Bench

from harmonizer.config import HarmonizerConfig
from harmonizer.harmonizer import Harmonizer
from learner.forward import trainable

REFRESH = 10
"""Steps from solve to solve in avg_n10."""
K_PASS_ROUNDS = 1
"""K passes take most of the time, and nothing hangs on their second decimal."""
SHORT = 2
"""Micro-batches of a step with KL on all cells or none, where each is like the next; a part of KL needs them all."""
NUM_QP = 40


Case = tuple[str, int, float]
"""Row, K, kl_fraction."""


def turns(rewards: list[int], fractions: list[float]) -> list[Case]:
    """What a round measures, in order.

    The weighted sum does not depend on K and stands once per share of KL, as K = 1, but is measured before and after
    the others, whose yardstick it is.
    """
    order: list[Case] = []
    for f in fractions:
        order += [(WEIGHTED_SUM, 1, f), (ONE_REWARD, 1, f)]
        order += [(row, k, f) for k in rewards for row in (K_PASS, TWO_PASS, AMORTIZED)]
        order += [(BARE, rewards[0], f), (WEIGHTED_SUM, 1, f)]
    checkpointed = [(WEIGHTED_SUM + CHECKPOINTED, 1, fractions[0]), (TWO_PASS + CHECKPOINTED, rewards[0], fractions[0])]
    return order + checkpointed


def timed(call: Callable[[], None], clock: Callable[[], float], device: str) -> float:
    """Seconds of one call."""
    started = clock()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return clock() - started


def measure(
    bench: Bench, order: list[Case], rounds: int, minutes: float, clock: Callable[[], float], device: str
) -> dict[Case, list[float]]:
    """Seconds of a micro-batch per case and round, after one of each that is not counted; no round begins after so many
    minutes."""
    seconds: dict[Case, list[float]] = {case: [] for case in order}
    for case in seconds:
        bench.step(*case, micro_batches_run=1)
    started = time.perf_counter()
    for index in range(rounds):
        if index and time.perf_counter() - started > 60 * minutes:
            break
        found: dict[Case, list[float]] = {}
        for case in order:
            if case[0] != K_PASS or index < K_PASS_ROUNDS:
                run = min(SHORT, bench.num_micro_batches) if case[2] in (0.0, 1.0) else bench.num_micro_batches
                whole = timed(lambda case=case, run=run: bench.step(*case, run), clock, device)  # type: ignore[misc]
                found.setdefault(case, []).append(whole / run)
        for case, times in found.items():
            seconds[case].append(statistics.fmean(times))
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


def ratios(seconds: dict[Case, list[float]], case: Case, fraction: float) -> list[float]:
    """Of a case to the weighted sum of the same round at a share of KL."""
    return [one / other for one, other in zip(seconds[case], seconds[WEIGHTED_SUM, 1, fraction], strict=False)]


def table(seconds: dict[Case, list[float]], peaks: dict[Case, int]) -> list[dict[str, Any]]:
    """One row per case, and the averages that follow from them."""
    full = max(f for _, _, f in seconds)
    own = {case: ratios(seconds, case, case[2]) for case in seconds}
    medians = {case: (statistics.median(own[case]), statistics.median(ratios(seconds, case, full))) for case in seconds}
    for row, k, f in list(medians):
        if row == TWO_PASS:
            solve, other = medians[row, k, f], medians[AMORTIZED, k, f]
            average = tuple((s + (REFRESH - 1) * o) / REFRESH for s, o in zip(solve, other, strict=True))
            medians["avg_n10", k, f], medians["avg_every_step", k, f] = (average[0], average[1]), solve
    return [
        {
            "row": row,
            "K": k,
            "kl_fraction": f,
            "ratio": ratio,
            "ratio_full_kl": ratio_full_kl,
            "spread": (max(of_rounds) - min(of_rounds)) / ratio
            if len(of_rounds := own.get((row, k, f), [])) > 1
            else None,
            "peak_bytes": peaks.get((row, k, f)),
        }
        for (row, k, f), (ratio, ratio_full_kl) in sorted(medians.items(), key=lambda item: (-item[0][2], item[0][1]))
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


def markdown(found: dict[str, Any], arguments: list[str]) -> str:
    """The figures as a page of docs."""
    command = " ".join(["python benchmarks/learner_step.py", *arguments])
    lines = [
        "# What a step costs",
        "",
        f"`{command}`",
        f"on {found['machine']}: {found['parameters'] / 1e6:.1f}M parameters, LoRA {found['trained'] / 1e6:.2f}M, "
        f"{found['setup']}.",
        "",
        (__doc__ or "").split("\n\n")[1].strip(),
        "",
        "| row | K | KL on | ratio | ratio to full KL | spread | peak MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        spread = "" if row["spread"] is None else f"{row['spread']:.0%}"
        peak = "" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 2**20:.1f}"
        numbers = f"{row['ratio']:.2f} | {row['ratio_full_kl']:.2f} | {spread} | {peak}"
        lines.append(f"| {row['row']} | {row['K']} | {row['kl_fraction']:g} | {numbers} |")
    lines += ["", "| QP of K | milliseconds, warm | first |", "|---|---|---|"]
    lines += [f"| {row['K']} | {row['milliseconds']:.2f} | {row['first_milliseconds']:.0f} |" for row in found["qp"]]
    return "\n".join(lines) + "\n"


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Everything that is printed."""
    size, device = (SD35_MEDIUM, "cuda") if args.sd35 else (CPU, "cpu")
    rewards = [1, 2, 5, 8, 16] if args.full else args.rewards or ([5] if args.sd35 else [5, 16])
    torch.set_num_threads(args.threads)
    bench = Bench(size, device)
    order = turns(sorted(rewards), sorted(args.kl_fractions, reverse=True))
    clock = time.process_time if args.cpu_time else time.perf_counter
    minutes = args.minutes or (2.0 if args.sd35 else 8.0)
    seconds = measure(bench, order, args.rounds, minutes, clock, device)
    peaks = {case: peak_bytes(lambda case=case: bench.step(*case, micro_batches_run=1), device) for case in seconds}  # type: ignore[misc]
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores"
        + (f", {torch.cuda.get_device_name()}" if args.sd35 else ""),
        "parameters": sum(parameter.numel() for parameter in bench.policy.transformer.parameters()),
        "trained": sum(parameter.numel() for parameter in trainable(bench.policy).values()),
        "setup": f"{size.num_cells} cells in micro-batches of {size.micro_batch}, "
        f"{len(seconds[WEIGHTED_SUM, 1, max(args.kl_fractions)])} rounds on {device}, "
        f"weighted sum {statistics.median(seconds[WEIGHTED_SUM, 1, max(args.kl_fractions)]):.2f} s a micro-batch"
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
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--minutes", type=float, help="no round begins later: 8; with --sd35: 2")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sd35", action="store_true", help="the shape of SD3.5 Medium in bfloat16, on a GPU")
    parser.add_argument("--cpu-time", action="store_true", help="count CPU seconds: for a machine that is busy")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there too")
    args = parser.parse_args()
    found = run(args)
    if args.markdown:
        args.markdown.write_text(markdown(found, sys.argv[1:]), encoding="utf-8")
    print(json.dumps(found, indent=2)) if args.json else show(found)


if __name__ == "__main__":
    main()
