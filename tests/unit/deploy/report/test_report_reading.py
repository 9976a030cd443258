"""Run directories as the report finds them: what the run's own writers left, and what somebody broke since."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, PngImagePlugin

from deploy.report import pictures
from deploy.report.numbers.arrays import samples_of, steps_of
from deploy.report.numbers.run import numbers_of, plain
from deploy.report.reading import RunRecord, read_record
from deploy.rundir import RunDir
from tests.unit.deploy.report.made_run import NAMES, write_run


def record(folder: Path) -> RunRecord:
    return read_record(RunDir(folder), folder.name)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "tiny")


def test_a_whole_run_is_read_without_a_word(run: Path) -> None:
    found = record(run)
    assert found.missing == ()
    assert found.names == NAMES
    assert found.samples is not None
    assert found.samples.scores_KN.shape == (2, 24)
    assert found.samples.scores_KN[0, 8:10].tolist() == pytest.approx([0.2, 0.3])
    assert np.isnan(found.samples.scores_KN[1, [0, 7]]).all()
    assert found.samples.states_KN[1, :8].tolist() == [1, 1, 1, 1, 0, 0, 0, 2]
    assert found.samples.reasons == ((1, 7, "out of <ink>"), (1, 15, "out of <ink>"), (1, 23, "out of <ink>"))
    assert found.steps is not None
    assert found.steps.step_U.tolist() == [0, 1, 2, 3, 4, 5]
    assert found.steps.solved_U.tolist() == [True, False] * 3
    assert found.steps.cosines_UJJ[0].tolist() == [[1.0, -0.25], [-0.25, 1.0]]
    assert np.isnan(found.steps.cosines_UJJ[1]).all()
    assert [(one.done, sorted(one.scores)) for one in found.evaluations] == [(0, list(NAMES)), (3, list(NAMES))]
    assert [(one.done, len(one.pictures)) for one in found.pictures] == [(0, 3), (3, 3)]


def test_the_numbers_of_a_whole_run(run: Path) -> None:
    found = numbers_of(record(run))
    align, text = found.results
    assert (align.before, align.after, align.n) == (pytest.approx(0.6), pytest.approx(0.8), 3)
    assert align.se == pytest.approx(0.1 / np.sqrt(3))
    assert (text.n, text.failed) == (1, 0)
    assert found.gradients is not None
    assert found.gradients.weights.values[:, 0].tolist() == [0.75, 0.25]
    assert found.gradients.alpha_star.values[:, 0].tolist() == [0.25, 0.75]
    assert (found.gradients.conflict.known, found.gradients.conflict.share) == (3, 0.0)
    assert found.gradients.sum_conflict.share == 1.0
    assert found.gradients.failures.skipped == (("no reward has signal", 1),)
    assert found.samples is not None
    assert found.samples.training["align"].mean.tolist() == pytest.approx([0.25, 0.3, 0.35])
    assert (found.samples.failures[1].failed, found.samples.failures[1].applicable) == (3, 12)
    assert found.times.wall_s == 22.0
    assert plain(found)["results"][0]["n"] == 3


def test_a_broken_part_is_left_out_alone_and_named(run: Path) -> None:
    (run / "ledger" / "steps-000001.parquet").write_bytes(b"PAR1")
    pq.write_table(pa.table({"iteration": [2]}), run / "ledger" / "samples-000002.parquet")
    found = record(run)
    assert found.steps is not None
    assert found.steps.iteration_U.tolist() == [0, 0, 2, 2]
    assert found.samples is not None
    assert sorted(set(found.samples.iteration_N.tolist())) == [0, 1]
    assert len(found.missing) == 2
    assert found.missing[0].startswith("ledger/samples-000002.parquet cannot be read (no column source")
    assert found.missing[1].startswith("ledger/steps-000001.parquet cannot be read (")


def test_many_broken_parts_are_named_up_to_five_and_counted(run: Path) -> None:
    for index in range(10, 18):
        (run / "ledger" / f"steps-{index:06d}.parquet").write_bytes(b"")
    missing = record(run).missing
    assert len(missing) == 6
    assert missing[-1] == "and 3 more parts of ledger/steps"


def test_a_broken_recipe_leaves_the_ledgers_rewards(run: Path) -> None:
    (run / "config.yaml").write_text("run: [\n")
    found = record(run)
    assert found.names == NAMES
    assert found.samples is not None
    assert len(found.missing) == 1
    assert found.missing[0].startswith("config.yaml cannot be read (")
    assert "\n" not in found.missing[0]


def test_damaged_lines_are_left_out_and_half_a_last_line_is_nothing_to_tell(run: Path) -> None:
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "nonsense", "[1]", *lines[1:], '{"event": "iter']))
    found = record(run)
    assert len(found.events) == len(lines)
    assert [line[:30] for line in found.missing] == ["metrics.jsonl, line 2 is left ", "metrics.jsonl, line 3 is left "]


def test_a_run_that_has_only_begun_says_what_it_lacks(tmp_path: Path) -> None:
    folder = tmp_path / "begun"
    folder.mkdir()
    (folder / "config.yaml").write_text("run: {name: begun, seed: 1, iterations: 3}\nrewards: {align: {}}\n")
    found = record(folder)
    assert (found.samples, found.steps, found.evaluations, found.pictures) == (None, None, (), ())
    assert found.missing == (
        "the ledger has no samples yet",
        "the ledger has no steps yet",
        "no evaluation on held-out prompts can be read",
        "metrics.jsonl cannot be read (no such file or directory)",
        "launches.jsonl cannot be read (no such file or directory)",
    )
    assert numbers_of(found).samples is None


# -- columns ----------------------------------------------------------------------------------------------------------


def step_table(**columns: object) -> pa.Table:
    return pa.table({"iteration": [0], "step": [0], "solved": [True], "applied": [True], **columns})


def test_numbers_that_are_not_finite_are_not_known() -> None:
    found = steps_of(step_table(kl=[float("inf")], norm_a=[None], weight_a=pa.array([None], pa.float64())), ["a"])
    assert np.isnan(found.numbers["kl"]).all()
    assert np.isnan(found.by_reward["norm"]).all()


def test_cosines_under_their_older_name_and_of_another_size() -> None:
    assert steps_of(step_table(cosine_matrix=[[1.0]]), ["a"]).cosines_UJJ.tolist() == [[[1.0]]]
    assert np.isnan(steps_of(step_table(pairwise_cosines=[[1.0, 0.5]]), ["a"]).cosines_UJJ).all()
    # A reward named matrix has a column of that name, of single cosines.
    assert np.isnan(steps_of(step_table(cosine_matrix=[0.5]), ["matrix"]).cosines_UJJ).all()


@pytest.mark.parametrize(
    ("columns", "said"),
    [({"score_a": ["high"]}, "score_a holds text"), ({"state_a": [None]}, "state_a"), ({"source": [[1]]}, "source")],
)
def test_columns_of_another_type_are_refused(columns: dict[str, list[object]], said: str) -> None:
    good: dict[str, object] = {"iteration": [0], "source": ["plain"], "prompt_id": ["plain/0"], "state_a": [0]}
    with pytest.raises(ValueError, match=said):
        samples_of(pa.table({**good, **columns}), ["a"])


# -- pictures ---------------------------------------------------------------------------------------------------------


def test_pictures_outside_their_folder_and_broken_ones_are_left_out(run: Path) -> None:
    index = run / "samples" / "000000" / "samples.json"
    index.write_text(index.read_text().replace('"plain-0.png"', '"../../config.yaml"'))
    (run / "samples" / "000003" / "plain-1.png").write_bytes(b"no picture")
    sets, problems = pictures.read_pictures(run / "samples")
    assert [(one.done, len(one.pictures)) for one in sets] == [(3, 2)]
    assert "a file outside the folder" in problems[0]
    assert problems[1].startswith("samples/000003/plain-1.png cannot be read (")


def test_large_pictures_become_smaller_and_no_text_of_the_file_goes_with_them(tmp_path: Path) -> None:
    note = PngImagePlugin.PngInfo()
    note.add_text("run", "secret name")
    Image.new("RGB", (8, 8), (255, 0, 0)).save(tmp_path / "small.png", pnginfo=note)
    Image.new("RGB", (800, 400)).save(tmp_path / "large.png")
    plain_uri, noted_uri = tmp_path / "plain.png", tmp_path / "small.png"
    Image.new("RGB", (8, 8), (255, 0, 0)).save(plain_uri)
    assert pictures.data_uri(noted_uri) == pictures.data_uri(plain_uri)
    assert pictures.data_uri(noted_uri).startswith("data:image/png;base64,")
    assert pictures.data_uri(tmp_path / "large.png").startswith("data:image/webp;base64,")
    assert pictures.data_uri(tmp_path / "large.png", 1024).startswith("data:image/png;base64,")
