"""Where an iteration's time goes: ``python benchmarks/iteration.py [--recipe R] [--iterations 8] [--json]``.

Runs a recipe for a few iterations in a temporary run directory and prints, as medians over the iterations after the
first: seconds by stage, the share of the wall time in which the learner waits, the bytes that pass through the
controller, and each actor's peak memory and start time.
"""

import argparse
import json
import platform
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from actors.controller import Controller
from actors.results import ActorVitals, IterationResult, SilentListener
from deploy.errors import report
from deploy.recipe import load_recipe
from learner.errors import UserError

STAGES = ("rollout", "rewards", "learner", "sync", "other", "total")
WARMUP = 1
"""Iterations left out of the medians: the first solves, compiles the QP and fills caches."""
FEW_PROMPTS = 8
"""Held-out prompts per source: evaluation is not what is measured here."""


class Recorder(SilentListener):
    """Keeps every iteration's result, and the actors' vitals at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.results: list[IterationResult] = []
        self.vitals: tuple[ActorVitals, ...] = ()
        self.controller: Controller | None = None

    def on_iteration(self, result: IterationResult) -> None:
        """Between iterations the actors have time to answer."""
        self.results.append(result)
        if result.done == result.num_iterations and self.controller is not None:
            self.vitals = self.controller.vitals()


def measure(recipe: Path, iterations: int, sets: list[str]) -> Recorder:
    """Run the recipe and return what it said."""
    fixed = [f"run.iterations={iterations}", f"eval.prompts_per_source={FEW_PROMPTS}", "run.tensorboard=false"]
    config = load_recipe(recipe, [*fixed, *sets]).config
    recorder = Recorder()
    with tempfile.TemporaryDirectory() as folder, Controller(config, Path(folder), recorder) as controller:
        recorder.controller = controller
        controller.run()
    return recorder


def figures(recorder: Recorder) -> dict[str, Any]:
    """What is printed, as data."""
    counted = recorder.results[WARMUP:] or recorder.results
    medians = {stage: statistics.median(r.timings_s.get(stage, 0.0) for r in counted) for stage in STAGES}
    steps = [step for result in counted for step in result.report.steps]
    return {
        "machine": f"{platform.machine()}, {platform.system()}",
        "iterations": len(counted),
        "seconds": medians,
        "share_of_total": {s: medians[s] / medians["total"] for s in STAGES[:-1]},
        "learner_wait_share": statistics.median(r.timings_s["learner_wait"] / r.timings_s["total"] for r in counted),
        "images_per_s": statistics.median(r.images_per_s for r in counted),
        "controller_bytes": statistics.median(r.controller_bytes for r in counted),
        "step_seconds": {
            "solving": [round(s.seconds, 3) for s in steps if s.solved],
            "amortized_median": statistics.median([s.seconds for s in steps if not s.solved] or [float("nan")]),
        },
        "actors": [
            {"name": v.name, "threads": v.threads, "peak_memory_gib": v.peak_memory_gib, "start_s": v.start_s}
            for v in recorder.vitals
        ],
    }


def show(found: dict[str, Any]) -> None:
    """The figures as a table."""
    print(f"medians over {found['iterations']} iterations ({found['machine']})")
    for stage, seconds in found["seconds"].items():
        share = found["share_of_total"].get(stage)
        print(f"  {stage:<10}{seconds:8.3f} s" + (f"{share:8.1%}" if share is not None else ""))
    print(f"  learner waits {found['learner_wait_share']:.1%} of the time, {found['images_per_s']:.1f} images/s")
    print(f"  {found['controller_bytes'] / 1000:.1f} kB through the controller per iteration")
    steps = found["step_seconds"]
    solving = ", ".join(f"{seconds:.2f} s" for seconds in steps["solving"]) or "none among those counted"
    print(f"  amortised step {steps['amortized_median']:.2f} s, solving steps {solving}")
    for actor in found["actors"]:
        print(
            f"  {actor['name']:<20}{actor['threads']} threads{actor['peak_memory_gib']:8.2f} GiB peak, "
            f"up after {actor['start_s']:.1f} s"
        )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--recipe", type=Path, default=Path("deploy/recipes/tiny.yaml"))
    parser.add_argument("--iterations", type=int, default=12, help="the first is left out of the medians")
    parser.add_argument("--set", action="append", default=[], dest="sets", help="as for marble train")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    try:
        found = figures(measure(args.recipe, args.iterations, args.sets))
    except UserError as error:
        sys.exit(report(error))
    print(json.dumps(found, indent=2)) if args.json else show(found)


if __name__ == "__main__":
    main()
