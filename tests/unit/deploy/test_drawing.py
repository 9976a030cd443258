"""`marble generate`: the image is plain diffusers' own, and what cannot be drawn is said in one line."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from deploy_helpers import Marble, edited, problem, tree
from PIL import Image

from deploy import drawing
from learner import adapters, checkpoint, export
from learner.config import LoraConfig
from learner.errors import UserError
from learner.policy import Policy

sys.path.insert(0, str(Path(__file__).parents[1] / "learner"))
import tiny_sd3

LORA = LoraConfig(rank=4, alpha=16.0)
STEPS = 3


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Threads only get into each other's way on images this small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random pipeline in diffusers' format."""
    return tiny_sd3.save_tiny_sd3(tmp_path_factory.mktemp("base") / "model")


@pytest.fixture
def drawable(recipe_file: Path, base: Path) -> Path:
    """The small recipe with the tiny pipeline as its base."""
    return edited(
        recipe_file,
        ("base: ./model\n  resolution: 64", f"base: {base}\n  resolution: 32\n  lora: {{rank: 4, alpha: 16}}"),
        ("eval_sampling: {steps: 10}", f"eval_sampling: {{steps: {STEPS}}}"),
    )


@pytest.fixture
def tensors(drawable: Path) -> dict[str, torch.Tensor]:
    """A LoRA that changes the image."""
    look = drawing.find_look(None, None, drawable, None)
    policy = Policy.load(look.policy.model_copy(update={"lora": LORA}), ("default",))
    generator = torch.Generator().manual_seed(1)
    read = adapters.read(policy.transformer, "default")
    return {key: 0.3 * torch.randn(value.shape, generator=generator) for key, value in read.items()}


@pytest.fixture
def lora(tensors: dict[str, torch.Tensor], tmp_path: Path) -> Path:
    return export.save_lora(tmp_path / "lora", tensors, LORA).parent


def plain(base: Path, lora: Path | None, prompt: str, seed: int) -> torch.Tensor:
    """The same image by nothing but diffusers."""
    from diffusers import StableDiffusion3Pipeline

    pipeline: Any = StableDiffusion3Pipeline.from_pretrained(base, text_encoder_3=None, tokenizer_3=None)
    pipeline.to(torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    if lora is not None:
        pipeline.load_lora_weights(lora)
    image: torch.Tensor = pipeline(
        prompt,
        height=32,
        width=32,
        num_inference_steps=STEPS,
        guidance_scale=1.0,
        max_sequence_length=0,
        generator=torch.Generator().manual_seed(seed),
        output_type="pt",
    ).images[0]
    return image


def test_the_image_is_plain_diffusers_image(drawable: Path, base: Path, lora: Path) -> None:
    """Row 3: with the LoRA within 1e-5 before quantisation, and not the base's image."""
    look = drawing.find_look(None, lora, drawable, None)
    ours = drawing.draw(drawing.load(look, "cpu"), look, "a cat", 7)
    assert torch.allclose(ours, plain(base, lora, "a cat", 7), atol=1e-5)
    bare = drawing.find_look(None, None, drawable, None)
    of_base = drawing.draw(drawing.load(bare, "cpu"), bare, "a cat", 7)
    assert torch.allclose(of_base, plain(base, None, "a cat", 7), atol=1e-5)
    assert (ours - of_base).abs().max() > 1e-2


def test_generate_writes_png_files(drawable: Path, lora: Path, workdir: Path, marble: Marble) -> None:
    ran = marble(
        "generate",
        "a cat",
        "A  dog!",
        "--lora",
        lora,
        "--recipe",
        drawable,
        "--num",
        2,
        "--seed",
        5,
        "-o",
        "out",
        "--json",
    )
    assert ran.code == 0, ran.err
    images = json.loads(ran.out)["images"]
    assert [image["seed"] for image in images] == [5, 6, 5, 6]
    assert [image["file"] for image in images] == [
        "out/a-cat-5.png",
        "out/a-cat-6.png",
        "out/a-dog-5.png",
        "out/a-dog-6.png",
    ]
    pixels = [np.asarray(Image.open(workdir / image["file"])) for image in images]
    assert all(p.shape == (32, 32, 3) for p in pixels)
    assert len({p.tobytes() for p in pixels}) == 4, "every prompt and seed gives its own image"
    again = marble("generate", "a cat", "--lora", lora, "--recipe", drawable, "--seed", 6, "-o", "one.png")
    assert again.out == "one.png  seed 6  a cat\n"
    assert np.array_equal(np.asarray(Image.open(workdir / "one.png")), pixels[1])


def test_steps_change_the_image(drawable: Path, workdir: Path, marble: Marble) -> None:
    """Row 24."""
    for name, steps in (("a.png", 2), ("b.png", 5)):
        assert marble("generate", "a cat", "--recipe", drawable, "--steps", steps, "-o", name).code == 0
    assert (workdir / "a.png").read_bytes() != (workdir / "b.png").read_bytes()


def make_run(drawable: Path, tensors: dict[str, torch.Tensor], workdir: Path, lora: LoraConfig = LORA) -> Path:
    from deploy.recipe import load_recipe, to_yaml

    run = workdir / "runs" / "small"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(to_yaml(load_recipe(drawable)))
    checkpoint.save(run / "checkpoints", 4, {"default": tensors}, {}, export.LoraExport(tensors, lora))
    return run


def test_a_run_brings_its_own_recipe_and_lora(
    drawable: Path, lora: Path, tensors: dict[str, torch.Tensor], workdir: Path, marble: Marble
) -> None:
    """--run, and a LoRA that lies inside a run, need no recipe."""
    run = make_run(drawable, tensors, workdir)
    named = drawing.find_look(None, lora, drawable, None)
    assert drawing.find_look(run, None, None, None).policy.lora == named.policy.lora.model_copy(
        update={"targets": LoraConfig().targets}
    )
    inside = run / "checkpoints" / "000004" / "lora"
    assert marble("generate", "a cat", "--run", run, "-o", "a.png").code == 0
    assert marble("generate", "a cat", "--lora", inside, "-o", "b.png").code == 0
    assert marble("generate", "a cat", "--lora", lora, "--recipe", drawable, "-o", "c.png").code == 0
    assert (workdir / "a.png").read_bytes() == (workdir / "b.png").read_bytes() == (workdir / "c.png").read_bytes()


def test_a_lora_with_a_missing_key_is_refused(
    drawable: Path, tensors: dict[str, torch.Tensor], workdir: Path, marble: Marble
) -> None:
    """Row 3: half a pair, and in a run also a whole pair that its recipe trains."""
    key = next(iter(tensors))
    half = {k: v for k, v in tensors.items() if k != key}
    folder = export.save_lora(workdir / "half", half, LORA).parent
    before = tree(workdir)
    problem(marble("generate", "a cat", "--lora", folder, "--recipe", drawable, "-o", "x.png"), key, "half")
    assert tree(workdir) == before
    module = key.rsplit(".lora_", 1)[0]
    run = make_run(drawable, {k: v for k, v in tensors.items() if not k.startswith(module + ".")}, workdir)
    problem(marble("generate", "a cat", "--run", run, "-o", "x.png"), "lacks 2 of", "tensors, first", module)
    assert not (workdir / "x.png").exists()


@pytest.mark.parametrize("command", ["generate", "eval"])
def test_a_run_with_torn_checkpoints_only_is_one_line(
    drawable: Path, tensors: dict[str, torch.Tensor], workdir: Path, marble: Marble, command: str
) -> None:
    """Row 7: which one, and what is wrong with it; nobody asked to resume."""
    run = make_run(drawable, tensors, workdir)
    (run / "checkpoints" / "000004" / "default.safetensors").unlink()
    args = ("a cat", "--run", run, "-o", "x.png") if command == "generate" else (run,)
    ran = marble(command, *args)
    problem(ran, "no whole checkpoint in", "000004 is torn: default.safetensors is missing")
    assert "resume" not in ran.err


def test_a_torn_checkpoint_is_told_and_passed_over(
    drawable: Path,
    tensors: dict[str, torch.Tensor],
    workdir: Path,
    marble: Marble,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = make_run(drawable, tensors, workdir)
    (run / "checkpoints" / "000005").mkdir()
    assert marble("generate", "a cat", "--run", run, "-o", "x.png").code == 0
    (record,) = caplog.records
    assert record.getMessage().endswith("000005 is torn: it has no manifest.json; it is passed over")


BROKEN = {
    "empty prompt": ((" ",), "a prompt is empty"),
    "several images in one file": (("a", "b", "-o", "x.png"), "--out x.png: 2 images need a folder"),
    "not a png": (("a", "-o", "x.jpg"), "images are saved as .png"),
    "no lora": (("a", "--lora", "none", "-o", "x.png"), "there is no LoRA file or folder none"),
    "no run": (("a", "--run", "none", "-o", "x.png"), "none is not a run directory"),
    "both": (("a", "--run", "r", "--lora", "l", "-o", "x.png"), "--run brings its own LoRA and recipe"),
    "device": (("a", "--device", "warp", "-o", "x.png"), "--device warp"),
    "device without numbers": (("a", "--device", "meta", "-o", "x.png"), "--device meta"),
    "seed": (("a", "--seed", str(2**64), "-o", "x.png"), "18446744073709551615"),
    "last seed": (("a", "--seed", str(2**64 - 1), "--num", "2"), "the last seed would be 18446744073709551616"),
    "steps": (("a", "--steps", "10000000000", "-o", "x.png"), "1000"),
    "long name": (("a", "-o", "x" * 300 + ".png"), "xxx...: file name too long"),
    "long folder": (("a", "-o", "x" * 300), "xxx...: file name too long"),
    "long path": (("a", "-o", "x/" * 3000), "...: file name too long"),
    "long lora": (("a", "--lora", "x" * 300), "xxx...: file name too long"),
    "long run": (("a", "--run", "x" * 300), "xxx...: file name too long"),
    "prompt that is no text": (("a", "caf\udce9", "-o", "x"), "argument 3 is not UTF-8: 'caf\\udce9'"),
}


@pytest.mark.parametrize(("args", "says"), BROKEN.values(), ids=BROKEN)
def test_what_cannot_be_drawn(drawable: Path, workdir: Path, marble: Marble, args: tuple[str, ...], says: str) -> None:
    recipe = () if "--run" in args else ("--recipe", drawable)
    problem(marble("generate", *args, *recipe), says)
    assert not list(workdir.iterdir())


@pytest.mark.parametrize("harm", ["no index", "broken index", "broken weights", "missing weights", "other pipeline"])
def test_broken_model_folders(drawable: Path, base: Path, workdir: Path, marble: Marble, harm: str) -> None:
    import shutil

    folder = workdir.parent / "broken"
    shutil.copytree(base, folder)
    index, weights = folder / "model_index.json", next((folder / "transformer").glob("*.safetensors"))
    if harm == "no index":
        index.unlink()
    elif harm == "broken index":
        index.write_text("{")
    elif harm == "broken weights":
        weights.write_bytes(weights.read_bytes()[:100])
    elif harm == "missing weights":
        weights.unlink()
    else:
        index.write_text(index.read_text().replace("StableDiffusion3Pipeline", "FluxPipeline"))
    edited(drawable, (str(base), str(folder)))
    problem(marble("generate", "a", "--recipe", drawable, "-o", "x.png"), "policy.base", str(folder))
    assert not list(workdir.iterdir())


def test_a_file_in_the_way_is_seen_before_anything_is_drawn(drawable: Path, workdir: Path, marble: Marble) -> None:
    (workdir / "file").write_text("x")
    for out in ("file/x.png", "file/sub"):
        problem(marble("generate", "a", "--recipe", drawable, "-o", out), "is not a folder that can be written to")


def test_the_highest_seed_draws(drawable: Path, workdir: Path, marble: Marble) -> None:
    ran = marble("generate", "a", "--recipe", drawable, "--steps", 1, "--seed", 2**64 - 1, "-o", "x.png")
    assert ran.code == 0, ran.err


def test_many_file_names_take_no_time(workdir: Path) -> None:
    """Linear: 20,000 names in a second at most; counted for each other they took minutes."""
    began = time.monotonic()
    files = drawing.plan_files(Path("o"), ["a", "A"], 10_000, 0)
    assert time.monotonic() - began < 10
    assert len(set(files)) == 20_000


def test_file_names() -> None:
    assert drawing.plan_files(Path("o"), ["A cat!", "a cat?"], 1, 3) == [
        Path("o/000-a-cat-3.png"),
        Path("o/001-a-cat-3.png"),
    ]
    assert drawing.plan_files(Path("o"), ['sign "ÄÖ"'], 1, 0) == [Path("o/sign-0.png")]
    assert drawing.plan_files(Path("o"), ["漢字"], 1, 0) == [Path("o/image-0.png")]
    with pytest.raises(UserError):
        drawing.plan_files(Path("o.png"), ["a"], 2, 0)
