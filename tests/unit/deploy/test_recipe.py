"""Recipes: overrides, what is refused and how it is said, paths, and the way back to YAML."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from deploy_helpers import edited

from deploy import overrides, schema, strict_yaml
from deploy.errors import ProblemsError
from deploy.paths import ROOT
from deploy.recipe import RECIPES, differences, load_recipe, load_resolved, show, to_yaml
from deploy.recipe import RunConfig as Config
from learner.errors import UserError


def lines_of(path: Path, *sets: str) -> list[str]:
    """What is refused, a line each; none when the recipe loads."""
    try:
        load_recipe(path, sets)
    except ProblemsError as error:
        return list(error.lines)
    except UserError as error:
        return [str(error)]
    return []


def test_a_valid_recipe_loads_with_absolute_paths(recipe_file: Path) -> None:
    config = load_recipe(recipe_file).config
    assert config.policy.base == str(recipe_file.parent / "model")
    assert config.prompts.sources["general"].train == str(recipe_file.parent / "general_train.txt")
    assert config.rewards["align"].args["checkpoint"] == str(recipe_file.parent / "clip")
    assert config.learner.lr == 1e-3


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda p: p.stem)
def test_every_recipe_of_the_repository_loads(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From any working directory: their paths start at the repository root."""
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe(path)
    assert recipe.config.policy.base == str(ROOT / "tinyworld/weights/pipeline")
    assert recipe.resolved["policy"]["base"] == "tinyworld/weights/pipeline"
    assert recipe.config.run.name == path.stem


def test_recipes_load_without_torch_ray_or_transformers(recipe_file: Path) -> None:
    """DESIGN 3: in a fresh interpreter, also when something is wrong."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from deploy.recipe import load_recipe\n"
        "from learner.errors import UserError\n"
        f"load_recipe(Path({str(recipe_file)!r}), ['learner.lr=1e-5'])\n"
        "try: load_recipe(Path({0!r}), ['learner.lrr=1'])\n"
        "except UserError: pass\n".format(str(recipe_file))
        + "heavy = ('torch', 'ray', 'transformers', 'diffusers', 'cvxpy', 'numpy')\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("learner.lr=1e-4", ("learner", "lr"), 1e-4),
        ("learner.betas[1]=0.99", ("learner", "betas", 1), 0.99),
        ("learner.betas.1=0.99", ("learner", "betas", 1), 0.99),
        ("learner.betas=[0.8, 0.9]", ("learner", "betas"), [0.8, 0.9]),
        ("rewards.ocr.applies=[a, b]", ("rewards", "ocr", "applies"), ["a", "b"]),
        ("actors.rollout={replicas: 2}", ("actors", "rollout"), {"replicas": 2}),
        ("policy.base=a=b", ("policy", "base"), "a=b"),
        ("policy.init_lora=null", ("policy", "init_lora"), None),
        ("run.tensorboard=false", ("run", "tensorboard"), False),
    ],
)
def test_overrides_are_yaml(text: str, path: schema.Path, value: object) -> None:
    assert overrides.parse(text) == overrides.Override(path, value)


def test_overrides_reach_their_place(recipe_file: Path) -> None:
    """Row 24: every flag has a test that sees its effect; items of a defaulted list, new sections, later ones win."""
    sets = [
        "learner.lr=1",
        "learner.lr=2e-3",
        "learner.betas[1]=0.95",
        "policy.lora.targets[0]=attn.to_k",
        "actors.pools.align={replicas: 2}",
        "actors.pools.align.threads=3",
    ]
    config = load_recipe(recipe_file, sets).config
    assert config.learner.lr == 2e-3
    assert config.learner.betas == (0.9, 0.95)
    assert config.policy.lora.targets[:2] == ("attn.to_k", "attn.to_k")
    assert (config.pool("align").replicas, config.pool("align").threads) == (2, 3)


def test_an_overlay_changes_what_it_names(recipe_file: Path, tmp_path: Path) -> None:
    """In its turn among the other overrides; sections are merged, lists are not."""
    Path("here").touch()
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text(
        "heldout_rewards:\n  judge: {scorer: 'some.module:Judge', args: {path: ./here}}\n"
        "learner: {lr: 5e-3, betas: [0.5, 0.6]}\n"
    )
    config = load_recipe(recipe_file, ["learner.lr=1", f"@{overlay}", "learner.betas[1]=0.7"]).config
    assert config.heldout_rewards["judge"].args == {"path": str(Path.cwd() / "here")}
    assert (config.learner.lr, config.learner.betas, config.learner.timesteps) == (5e-3, (0.5, 0.7), 3)
    assert lines_of(recipe_file, f"@{overlay}.no") == [f"{overlay}.no: no such file or directory"]
    overlay.write_text("heldout_reward: {}\n")
    (line,) = lines_of(recipe_file, f"@{overlay}")
    assert line.startswith("--set: heldout_reward: unknown key, got {}; the nearest valid key is heldout_rewards")


def test_the_tiny_worlds_held_out_rewards_are_one_overlay() -> None:
    """tiny_long.yaml has them in it, tiny.yaml takes them, and paths lead to the repository as those of rewards do."""
    overlaid = load_recipe(RECIPES / "tiny.yaml", [f"@{RECIPES / 'overlays/tiny_heldout.yaml'}"])
    held = overlaid.config.heldout_rewards
    assert held == load_recipe(RECIPES / "tiny_long.yaml").config.heldout_rewards
    assert tuple(held) == ("aesthetic", "heldout_clip", "strict_geneval")
    assert held["aesthetic"].args["head"] == str(ROOT / "tinyworld/weights/aesthetic/head.pth")
    assert overlaid.resolved["heldout_rewards"]["aesthetic"]["args"]["head"] == "tinyworld/weights/aesthetic/head.pth"
    assert not load_recipe(RECIPES / "tiny.yaml").config.heldout_rewards


BAD_OVERRIDES = {
    "learner.lr": "--set learner.lr: wants key=value",
    "=3": "is not a key path",
    "a..b=1": "is not a key path",
    "learner.lr.x=1": "learner.lr holds no keys, it is 0.001",
    "learner.betas.7=1": "learner.betas has 2 items",
    "learner.betas.x=1": "learner.betas is a list",
    "learner.lr=[1": "--set learner.lr: ",
    "learner={lr: 1, lr: 2}": "key 'lr' stands twice",
}


@pytest.mark.parametrize(("text", "says"), BAD_OVERRIDES.items())
def test_bad_overrides(recipe_file: Path, text: str, says: str) -> None:
    found = lines_of(recipe_file, text)
    assert len(found) == 1
    assert says in found[0]


# --set -> what the one line must say: the key path, the value got, what would be right.
REFUSED = {
    "learner.lrr=1": ("learner.lrr: unknown key, got 1;", "nearest valid key is learner.lr"),
    "lr=1e-4": ("lr: unknown key, got 0.0001;", "nearest valid key is learner.lr"),
    "leaner.lr=3": ("--set: leaner: unknown key", "nearest valid key is learner"),
    "eval.evry=3": ("nearest valid key is eval.every",),
    "learner.seed=3": ("nearest valid key is run.seed",),
    "learner.advantage.stdd=batch": ("nearest valid key is learner.advantage.std",),
    "rewards.align.args.revisoin=x": ("nearest valid key is rewards.align.args.revision",),
    "rewards.align.scorerr=x": ("nearest valid key is rewards.align.scorer",),
    "zzz=1": ("unknown key, got 1; valid keys here are run, policy",),
    "learner.lr=abc": ('learner.lr: should be a valid number, got "abc"',),
    "learner.lr='1e-4'": ('learner.lr: should be a valid number, got "1e-4"',),
    "learner.lr=": ("learner.lr: should be a valid number, got null",),
    "learner.lr=-1": ("learner.lr: should be greater than or equal to 0, got -1",),
    "learner.lr=.nan": ("learner.lr: must be finite, got nan",),
    "learner.lr=.inf": ("learner.lr: must be finite, got inf",),
    "learner=3": ("learner: should be a mapping of keys, got 3",),
    "run.iterations=true": ("run.iterations: should be a valid integer, got true",),
    "run.iterations=2.5": ("run.iterations: ", "got 2.5"),
    "run.name=a/b": ("run.name: ", 'got "a/b"'),
    "learner.advantage.std=grup": ("learner.advantage.std: should be 'group' or 'batch', got \"grup\"",),
    "prompts.group_size=1": ("prompts.group_size: should be greater than or equal to 2, got 1",),
    "rewards={}": ("rewards is empty",),
    "rewards.align=null": ("rewards.align: should be a mapping of keys, got null",),
    "rewards.geneval.applies=[orc]": ("rewards.geneval.applies names ['orc']", "general, geneval"),
    "rewards.geneval.applies=[]": ("rewards.geneval.applies: ", "got []"),
    "prompts.groups_per_iteration=5": ("groups_per_iteration 5 is not divisible by the 2 prompt sources",),
    "prompts.chunk_size=3": ("prompts: chunk_size 3 neither divides group_size 2", "the 8 samples"),
    "prompts.chunk_size=6": ("prompts: chunk_size 6 neither divides group_size 2", "the 8 samples"),
    "actors.learner.replicas=3": ("4 groups x 2 images = 8 samples do not divide over 3 learner ranks",),
    "learner.timesteps=10": ("learner.timesteps is 10, but 10 sampling steps",),
    "actors.pools.algin.replicas=2": ("actors.pools names algin; rewards are align, geneval",),
    "actors.pools={align: {min_replicas: 2}}": ("actors.pools.align: replicas 1 is below min_replicas 2",),
    "actors.pools={align: {replicas: 5, max_replicas: 4}}": ("replicas 5 is above max_replicas 4",),
    "actors.pools={align: {autoscale: {target_queue: 4}}}": ("actors.pools.align: autoscale needs max_replicas",),
    "actors.pools={align: {max_replicas: 4, autoscale: {}}}": ("pools.align.autoscale.target_queue: is missing",),
    "actors.pools={align: {max_replica: 4}}": ("the nearest valid key is actors.pools.align.max_replicas",),
    "actors.pools={align: {runtime_env: {py_executable: ./none}}}": (
        "actors.pools.align.runtime_env.py_executable: no such file",
    ),
    "actors.pools={align: {runtime_env: {py_executable: /bin/sh, pip: [x]}}}": (
        "actors.pools.align.runtime_env: py_executable and pip exclude each other",
    ),
    "actors.pools={align: {runtime_env: {pip: x}}}": ("pools.align.runtime_env.pip: ", 'got "x"'),
    "actors.max_unscored=0": ("actors.max_unscored: should be greater than or equal to 1, got 0",),
    "checkpoint.keep_best=2": ("checkpoint.keep_best needs eval.every > 0",),
    "sampling.guidance_scale=4.5": ("guidance_scale is 4.5", "allow_guidance"),
    "policy.base=/no/model": ("policy.base: no such file or folder, got '/no/model'",),
    "policy.init_lora=none.safetensors": ("policy.init_lora: no such file or folder",),
    "prompts.sources.general.train=none.txt": ("prompts.sources.general.train: no such file",),
    "rewards.align.args.checkpoint=./none": ("rewards.align.args.checkpoint: no such file",),
    "run.seed=99999999999999999999": ("--set run.seed: 99999999999999999999 is more than 64 bits hold",),
    "run.seed=!!int x": ("--set run.seed: 'x' is no int",),
    'run.name="\\ud800"': ("--set run.name: ", "holds half a character"),
    "rewards.new.scorer=aesthetic": ("rewards.new.args.head: is missing",),
    "rewards.new={scorer: hpsv2, args: {checkpoint: ./none, fil: x}}": (
        "rewards.new.args.checkpoint: no such file",
        "rewards.new.args.fil: unknown key",
    ),
    "rewards.new.scorer=geneval": ("rewards.new.args.detector: is missing",),
    "actors.pools.align={num_gpus: x}": ('actors.pools.align.num_gpus: should be a valid number, got "x"',),
    "learner.betas=[2.0, 0.9]": ("learner.betas.0: should be less than 1, got 2.0",),
    "learner.betas=[0.9, 1.0]": ("learner.betas.1: should be less than 1, got 1.0",),
    "learner.betas[0]=-0.1": ("learner.betas.0: should be greater than or equal to 0, got -0.1",),
    "harmonizer={method: fixed, fixed: {a: 1}}": (
        "harmonizer.fixed must give a weight to each of align, geneval",
        "got a",
    ),
    "actors.rollout.resources={x: -1}": ("actors.rollout.resources: x must be 0 or at least 0.0001, got -1",),
    "actors.rollout.resources={x: 1e-5}": ("actors.rollout.resources: x must be 0 or at least 0.0001, got 1e-05",),
    "actors.rollout.resources={CPU: 1}": ("actors.rollout.resources: CPU is no custom", "num_cpus: 1"),
    "actors.learner.resources={GPU: 2}": ("actors.learner.resources: GPU is no custom", "num_gpus: 2"),
    "actors.pools.align.resources={memory: 1}": ("actors.pools.align.resources: 'memory' is no custom resource",),
    "actors.rollout.num_cpus=1e-5": ("actors.rollout.num_cpus: must be 0 or at least 0.0001", "got 1e-05"),
    "actors.learner.num_gpus=1e-5": ("actors.learner.num_gpus: must be 0 or at least 0.0001", "got 1e-05"),
    "actors.learner.num_gpus=1.5": ("actors.learner.num_gpus: must be a share of one GPU or a whole", "got 1.5"),
    "actors.learner.backend=nccl": ("actors.learner: backend nccl is for ranks with a GPU",),
    "actors.learner.timeout_s=1e300": ("actors.learner.timeout_s: should be less than or equal to 10000000",),
    "actors.start_timeout_s=0": ("actors.start_timeout_s: should be greater than 0, got 0",),
    "actors.rollout.threads=100000": ("actors.rollout.threads: should be less than or equal to 4096",),
    "actors.harmonizer.replicas=3": ("actors.harmonizer.replicas: should be 1, got 3",),
    "rewards={'': {scorer: ocr}}": ("rewards.: a name has letters, digits, _ and - only", "got ''"),
    "rewards={'o c/r.': {scorer: ocr}}": ("rewards.o c/r.: a name has letters", "got 'o c/r.'"),
    "rewards={'../x': {scorer: ocr}}": ("rewards.../x: a name has letters", "got '../x'"),
    "rewards.1st={scorer: ocr}": ("a name has letters", "got '1st'"),
    "prompts.sources={'a b': {train: README.md, heldout: README.md}}": ("prompts.sources.a b: a name has", "got 'a b'"),
    "policy.resolution=65": ("policy.resolution: ", "got 65"),
    "harmonizer.method=upgrd": ("harmonizer.method: should be 'min_norm', 'uniform'", "'upgrad'", 'got "upgrd"'),
    "harmonizer.floors={align: 1.5}": ("harmonizer.floors.align: should be less than or equal to 1, got 1.5",),
    "harmonizer.floors={align: 0.6, geneval: 0.6}": ("harmonizer.floors: floors must add up to at most 1, got 1.2",),
    "harmonizer.floors={algin: 0.1}": ("harmonizer.floors names algin; it may name align, geneval",),
    "harmonizer.preference={align: 0, geneval: 1}": ("harmonizer.preference.align: should be greater than 0, got 0",),
    "harmonizer.preference={align: 2}": (
        "harmonizer.preference must have a number for each of align, geneval, got align",
    ),
    "harmonizer.groups={one: {align: 1, ocr: 1}}": ("harmonizer.groups.one names ocr; rewards are align, geneval",),
    "harmonizer.ema.trust_region=3": ("harmonizer.ema.trust_region: should be less than or equal to 2, got 3",),
    "harmonizer.refresh.policy=adapt": ("harmonizer.refresh.policy: ", "'adaptive'", 'got "adapt"'),
    "harmonizer={method: fixed, fixed: {align: 1}}": (
        "harmonizer.fixed must give a weight to each of align, geneval, got align",
    ),
    "harmonizer={method: uniform, floors: {align: 0.1}}": (
        "harmonizer: floors goes with method min_norm, got method uniform",
    ),
    "harmonizer={kl: constraint, kl_bound: 1}": ("harmonizer.kl_bound: should be less than 1, got 1",),
    "rewards.align.args.batch_size=true": ("rewards.align.args.batch_size: should be a valid integer, got true",),
    "rewards.geneval.args.clip='off'": ('rewards.geneval.args.clip: should be a valid boolean, got "off"',),
    "harmonizer.refresh.policy=never": (
        "harmonizer: refresh.policy never goes with method weighted_gradients, got method min_norm",
    ),
    "learner.weights={align: 1, geneval: 1}": (
        "learner: weights are for objective weighted_sum, got objective gradients",
    ),
    "learner.objective=weighted": ("learner.objective: should be 'gradients' or 'weighted_sum', got \"weighted\"",),
    "learner.stages=[{rewards: [algin], iterations: 4}]": (
        "learner.stages.0.rewards names algin; rewards are align, geneval",
    ),
    "learner.stages=[{rewards: [align], iterations: 1}, {rewards: [geneval], iterations: 2}]": (
        "learner.stages take 1 + 2 = 3 iterations, but run.iterations is 4",
    ),
    "learner.stages=[{rewards: [], iterations: 4}]": ("learner.stages.0.rewards: ", "got []"),
    "learner.probe_every=-1": ("learner.probe_every: should be greater than or equal to 0, got -1",),
    "prompts.sources.general.tags=[counting]": (
        "prompts.sources.general: tags are read from metadata, which format lines has none of",
    ),
    "rewards.align.args.device=cuda": ("rewards.align.args.device is cuda", "set actors.pools.align.num_gpus"),
}


@pytest.mark.parametrize(("text", "parts"), REFUSED.items())
def test_refused_with_path_value_and_what_is_right(recipe_file: Path, text: str, parts: tuple[str, ...]) -> None:
    """Row 24 and row 19: nothing falls back to a default."""
    found = lines_of(recipe_file, text)
    assert len(found) == (2 if text.startswith("rewards.new={") else 1), found
    for part in parts:
        assert part in "\n".join(found)


def test_a_bound_on_kl_needs_kl(recipe_file: Path) -> None:
    found = lines_of(recipe_file, "harmonizer.kl=constraint", "learner.kl_beta=0")
    assert len(found) == 1
    assert "harmonizer.kl: constraint needs learner.kl_beta > 0, got 0.0" in found[0]
    assert lines_of(recipe_file, "harmonizer.kl=constraint", "learner.kl_beta=1e-4") == []


def test_all_problems_come_at_once_and_are_told_apart(recipe_file: Path) -> None:
    edited(recipe_file, ("  lr: 1e-3", "  lrr: 1e-3"), ("iterations: 4", "iterations: many"), ("./clip", "./clop"))
    found = lines_of(recipe_file, "eval.evry=2", "policy.base=/none")
    assert len(found) == 5
    assert sum(line.startswith("--set: ") for line in found) == 2
    assert sum(line.startswith(f"{recipe_file}: ") for line in found) == 3


def test_missing_sections_and_keys(recipe_file: Path) -> None:
    recipe_file.write_text("run: {name: x}\n")
    found = lines_of(recipe_file)
    assert [line.removeprefix(f"{recipe_file}: ") for line in found] == [
        "run.iterations: is missing",
        "policy: is missing",
        "prompts: is missing",
        "rewards: is missing",
    ]


def test_a_scorer_computes_where_its_pool_is(recipe_file: Path) -> None:
    """A reserved GPU is used, and config.yaml says so; a recipe that contradicts itself is refused."""
    gpu = "actors.pools.align.num_gpus=0.25"
    recipe = load_recipe(recipe_file, [gpu])
    assert recipe.config.scorer("align").args["device"] == "cuda"
    assert recipe.resolved["rewards"]["align"]["args"]["device"] == "cuda"
    assert recipe.config.scorer("geneval") == recipe.config.rewards["geneval"], "its detector is anyone's"
    plain = load_recipe(recipe_file)
    assert plain.config.scorer("align").args["device"] == "cpu"
    assert plain.resolved["rewards"]["align"]["args"]["device"] == "cpu"
    assert load_recipe(recipe_file, [gpu, "rewards.align.args.device='cuda:0'"]).config.scorer("align").args[
        "device"
    ] == ("cuda:0")
    (line,) = lines_of(recipe_file, gpu, "rewards.align.args.device=cpu")
    assert "rewards.align.args.device is cpu, but actors.pools.align.num_gpus reserves 0.25 of a GPU" in line


def test_a_gpu_recipe_reads_back_the_same(recipe_file: Path, tmp_path: Path) -> None:
    recipe = load_recipe(recipe_file, ["actors.pools.align.num_gpus=1"])
    path = tmp_path / "config.yaml"
    path.write_text(to_yaml(recipe))
    assert load_resolved(path).resolved == recipe.resolved


def test_long_values_are_cut() -> None:
    assert len(show("x" * 500)) == 80


def test_where_relative_paths_start(recipe_file: Path, workdir: Path) -> None:
    """./x beside the recipe, with --set in the working directory; x in the working directory, then at the root."""
    (workdir / "model").mkdir()
    assert load_recipe(recipe_file).config.policy.base == str(recipe_file.parent / "model")
    assert load_recipe(recipe_file, ["policy.base=./model"]).config.policy.base == str(workdir / "model")
    assert load_recipe(recipe_file, ["policy.base=model"]).config.policy.base == str(workdir / "model")
    assert load_recipe(recipe_file, ["policy.base=deploy"]).config.policy.base == str(ROOT / "deploy")
    (workdir / "deploy").mkdir()
    assert load_recipe(recipe_file, ["policy.base=deploy"]).config.policy.base == str(workdir / "deploy")
    assert load_recipe(recipe_file, ["policy.base=../recipe/model"]).config.policy.base.endswith("/recipe/model")


def test_hub_ids_are_left_alone(recipe_file: Path, workdir: Path) -> None:
    """owner/name is a hub id unless a folder `owner` is there: then the name is a misspelt path."""
    sets = ["policy.base=stabilityai/stable-diffusion-3.5-medium", "rewards.align.args.checkpoint=openai/clip"]
    config = load_recipe(recipe_file, sets).config
    assert config.policy.base == "stabilityai/stable-diffusion-3.5-medium"
    assert config.rewards["align"].args["checkpoint"] == "openai/clip"
    (workdir / "stabilityai").mkdir()
    assert "policy.base: no such file" in lines_of(recipe_file, sets[0])[0]
    assert "init_lora: no such file" in lines_of(recipe_file, "policy.init_lora=owner/name")[0]


def test_paths_of_a_users_own_scorer(recipe_file: Path) -> None:
    """Row 29: what such a scorer calls a path we cannot know, but ./x can be nothing else; the rest is its own."""
    (recipe_file.parent / "head.pt").touch()
    sets = ["rewards.mine={scorer: 'my.module:Mine', args: {head: ./head.pt, checkpoint: some/thing}}"]
    found = lines_of(recipe_file, *sets)
    assert found
    assert "rewards.mine.args.head: no such file" in found[0]
    edited(
        recipe_file,
        (
            "learner:\n",
            "  mine:\n    scorer: my.module:Mine\n    args: {head: ./head.pt, checkpoint: some/thing}\nlearner:\n",
        ),
    )
    args = load_recipe(recipe_file).config.rewards["mine"].args
    assert args == {"head": str(recipe_file.parent / "head.pt"), "checkpoint": "some/thing"}


def test_the_resolved_recipe_reads_back_the_same(recipe_file: Path, tmp_path: Path) -> None:
    recipe = load_recipe(recipe_file, ["learner.lr=1e-5"])
    path = tmp_path / "config.yaml"
    path.write_text(to_yaml(recipe))
    again = load_resolved(path)
    assert again.config == recipe.config.model_copy(update={"rewards": again.config.rewards})
    assert again.resolved == recipe.resolved
    assert not list(differences(recipe.resolved, again.resolved))
    assert list(again.resolved["rewards"]) == ["align", "geneval"]
    assert again.resolved["rewards"]["align"]["args"]["batch_size"] == 32, "defaults of arguments are on record too"


def test_differences_name_keys_and_the_order_of_rewards(recipe_file: Path) -> None:
    one = load_recipe(recipe_file).resolved
    two = load_recipe(recipe_file, ["learner.lr=2e-3", "learner.betas[0]=0.8"]).resolved
    assert list(differences(one, two)) == [
        ("learner.lr", 1e-3, 2e-3),
        ("learner.betas", [0.9, 0.999], [0.8, 0.999]),
    ]
    swapped = {**one, "rewards": dict(reversed(one["rewards"].items()))}
    assert list(differences(one, swapped)) == [("rewards", ["align", "geneval"], ["geneval", "align"])]


PHOTOS = {
    "detector": "rewards.mask2former:Mask2FormerDetector",
    "detector_args": {"checkpoint": "clip"},
    "colors": "rewards.clip_colors:ClipColors",
    "colors_args": {"checkpoint": "openai/clip-vit-large-patch14", "revision": "main"},
}
"""GenEval's arguments for photographs."""


def test_checkpoints_of_genevals_parts_are_paths_or_hub_ids(recipe_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 29. What another detector calls a checkpoint may be anything."""
    monkeypatch.chdir(recipe_file.parent)
    args = load_recipe(recipe_file, [f"rewards.geneval.args={json.dumps(PHOTOS)}"]).config.rewards["geneval"].args
    assert args["detector_args"]["checkpoint"] == str(recipe_file.parent / "clip")
    assert args["detector_args"]["short_side"] == 800, "defaults are on record too"
    assert args["colors_args"]["checkpoint"] == "openai/clip-vit-large-patch14"
    foreign = {"detector": "some.module:Detector", "detector_args": {"checkpoint": "clip"}}
    args = load_recipe(recipe_file, [f"rewards.geneval.args={json.dumps(foreign)}"]).config.rewards["geneval"].args
    assert args["detector_args"] == {"checkpoint": "clip"}


def test_genevals_parts_compute_where_their_pool_is(recipe_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(recipe_file.parent)
    sets = [f"rewards.geneval.args={json.dumps(PHOTOS)}", "actors.pools.geneval.num_gpus=0.5"]
    args = load_recipe(recipe_file, sets).resolved["rewards"]["geneval"]["args"]
    assert (args["detector_args"]["device"], args["colors_args"]["device"]) == ("cuda", "cuda")
    args = load_recipe(recipe_file, sets[:1]).resolved["rewards"]["geneval"]["args"]
    assert (args["detector_args"]["device"], args["colors_args"]["device"]) == ("cpu", "cpu")
    (line,) = lines_of(recipe_file, sets[0], "rewards.geneval.args.colors_args.device=cuda")
    assert "rewards.geneval.args.colors_args.device is cuda, but its pool has no GPU" in line


def test_keys_of_genevals_parts_are_checked(recipe_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 24."""
    monkeypatch.chdir(recipe_file.parent)
    sets = (f"rewards.geneval.args={json.dumps(PHOTOS)}", "rewards.geneval.args.detector_args.shortside=400")
    (line,) = lines_of(recipe_file, *sets)
    assert "rewards.geneval.args.detector_args.shortside: unknown key, got 400" in line
    assert "the nearest valid key is rewards.geneval.args.detector_args.short_side" in line


def test_every_path_field_is_a_field() -> None:
    """The list of path fields follows the models."""
    from deploy.paths import PATH_FIELDS

    data = strict_yaml.load(RECIPES / "tiny.yaml")
    data["rewards"] |= {"imagereward": {"scorer": "imagereward"}, "aesthetic": {"scorer": "aesthetic"}}
    data["rewards"]["photos"] = {"scorer": "geneval", "args": PHOTOS}
    data["heldout_rewards"] = data["rewards"]
    reward_with = {"tokenizer": "imagereward", "head": "aesthetic", "detector_args": "photos", "colors_args": "photos"}
    for field in PATH_FIELDS:
        reward = next((name for part, name in reward_with.items() if part in field.pattern), "pickscore")
        names = {"prompts": "ocr", "rewards": reward, "heldout_rewards": reward, "actors": "ocr"}
        path = tuple(names[field.pattern[0]] if part == "*" else part for part in field.pattern)
        assert schema.annotations_at(Config, path, data), path
