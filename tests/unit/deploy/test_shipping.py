"""What leaves the clone: Ray's working_dir, and `ray up`'s file mounts and cluster file."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deploy import strict_yaml
from deploy.paths import ROOT

MAX_SHIPPED_MB = 100
"""Ray refuses larger working directories."""


def shipped(root: Path) -> dict[str, int]:
    """Files that `ray job submit --working-dir` packs, with their sizes: Ray's own walk over a folder."""
    from ray._private import ray_constants
    from ray._private.runtime_env import packaging

    files: dict[str, int] = {}

    def take(path: Path) -> None:
        if path.is_file():
            files[path.relative_to(root).as_posix()] = path.stat().st_size

    defaults = [packaging._get_excludes(root, ray_constants.get_runtime_env_default_excludes())]
    packaging._dir_travel(root, defaults, take, include_gitignore=True)
    return files


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with this repository's ignore files and one file of every kind that must or must not travel."""
    for name in (".gitignore", ".rayignore"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    for name in (
        "deploy/cli.py",
        "deploy/progress/tensorboard.py",
        "learner/checkpoint.py",
        "actors/ledger.py",
        "tinyworld/weights/pipeline/vae/model.safetensors",
        "tinyworld/prompts/ocr_train.txt",
        "runs/tiny/config.yaml",
        "elsewhere/run/checkpoints/000030/adapters.safetensors",
        "elsewhere/run/ledger/samples-000000.parquet",
        "cache/hub/model.bin",
        "tinyworld/work/vae.pt",
        ".venv/bin/python",
        ".reward-envs/paddleocr/bin/python",
        ".git/objects/ab/cd",
        "deploy/__pycache__/cli.pyc",
        ".mypy_cache/x.db",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    return tmp_path


def test_runs_caches_and_environments_stay_at_home(clone: Path) -> None:
    """Row 29."""
    assert sorted(shipped(clone)) == [
        ".gitignore",
        ".rayignore",
        "actors/ledger.py",
        "deploy/cli.py",
        "deploy/progress/tensorboard.py",
        "learner/checkpoint.py",
        "tinyworld/prompts/ocr_train.txt",
        "tinyworld/weights/pipeline/vae/model.safetensors",
    ]


def test_the_clone_is_small_enough_for_ray() -> None:
    """Row 29: with the tiny weights, without history, environment, runs and caches."""
    files = shipped(ROOT)
    assert "deploy/cli.py" in files
    assert "deploy/recipes/tiny.yaml" in files
    assert sum(files.values()) < MAX_SHIPPED_MB * 2**20
    strays = {Path(name).parts[0] for name in files} & {".git", ".venv", ".reward-envs", "runs", "cache"}
    assert not strays


def test_the_readmes_line_finds_its_recipe_in_what_was_shipped(tmp_path: Path) -> None:
    """Row 29: `python -m deploy.cli train deploy/recipes/tiny.yaml` in Ray's copy of the clone, without Ray."""
    copy = tmp_path / "runtime_resources" / "working_dir_files" / "_ray_pkg_0123"
    for name in shipped(ROOT):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    home = tmp_path / "home"
    env = {**os.environ, "HOME": str(home), "PYTHONPATH": ""}
    look = (
        "from pathlib import Path; from actors.preflight import check_files; from deploy.recipe import load_recipe\n"
        "config = load_recipe(Path('deploy/recipes/tiny.yaml')).config\n"
        "print(config.policy.base, len(check_files(config).heldout))"
    )
    done = subprocess.run([sys.executable, "-c", look], cwd=copy, env=env, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [str(copy / "tinyworld/weights/pipeline"), "576"], done.stderr
    (home / "marble" / "runs" / "tiny").mkdir(parents=True)
    line = [sys.executable, "-m", "deploy.cli", "train", "deploy/recipes/tiny.yaml"]
    done = subprocess.run(line, cwd=copy, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"error: {home / 'marble/runs/tiny'} exists;"), done.stderr


@pytest.fixture
def cluster() -> dict[str, Any]:
    """ray_cluster.yaml."""
    return strict_yaml.load(ROOT / "ray_cluster.yaml")


def test_ray_accepts_the_cluster_file(cluster: dict[str, Any]) -> None:
    import jsonschema
    import ray.autoscaler
    from ray.autoscaler._private.util import prepare_config, validate_config

    schema = json.loads((Path(ray.autoscaler.__file__).parent / "ray-schema.json").read_text())
    jsonschema.validate(cluster, schema)
    validate_config(prepare_config(cluster))


def test_the_cluster_has_a_head_and_h200_workers_with_a_resource_per_role(cluster: dict[str, Any]) -> None:
    types = cluster["available_node_types"]
    head = types[cluster["head_node_type"]]
    assert head["resources"]["GPU"] == 0
    workers = {name: node for name, node in types.items() if node is not head}
    assert all(node["node_config"]["InstanceType"] == "p5en.48xlarge" for node in workers.values())
    assert all(node["resources"]["GPU"] == 8 for node in workers.values())
    roles = {name for node in types.values() for name in node["resources"]} - {"CPU", "GPU"}
    assert roles == {"harmonizer", "learner", "rollout", "reward"}
    assert sum(node.get("min_workers", 0) for node in types.values()) <= cluster["max_workers"]


def test_the_cluster_file_has_no_hyper_parameters(cluster: dict[str, Any]) -> None:
    text = json.dumps(cluster)
    assert not [
        word for word in ("lr", "rank", "group_size", "iterations", "timesteps", "recipe") if f'"{word}"' in text
    ]


def test_the_cluster_ships_no_runs_or_caches(cluster: dict[str, Any]) -> None:
    assert {".git", ".venv", ".reward-envs", "runs", "cache"} <= set(cluster["rsync_exclude"])
    assert ".gitignore" in cluster["rsync_filter"]
    assert list(cluster["file_mounts"].values()) == ["."]
