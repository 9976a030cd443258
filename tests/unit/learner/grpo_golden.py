"""Six steps of Flow-GRPO on rollouts of its own, and their numbers.

Regenerate after a change that is meant to move them: ``python -m tests.unit.learner.grpo_golden``.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import torch

from learner.types import StepRecord
from tests.unit.learner import golden
from tests.unit.learner.grpo_batches import make_batch, make_learner
from tests.unit.learner.tiny_sd3 import save_tiny_sd3

FILE = Path(__file__).parents[2] / "golden" / "flow_grpo_steps.json"
ITERATIONS = 3


def summary(record: StepRecord) -> dict[str, Any]:
    """What must not move."""
    return {**golden.summary(record), "clip_fraction": record.clip_fraction, "approx_kl": record.approx_kl}


def six_steps(folder: Path) -> list[dict[str, Any]]:
    learner = make_learner(folder, clip_range=2e-3, lr=1e-2)
    records = [r for i in range(ITERATIONS) for r in learner.train(make_batch(learner, i)).steps]
    return [summary(record) for record in records]


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        steps = six_steps(save_tiny_sd3(Path(folder) / "pipeline", seed=3))
    FILE.write_text(json.dumps(steps, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
