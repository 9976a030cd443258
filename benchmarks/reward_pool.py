"""What reward pools cost, and that they lose nothing: ``python benchmarks/reward_pool.py [--only PART ...] [--json]``.

speed   a scorer that sleeps 50 ms per batch: batches per second of 1 and of 8 replicas, and what a call costs beside it
resize  the same scorer grows from 1 to 4 replicas and shrinks to 2 under load
faults  10,000 samples through three pools in which cells raise, end their process, or hang; read back from the ledger
clip    CLIP-family scoring against the bare model (benchmarks/clip_overhead.py)

Rollout actors are replaced by a painter of numbered images; everything else is what a run uses. Leave the cores to it.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

# As a script, this file's own folder stands there instead.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from actors.crew import Outcome
from actors.harvest import Draw, Harvest, draw_and_score
from actors.ledger import Ledger, LedgerEntry
from actors.ledger_parts import SAMPLES, read_table
from actors.local_ray import ROOT, connected
from actors.prompts import Prompt
from actors.pump import pump
from actors.slices import Cells
from actors.tasks import make_tasks
from actors.team import Team
from benchmarks.pool_stage import BATCH, SCORERS, SLEEP_S, fates, go_on, painted, recipe, score, staged
from learner.types import IterationReport
from rewards.contract import State

PARTS = ("speed", "resize", "faults", "clip")
BATCHES_PER_REPLICA, ROUNDS = 40, 3
HANG_LIMIT_S = 1.0
CHUNK = 80
"""Images per painted task: five batches."""
SLEEPER = {"scorer": f"{SCORERS}:Sleeps"}


def run_batches(team: Team, count: int, at: Mapping[int, int] | None = None) -> tuple[Counter[int], float]:
    """Scores `count` batches by the only pool; returns how often each sample was settled, and the seconds taken.

    Args:
        at: batches done -> size to which the pool is brought then.
    """
    (pool,) = team.pools.values()
    resizes = dict(at or {})
    settled: Counter[int] = Counter()
    done = 0
    images = [team.remote.put(painted(np.arange(i * BATCH, (i + 1) * BATCH))) for i in range(count)]
    prompts = [Prompt("all/0", "all", "a number")] * BATCH

    def take(party: object, outcome: Outcome) -> None:
        nonlocal done
        cells = pool.accept(outcome)
        if cells is not None:
            settled.update(right_numbers(cells))
            done += 1
            pool.crew.resize(resizes.pop(done, pool.crew.size))

    began_s = time.monotonic()
    for task, ref in enumerate(images):
        assert not list(pool.submit(task, ref, prompts, evaluation=False))
    pump(team.remote, team.parties, lambda: done == count, take, go_on)
    return settled, time.monotonic() - began_s


def right_numbers(cells: Cells) -> list[int]:
    """Numbers of the samples whose cells are what they must be."""
    first = cells.task * BATCH + cells.start
    return [first + i for i, got in enumerate(cells.result.scores) if got == np.float32(score(first + i))]


# -- parts ------------------------------------------------------------------------------------------------------------


def speed() -> dict[str, Any]:
    """Batches per second of 1 and of 8 replicas; each the median of some rounds."""
    seconds: dict[int, float] = {}
    for size in (1, 8):
        with staged(recipe({"sleeps": SLEEPER}, {"replicas": size, "batch_size": BATCH}, BATCH)) as team:
            run_batches(team, 4 * size)
            rounds = [run_batches(team, BATCHES_PER_REPLICA * size)[1] for _ in range(ROUNDS)]
        seconds[size] = statistics.median(rounds) / (BATCHES_PER_REPLICA * size)
    return {
        "speedup_8": seconds[1] / seconds[8],
        "dispatch_ms": 1000 * (seconds[1] - SLEEP_S),
        "batches_per_s": {size: 1 / each for size, each in seconds.items()},
    }


def resize() -> dict[str, Any]:
    """1 to 4 replicas and down to 2 under load."""
    count = 300
    with staged(recipe({"sleeps": SLEEPER}, {"replicas": 1, "batch_size": BATCH}, BATCH)) as team:
        settled, seconds = run_batches(team, count, {20: 4, 220: 2})
        (pool,) = team.pools.values()
        size = pool.crew.size
    return {
        "lost": sum(settled[n] == 0 for n in range(count * BATCH)),
        "doubled": sum(times > 1 for times in settled.values()),
        "seconds": seconds,
        "replicas_at_the_end": size,
    }


def faults(num_samples: int, replicas: int = 2, retries: int = 1) -> dict[str, Any]:
    """Three pools with faults; what the ledger says of them."""
    names = ("one", "two", "three")
    rewards = {
        name: {"scorer": f"{SCORERS}:Faulty", "args": {"seed": seed, "num_samples": num_samples}}
        for seed, name in enumerate(names)
    }
    pool = {"replicas": replicas, "batch_size": BATCH, "timeout_s": HANG_LIMIT_S, "retries": retries}
    config = recipe(rewards, pool, num_samples)
    prompts = tuple(Prompt(f"all/{i}", "all", "a number") for i in range(num_samples))
    draw = Draw(make_tasks("train", 0, 0, prompts, CHUNK), prompts, None, config.sampling, evaluation=False)
    with staged(config) as team, tempfile.TemporaryDirectory() as folder:
        began_s = time.monotonic()
        harvest = draw_and_score(team, draw, config.actors.max_failed_share, go_on, lambda drawn, left: None)
        seconds = time.monotonic() - began_s
        pools = {name: pool.state() for name, pool in team.pools.items()}
        Ledger(Path(folder), names).append(0, LedgerEntry(prompts, harvest, no_steps(harvest), {}))
        rows = read_table(Path(folder), SAMPLES).to_pylist()
    by_pool = {name: verdict(name, rows, fates(seed, num_samples), num_samples) for seed, name in enumerate(names)}
    return {
        "seconds": seconds,
        "processes_lost": {name: state.lost for name, state in pools.items()},
        "states": {name: said["states"] for name, said in by_pool.items()},
        "failures_as_injected": all(said["as_injected"] for said in by_pool.values()),
        "lost": sum(said["lost"] for said in by_pool.values()),
        # A sample settled twice is counted by its pool, though the ledger has one place for it.
        "doubled": sum(max(0, state.images - num_samples) for state in pools.values()) + duplicates(rows),
    }


def no_steps(harvest: Harvest) -> IterationReport:
    """The report of an iteration that trained nothing."""
    return IterationReport(
        iteration=0,
        steps=(),
        advantages_KN=np.full(harvest.scores_KN.shape, np.nan),
        signal_KN=np.zeros(harvest.scores_KN.shape, np.bool_),
        applied=False,
        default_hash="",
        old_hash="",
        policy_version=0,
        eta=0.0,
    )


def verdict(
    name: str, rows: Sequence[Mapping[str, Any]], injected: Mapping[int, str], num_samples: int
) -> dict[str, Any]:
    """What the ledger's rows say of one pool."""
    states = Counter(State(row[f"state_{name}"]).name.lower() for row in rows)
    failed = {row["sample"] for row in rows if row[f"state_{name}"] == State.FAILED}
    right = {row["sample"] for row in rows if row[f"score_{name}"] == np.float32(score(row["sample"]))}
    return {
        "states": dict(states),
        "as_injected": failed == set(injected),
        "lost": len(set(range(num_samples)) - failed - right),
    }


def duplicates(rows: Sequence[Mapping[str, Any]]) -> int:
    """Samples with more than one row."""
    return sum(times > 1 for times in Counter(row["sample"] for row in rows).values())


def clip() -> dict[str, Any]:
    """Measured by its own script, beside this one."""
    from benchmarks import clip_overhead  # torch and transformers, which no other part needs

    return clip_overhead.measure()


# -- command line -----------------------------------------------------------------------------------------------------


def measure(parts: Sequence[str], num_samples: int, replicas: int) -> dict[str, Any]:
    """The parts asked for, on a Ray of their own."""
    makers = {"speed": speed, "resize": resize, "faults": lambda: faults(num_samples, replicas)}
    found: dict[str, Any] = {}
    if any(part in makers for part in parts):
        os.environ["PYTHONPATH"] = str(ROOT)  # of Ray's workers, which inherit it
        with connected(recipe({"sleeps": SLEEPER}, {}, BATCH)):
            found = {part: makers[part]() for part in parts if part in makers}
    if "clip" in parts:
        found["clip"] = clip()
    counts = [found[part] for part in ("resize", "faults") if part in found]
    return {
        "machine": f"{platform.machine()}, {platform.system()}, {os.cpu_count()} cores",
        "speedup_8": found.get("speed", {}).get("speedup_8"),
        "dispatch_ms": found.get("speed", {}).get("dispatch_ms"),
        "lost": sum(said["lost"] for said in counts) if counts else None,
        "doubled": sum(said["doubled"] for said in counts) if counts else None,
        "clip_ratio": found.get("clip", {}).get("clip_ratio"),
        **found,
    }


def show(found: Mapping[str, Any]) -> None:
    """The figures as lines."""
    for key, value in found.items():
        for name, figure in value.items() if isinstance(value, dict) else [("", value)]:
            shown = f"{figure:.3f}" if isinstance(figure, float) else figure
            print(f"{f'{key} {name}'.strip():<28}{shown}")


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--samples", type=int, default=10_000, help="of the faults")
    parser.add_argument("--replicas", type=int, default=2, help="of each pool with faults")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = measure(args.only, args.samples, args.replicas)
    print(json.dumps(found, indent=2)) if args.json else show(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
