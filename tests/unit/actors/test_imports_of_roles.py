"""Every actor is a process that pays for what it imports: each role starts here alone, and what it loaded is counted.

In CPU seconds: diffusers' pipelines about 10, transformers' CLIP 6, torch 2, cvxpy 1.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
COUNTED = (
    "torch",
    "diffusers",
    "transformers",
    "peft",
    "rapidocr",
    "cvxpy",
    "pyarrow",
    "rich",
    "tensorboard",
    "fastapi",
)

SCORER = """
from actors.config import PoolConfig
from actors.pool import ScorerActor, ScorerSpec
from rewards.config import RewardConfig
ScorerActor(ScorerSpec("one", "one", PoolConfig(), RewardConfig(scorer={scorer!r}, args={args!r}), 64)).start()
"""
HARMONIZER = """
import numpy as np
from actors.config import RoleConfig
from actors.harmonizer_actor import HarmonizerActor, HarmonizerSpec
from harmonizer.config import HarmonizerConfig
actor = HarmonizerActor(HarmonizerSpec("one", RoleConfig(), HarmonizerConfig(), ("a", "b")))
actor.start()
actor.solve(0, np.eye(2), np.ones(2, bool))
"""
DETECTOR = {"detector": "tinyworld.detector:ColourShapeDetector", "colors": "tinyworld.detector:PaletteColors"}
CLIP = {"checkpoint": str(ROOT / "tinyworld/weights/clipscore")}
# Role -> what its process runs, and all that it may load of what is counted.
ROLES: dict[str, tuple[str, set[str]]] = {
    "geneval": (SCORER.format(scorer="geneval", args=DETECTOR), set()),
    "ocr": (SCORER.format(scorer="ocr", args={}), {"rapidocr"}),
    "clip": (SCORER.format(scorer="clipscore", args=CLIP), {"torch", "transformers"}),
    "harmonizer": (HARMONIZER, {"cvxpy"}),
    "rollout and learner": (
        "import actors.rollout, actors.learner_worker, learner.learner, learner.sampler, learner.checkpoint",
        {"torch", "diffusers", "transformers", "peft"},
    ),
    "controller": ("import actors.controller", {"pyarrow"}),
    "driver of train, check and eval": (
        "import deploy.training, deploy.checking, deploy.evaluating",
        {"pyarrow", "rich"},
    ),
}


@pytest.mark.parametrize(("code", "allowed"), ROLES.values(), ids=ROLES)
def test_a_role_loads_only_what_it_needs(code: str, allowed: set[str]) -> None:
    count = f"{code}\nimport sys\nprint('loaded', *[name for name in {COUNTED!r} if name in sys.modules])"
    command = [sys.executable, "-W", "ignore", "-c", count]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.splitlines()[-1].split()[1:])
    assert loaded <= allowed
