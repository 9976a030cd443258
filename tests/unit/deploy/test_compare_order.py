"""What a comparison is made of: rows, budgets, the recipes of its runs, tuning."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deploy_helpers import GENEVAL_LINE, edited

from actors.run_config import RunConfig
from deploy.compare import command, order, tuning
from deploy.compare.order import Asked
from deploy.compare.runs import RunSpec, make_spec
from deploy.compare.session import Session
from deploy.recipe import load_recipe, to_yaml
from learner.errors import UserError

OPTIONS = {
    "methods": None,
    "suite": "core",
    "seeds": None,
    "minutes": None,
    "iterations": None,
    "sweep": (),
    "more": (),
    "sets": (),
    "tuning_iterations": None,
    "lr_factors": "0.5,1,2",
    "probe_every": 5,
}


def asked(recipe: Path, **changes: object) -> Asked:
    return command.asked(recipe, **{**OPTIONS, **changes})  # type: ignore[arg-type]


def test_without_options_it_is_the_core_suite_for_ten_minutes_each(recipe_file: Path) -> None:
    found = asked(recipe_file)
    assert found.methods == ("marble", "weighted_sum", "uniform", "sequential")
    assert (found.seeds, found.minutes, found.iterations) == ((42, 43, 44), 10.0, None)
    assert (found.tuning_iterations, found.lr_factors) == (6, (0.5, 1.0, 2.0))


def test_spaces_beside_commas_are_none_of_a_name(recipe_file: Path) -> None:
    found = asked(recipe_file, methods="marble, uniform", seeds="1, 2", lr_factors="1, 2")
    assert (found.methods, found.seeds, found.lr_factors) == (("marble", "uniform"), (1, 2), (1.0, 2.0))


def test_a_sweep_takes_the_recipes_iterations_and_tunes_nothing(recipe_file: Path) -> None:
    found = asked(recipe_file, sweep=("refresh.n=1,2", "learner.kl_beta=0.1"))
    assert (found.methods, found.minutes, found.tuning_iterations) == ((), None, 0)
    rows = order.checked_rows(found)
    assert [row.name for row in rows] == [
        "refresh.n=1 learner.kl_beta=0.1",
        "refresh.n=2 learner.kl_beta=0.1",
    ]
    assert rows[1].slug == "refresh.n-2_learner.kl_beta-0.1"
    assert rows[1].data["harmonizer"]["refresh"]["n"] == 2, "a key without section is the harmonizer's"
    assert rows[1].data["learner"]["kl_beta"] == 0.1


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"more": ("x",)}, "x: unexpected; axes of a sweep stand behind --sweep"),
        ({"methods": "marble", "sweep": ("refresh.n=1",)}, "--sweep and --methods exclude each other"),
        ({"minutes": 1.0, "iterations": 2}, "--minutes and --iterations exclude each other"),
        ({"suite": "all"}, "--suite all: there are core, paper"),
        ({"seeds": "1,x"}, "--seeds 1,x: wants numbers with commas between them"),
        ({"seeds": "1,1"}, "--seeds 1,1: a number stands twice"),
        ({"lr_factors": "0"}, "--lr-factors 0: wants numbers with commas between them (0 is not above 0)"),
        ({"minutes": 1.0, "tuning_iterations": 0}, "--minutes needs tuning runs of 6 iterations at least"),
        ({"tuning_iterations": 5}, "--minutes needs tuning runs of 6 iterations at least"),
        ({"minutes": math.nan}, "--minutes nan: wants a number of minutes"),
        ({"minutes": math.inf}, "--minutes inf: wants a number of minutes"),
    ],
)
def test_options_that_do_not_go_together(recipe_file: Path, changes: dict[str, object], told: str) -> None:
    with pytest.raises(UserError) as caught:
        asked(recipe_file, **changes)
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize(
    ("sweep", "told"),
    [
        ("refresh.n", "--sweep refresh.n: wants key=value,value"),
        ("refresh.n=", "--sweep refresh.n=: wants key=value,value"),
        ("refresh.n=1,1", "refresh.n-1 would be compared with itself"),
        ("run.seed=1,2", r"--sweep run\.seed: run\.seed of every run is set by compare itself"),
        ("run.name=a,b", r"--sweep run\.name: run\.name of every run"),
        ("run={seed: 1}", r"--sweep run: run\.name of every run"),
        ("run.iterations=4,8", r"--sweep run\.iterations: run\.iterations of every run"),
        ("eval.prompts_per_source=1,2", r"--sweep eval\.prompts_per_source: eval of every run"),
        ("checkpoint.every=1,2", r"--sweep checkpoint\.every: checkpoint of every run"),
        ("learner.probe_every=1,2", r"--sweep learner\.probe_every: learner\.probe_every of every run"),
        ("refresh.n=1 harmonizer.refresh.n=2", r"--sweep harmonizer\.refresh\.n: harmonizer\.refresh\.n is an axis al"),
        ("refresh={n: 1} refresh.n=2", r"--sweep harmonizer\.refresh\.n: harmonizer\.refresh is an axis already"),
    ],
)
def test_sweeps_that_are_none(recipe_file: Path, sweep: str, told: str) -> None:
    axes = tuple(sweep.replace(": ", ":@").split(" "))
    with pytest.raises(UserError, match=told):
        order.checked_rows(asked(recipe_file, sweep=[axis.replace("@", " ") for axis in axes], iterations=8))


def test_a_sweep_may_vary_the_length_of_runs_and_pays_for_no_measurement(recipe_file: Path) -> None:
    found = asked(recipe_file, sweep=("run.iterations=4,8",))
    assert found.probe_every == 0
    assert [row.data["run"]["iterations"] for row in order.checked_rows(found)] == [4, 8]


def test_values_of_any_form_make_names_of_runs(recipe_file: Path) -> None:
    wanted = asked(recipe_file, sweep=("learner.eps=1e6", "learner.betas=[0.9]"), tuning_iterations=1, iterations=2)
    [row] = order.checked_rows(wanted)
    assert row.slug == "learner.eps-1e-06_learner.betas--0.9-"
    assert order.tuning_data(row, wanted, 1e7, {})["run"]["name"].endswith("-lr1e-07")


def test_an_unknown_key_is_told_before_anything_is_trained(recipe_file: Path, tmp_path: Path) -> None:
    """FAULTS 24: as by --set."""
    [row] = order.checked_rows(asked(recipe_file, sweep=("refresh.nn=1",)))
    with pytest.raises(UserError, match=r"harmonizer\.refresh\.nn: unknown key"):
        make_spec(tmp_path / "runs", "it", row.data)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seeds": "42,-1"}, "marble-seed-1: run.seed: should be greater than or equal to 0, got -1"),
        ({"iterations": 3}, "sequential: 4 stages do not fit into 3 iterations; give each run more"),
        (
            {"iterations": 9, "tuning_iterations": 3},
            "sequential: 4 stages do not fit into 3 iterations; give each run more",
        ),
        ({"lr_factors": "1,1e308", "sets": ("learner.lr=100.0",)}, "marble-lr1e+308: learner.lr: must be finite"),
        ({"sweep": ("run.tensorboard=7",)}, "run.tensorboard-7-seed42: run.tensorboard: should be a valid boolean"),
    ],
)
def test_what_a_run_would_be_refused_for_is_told_before_any_is_trained(
    recipe_file: Path, tmp_path: Path, changes: dict[str, object], told: str
) -> None:
    """And before anything is written."""
    folder = tmp_path / "compare"
    with pytest.raises(UserError) as caught:
        Session(asked(recipe_file, **changes), folder, Nobody(), lambda text: None).run()
    assert str(caught.value).startswith(told)
    assert not folder.exists()


class Nobody:
    """Trains nothing."""

    def make(self, specs: Sequence[RunSpec], made: Callable[[RunSpec], None], alone: bool = False) -> None:
        raise AssertionError(f"{len(specs)} runs were started")


def test_a_recipe_that_is_a_baseline_already_is_refused(recipe_file: Path) -> None:
    path = edited(recipe_file, ("learner:\n", "learner:\n  objective: weighted_sum\n"))
    with pytest.raises(UserError, match="compare starts from a recipe with a gradient per reward and without stages"):
        order.checked_rows(asked(path))


def test_a_file_beside_the_recipe_is_the_method_as_its_owner_wants_it(recipe_file: Path) -> None:
    own = recipe_file.with_name("small_uniform.yaml")
    own.write_text("base: small.yaml\nharmonizer: {method: fixed, fixed: {align: 0.9, geneval: 0.1}}\n")
    [row] = order.checked_rows(asked(recipe_file, methods="uniform"))
    assert row.data["harmonizer"]["method"] == "fixed"


def test_main_runs_differ_in_seed_name_budget_and_method_only(recipe_file: Path, tmp_path: Path) -> None:
    """The same prompts and images for every method: what decides them is equal."""
    wanted = asked(recipe_file)
    configs: list[RunConfig] = []
    for row in order.checked_rows(wanted):
        data = order.main_data(row, wanted, 43, 8, 5e-4)
        configs.append(make_spec(tmp_path / "runs", row.slug, data).recipe.config)
    for config in configs:
        assert (config.run.seed, config.run.iterations, config.learner.lr) == (43, 8, 5e-4)
        assert (config.checkpoint.every, config.learner.probe_every) == (1, 5)
        for section in ("policy", "sampling", "eval_sampling", "prompts", "rewards", "eval"):
            assert getattr(config, section) == getattr(configs[0], section), section
    stages = configs[3].learner.stages
    assert sum(stage.iterations for stage in stages) == 8
    assert [stage.rewards for stage in stages] == [("align",), ("geneval",), ("align",), ("geneval",)]
    assert configs[1].gradient_names == ("weighted_sum",)


def test_tuning_sees_other_prompts_than_the_tables(recipe_file: Path, tmp_path: Path) -> None:
    wanted = asked(recipe_file)
    config = load_recipe(recipe_file).config
    files = tuning.split_prompts(config, tmp_path / "prompts", 2)
    train, aside = (Path(files["general"][split]).read_text().splitlines() for split in ("train", "heldout"))
    assert (train, aside) == ([f"a thing number {i}" for i in range(6)], ["a thing number 6", "a thing number 7"])
    [row, *_] = order.checked_rows(wanted)
    data = order.tuning_data(row, wanted, 2.0, files)
    tuned = make_spec(tmp_path / "tuning", "it", data).recipe.config
    assert tuned.learner.lr == pytest.approx(2e-3)
    assert tuned.run.seed not in wanted.seeds
    assert tuned.learner.probe_every == 0, "peak memory is read off these runs"
    for name, source in tuned.prompts.sources.items():
        assert (source.train, source.heldout) == (files[name]["train"], files[name]["heldout"])
        assert source.format == config.prompts.sources[name].format


def test_prompts_of_some_tags_are_split_among_themselves(recipe_file: Path, tmp_path: Path) -> None:
    lines = [GENEVAL_LINE.replace("single_object", "ab"[i % 2]).replace("a red circle", f"p{i}") for i in range(8)]
    (recipe_file.parent / "geneval_train.jsonl").write_text("".join(lines))
    path = edited(recipe_file, ("format: geneval}", "format: geneval, tags: [b]}"))
    (recipe_file.parent / "geneval_heldout.jsonl").write_text("".join(lines))
    files = tuning.split_prompts(load_recipe(path).config, tmp_path / "prompts", 2)
    aside = Path(files["geneval"]["heldout"]).read_text().splitlines()
    assert len(aside) == 1, "a third of four"
    assert '"p7"' in aside[0]


def of_tables(recipe_file: Path, table: pa.Table, more: str = "") -> Path:
    """The recipe with this table as both parts of its source `general`."""
    for split in ("train", "heldout"):
        pq.write_table(table, recipe_file.parent / f"general_{split}.parquet")
    return edited(
        recipe_file,
        (
            "./general_train.txt, heldout: ./general_heldout.txt",
            f"./general_train.parquet, heldout: ./general_heldout.parquet, format: parquet{more}",
        ),
    )


def test_tables_of_prompts_are_split_too(recipe_file: Path, tmp_path: Path) -> None:
    path = of_tables(recipe_file, pa.table({"prompt": [f"p{i}" for i in range(9)]}))
    files = tuning.split_prompts(load_recipe(path).config, tmp_path / "prompts", 4)
    assert pq.read_table(files["general"]["heldout"])["prompt"].to_pylist() == ["p6", "p7", "p8"]


def test_tagged_prompts_of_a_table_are_split_among_themselves(recipe_file: Path, tmp_path: Path) -> None:
    notes = [f'{{"tag": "{"ab"[i % 2]}"}}' for i in range(12)]
    table = pa.table({"prompt": [f"p{i}" for i in range(12)], "metadata": notes})
    path = of_tables(recipe_file, table, ", tags: [b]")
    files = tuning.split_prompts(load_recipe(path).config, tmp_path / "prompts", 4)
    assert pq.read_table(files["general"]["heldout"])["prompt"].to_pylist() == ["p9", "p11"]
    assert pq.read_table(files["general"]["train"])["prompt"].to_pylist() == ["p1", "p3", "p5", "p7"]


def test_too_few_prompts_to_tune_by(recipe_file: Path, tmp_path: Path) -> None:
    (recipe_file.parent / "general_train.txt").write_text("one\ntwo\n")
    with pytest.raises(UserError, match="prompt source general has 2 training prompts; tuning needs three at least"):
        tuning.split_prompts(load_recipe(recipe_file).config, tmp_path / "prompts", 4)


@pytest.mark.parametrize(
    ("gains", "best"),
    [
        ({0.5: 0.1, 1.0: 0.3, 2.0: 0.2}, 1.0),
        ({0.5: 0.3, 1.0: 0.3, 2.0: 0.3}, 1.0),
        ({0.5: 0.3, 2.0: math.nan}, 0.5),
        ({0.5: math.nan, 1.0: math.nan}, 1.0),
        ({0.25: -0.1, 4.0: -0.2}, 0.25),
    ],
)
def test_the_best_learning_rate(gains: dict[float, float], best: float) -> None:
    """Of equals the one nearest to the recipe's own; a run of which nothing is known is not chosen before others."""
    assert tuning.best_factor(gains) == best


def test_a_run_of_another_recipe_is_not_gone_on_with(recipe_file: Path, tmp_path: Path) -> None:
    [row, *_] = order.checked_rows(asked(recipe_file))
    spec = make_spec(tmp_path / "runs", "it", order.main_data(row, asked(recipe_file), 42, 4, 1e-3))
    spec.run_dir.path.mkdir()
    spec.run_dir.config.write_text(to_yaml(spec.recipe))
    with pytest.raises(UserError, match=r"holds a run of another recipe: learner\.lr was 0\.001, is now 0\.002"):
        make_spec(tmp_path / "runs", "it", order.main_data(row, asked(recipe_file), 42, 4, 2e-3))
