"""Files that a recipe names and nobody can use: one line each, exit code 2, nothing written."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deploy_helpers import GENEVAL_LINE, Marble, edited, problem

from actors.run_config import RunConfig


def _append(name: str, data: bytes) -> Callable[[Path], None]:
    def harm(folder: Path) -> None:
        path = folder / name
        path.write_bytes(path.read_bytes() + data)

    return harm


def _quotes(folder: Path) -> None:
    path = folder / "general_train.txt"
    path.write_text('a sign that says ""\n' + path.read_text())


def _no_index(folder: Path) -> None:
    (folder / "model" / "model_index.json").unlink()


def _broken_index(folder: Path) -> None:
    (folder / "model" / "model_index.json").write_text("{")


def _index(text: str) -> Callable[[Path], None]:
    def harm(folder: Path) -> None:
        (folder / "model" / "model_index.json").write_text(text)

    return harm


def _no_weights(folder: Path) -> None:
    (folder / "model" / "transformer" / "diffusion_pytorch_model.safetensors").unlink()


def _cut_weights(folder: Path) -> None:
    path = folder / "model" / "vae" / "diffusion_pytorch_model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def _cut_scorer(folder: Path) -> None:
    path = folder / "clip" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:9])


def _no_tokenizer(folder: Path) -> None:
    (folder / "model" / "tokenizer_2" / "tokenizer.json").unlink()


def _no_parts(folder: Path) -> None:
    shutil.rmtree(folder / "model" / "vae")
    shutil.rmtree(folder / "model" / "scheduler")


def _too_few(folder: Path) -> None:
    (folder / "geneval_train.jsonl").write_text(GENEVAL_LINE)


# What was done to the files -> what the one line must say.
HARMS: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "empty line": (_append("general_train.txt", b"\na thing\n"), ("general_train.txt", "line 9", "empty")),
    "held-out empty line": (_append("general_heldout.txt", b"\n"), ("general_heldout.txt", "line 9", "empty")),
    "not UTF-8": (_append("general_train.txt", b"caf\xe9\n"), ("general_train.txt", "line 9", "not UTF-8", "0xe9")),
    "no metadata": (_append("geneval_train.jsonl", b'{"prompt": "a"}\n'), ("geneval_train.jsonl", "line 9", "include")),
    "no prompt": (_append("geneval_train.jsonl", b'{"include": []}\n'), ("geneval_train.jsonl", "line 9", "prompt")),
    "not JSON": (_append("geneval_train.jsonl", b"a thing\n"), ("geneval_train.jsonl", "line 9", "not JSON")),
    "negative count": (
        _append("geneval_train.jsonl", b'{"prompt": "a", "include": [{"class": "circle", "count": -1}]}\n'),
        ("geneval_train.jsonl", "line 9", "include[0].count", "got -1"),
    ),
    "position out of range": (
        _append(
            "geneval_train.jsonl",
            b'{"prompt": "a", "include": [{"class": "circle", "count": 1, "position": ["left of", 4]}]}\n',
        ),
        ("geneval_train.jsonl", "line 9", "include[0].position", "earlier clause", "got 4"),
    ),
    "empty quotes": (_quotes, ("general_train.txt", "line 1", "quoted text is empty")),
    "too few prompts": (_too_few, ("geneval", "1 training prompts", "draws 2")),
    "no model index": (_no_index, ("policy.base", "model_index.json")),
    "broken model index": (_broken_index, ("policy.base", "model_index.json", "not JSON")),
    "model index is a list": (_index("[]"), ("policy.base", "model_index.json holds []")),
    "model index is null": (_index("null"), ("policy.base", "model_index.json holds null")),
    "model index is empty": (_index("{}"), ("policy.base", "is a None, expected a StableDiffusion3Pipeline")),
    "no weights": (_no_weights, ("policy.base", "transformer: diffusion_pytorch_model.safetensors is missing")),
    "truncated weights": (_cut_weights, ("policy.base", "vae: diffusion_pytorch_model.safetensors is cut short")),
    "truncated scorer": (_cut_scorer, ("rewards.align.args.checkpoint", "model.safetensors is cut short")),
    "no tokenizer": (_no_tokenizer, ("policy.base", "tokenizer_2 has none of tokenizer.json")),
    "missing folders": (_no_parts, ("policy.base", "lacks the folders vae, scheduler")),
}


@pytest.mark.parametrize(("harm", "parts"), HARMS.values(), ids=HARMS)
def test_train_refuses(
    recipe_file: Path, workdir: Path, marble: Marble, harm: Callable[[Path], None], parts: tuple[str, ...]
) -> None:
    """Before ray is started."""
    harm(recipe_file.parent)
    problem(marble("train", recipe_file), *parts)
    assert not list(workdir.iterdir())


def test_a_reward_without_any_prompt_it_applies_to(recipe_file: Path, workdir: Path, marble: Marble) -> None:
    edited(
        recipe_file,
        (
            "    args: {checkpoint: ./clip}",
            "    args: {checkpoint: ./clip}\n    when: quoted",
        ),
    )
    lines = problem(marble("train", recipe_file), "rewards.align applies to none of the", "when: quoted", count=2)
    assert "training" in lines[0]
    assert "held-out" in lines[1]
    assert not list(workdir.iterdir())


def test_a_source_read_in_another_format_carries_no_metadata(recipe_file: Path, workdir: Path, marble: Marble) -> None:
    """The shipped geneval reward, by default applied always: as plain lines, and as Parquet without metadata."""
    lines = marble("train", recipe_file, "--set", "prompts.sources.geneval.format=lines")
    problem(lines, "rewards.geneval applies to none of the", "needs `include` in its metadata", count=2)
    for split in ("train", "heldout"):
        pq.write_table(pa.table({"prompt": ["a cat"] * 8}), workdir.parent / f"{split}.parquet")
    sets = ["prompts.sources.geneval.format=parquet"]
    sets += [f"prompts.sources.geneval.{split}=../{split}.parquet" for split in ("train", "heldout")]
    parquet = marble("train", recipe_file, *(part for text in sets for part in ("--set", text)))
    problem(parquet, "rewards.geneval applies to none of the", "needs `include` in its metadata", count=2)
    assert not list(workdir.iterdir())


BAD_EVALS = {
    "nothing there": (("none",), "none is neither a run directory nor a LoRA"),
    "a source without prompts": (("none", "--source", "zzz"), "--source zzz says what --prompts stands in for"),
    "a LoRA without a recipe": (("l.safetensors",), "name its base, prompts and rewards with --recipe"),
    "not a LoRA": (("l.safetensors", "--recipe", "RECIPE"), "l.safetensors is no readable safetensors file"),
}


@pytest.mark.parametrize(("args", "says"), BAD_EVALS.values(), ids=BAD_EVALS)
def test_eval_refuses(recipe_file: Path, workdir: Path, marble: Marble, args: tuple[str, ...], says: str) -> None:
    (workdir / "l.safetensors").write_bytes(b"no")
    problem(marble("eval", *(str(recipe_file) if arg == "RECIPE" else arg for arg in args)), says)


def test_eval_of_other_prompts(recipe_file: Path, workdir: Path, small_config: RunConfig) -> None:
    """The format follows the name, the source follows --source or is the only one of that format."""
    from deploy.evaluating import _other_prompts
    from learner.errors import UserError

    lines, meta = workdir / "p.txt", workdir / "p.jsonl"
    lines.write_text("one\ntwo\n")
    meta.write_text(GENEVAL_LINE)
    assert [p.prompt_id for p in _other_prompts(small_config, lines, None)] == ["general/0", "general/1"]
    assert _other_prompts(small_config, meta, None)[0].metadata["include"]
    assert _other_prompts(small_config, lines, "geneval")[0].source == "geneval"
    sources = small_config.prompts.sources
    two = small_config.model_copy(
        update={"prompts": small_config.prompts.model_copy(update={"sources": {**sources, "ocr": sources["general"]}})}
    )
    with pytest.raises(UserError, match="--source which of general, ocr"):
        _other_prompts(two, lines, None)
    with pytest.raises(UserError, match="--source orc: prompt sources are general, geneval"):
        _other_prompts(small_config, lines, "orc")
    with pytest.raises(UserError, match=r"wants one of \.txt, \.jsonl, \.parquet"):
        _other_prompts(small_config, workdir / "p.csv", None)
    with pytest.raises(UserError, match="is not a file"):
        _other_prompts(small_config, workdir / "none.txt", None)
