"""`marble report`: the page, its numbers, and what it refuses."""

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from deploy_helpers import Marble, problem, tree

from deploy.report.drawing import style
from deploy.report.drawing.lines import together
from deploy.report.drawing.maps import cosines
from deploy.report.naming import labels
from deploy.report.numbers.gradients import Series, Snapshot
from deploy.report.page import GENERATOR
from tests.unit.deploy.report.made_run import write_run


class Page(HTMLParser):
    """What of a page the tests ask for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture
def run(workdir: Path) -> Path:
    return write_run(workdir / "runs" / "tiny")


def test_the_page_of_one_run_lies_in_it_and_is_all_there_is(run: Path, marble: Marble) -> None:
    before = tree(run)
    ran = marble("report", run)
    assert (ran.code, ran.out, ran.err) == (0, f"{run / 'report.html'}\n", "")
    text = (run / "report.html").read_text()
    assert {k: v for k, v in tree(run).items() if k != "report.html"} == before
    assert "://" not in text
    assert not re.search(r'(src|href)="(?!data:|#)', text)
    page = Page(text)
    assert page.all("script") == []
    pictures = page.all("img")
    assert len(pictures) == 6
    assert all(picture["alt"] and (picture["src"] or "").startswith("data:image/png") for picture in pictures)
    plots = page.all("svg")
    assert len(plots) >= 12
    assert all(plot["role"] == "img" and plot["aria-label"] for plot in plots)
    for title in ("Held-out results", "Scores", "Pictures", "Weights", "Gradient cosines", "Specialist samples"):
        assert f">{title}</h2>" in text
    for title in ("Gradient norms", "KL to the base", "Time", "Failures", "Recipe", "Versions"):
        assert f">{title}</h2>" in text
    assert 'class="missing"' not in text
    # Prompts and reasons are anyone's to write: they are text and never markup.
    assert "a &lt;b&gt;bold&lt;/b&gt; circle &amp; more" in text
    assert "<b>bold" not in text
    assert "out of &lt;ink&gt;" in text


def test_no_two_elements_share_an_id_and_every_reference_finds_its_own(run: Path, marble: Marble) -> None:
    other = write_run(run.parent / "other", seed=2, shift=0.1)
    assert marble("report", run, other, "--out", "both.html").code == 0
    text = Path("both.html").read_text()
    ids = [attributes["id"] for _, attributes in Page(text).tags if attributes.get("id")]
    assert len(ids) == len(set(ids))
    references = set(re.findall(r'(?:href="|url\()#([^")]+)', text))
    assert references
    assert references <= set(ids)


def test_a_page_is_written_again_and_nothing_else_ever_is(run: Path, marble: Marble) -> None:
    (run / "report.html").write_text(f'<meta name="generator" content="{GENERATOR}">\nan older one')
    assert marble("report", run).code == 0
    assert "an older one" not in (run / "report.html").read_text()
    (run / "report.html").write_text("<p>notes of mine</p>")
    problem(marble("report", run), "exists and is no report of ours")
    assert (run / "report.html").read_text() == "<p>notes of mine</p>"
    problem(marble("report", run, "--out", run / "config.yaml"), "a report is an .html file")


def test_several_runs_stand_side_by_side_with_seeds_of_a_recipe_as_one_line(run: Path, marble: Marble) -> None:
    second = write_run(run.parent / "tiny-seed2", seed=2, shift=0.1)
    third = write_run(run.parent / "fixed", shift=0.2, changes={"harmonizer.method": "fixed"})
    ran = marble("report", run, second, third)
    assert ran.out == f"{Path.cwd() / 'report.html'}\n"
    text = Path("report.html").read_text()
    assert "tiny (2 seeds)" in text
    heads = '<th scope="col">key</th><th scope="col">tiny (2 seeds)</th><th scope="col">fixed</th>'
    assert f'aria-label="Where the recipes differ">\n<thead><tr>{heads}' in text
    assert 'scope="row">harmonizer.method</th><td>min_norm</td><td>fixed</td>' in text
    assert 'scope="row">run.seed' not in text
    # Over seeds, (0.8 + 1.0) / 2; of one run, 0.6 + 2 · 0.3 and the error of the differences 0.3, 0.6 and 0.9.
    assert ">0.9000<small>± 0.1000</small></td>" in text
    assert '<td class="good">1.2000<small>± 0.1732</small></td>' in text
    assert text.count(">Held-out results</h3>") == 3
    # One base for all, as its pictures are the same, and one column for each recipe; three prompts.
    assert len(Page(text).all("img")) == 3 * 3
    assert "Of several seeds of a recipe, the first is shown." in text
    folder = marble("report", run.parent, "--json")
    assert {one["run"] for one in json.loads(folder.out)["runs"]} == {"tiny", "tiny-seed2", "fixed"}


def test_a_long_table_of_differences_is_folded_away(run: Path, marble: Marble) -> None:
    keys = {f"harmonizer.key{n}": n for n in range(13)}
    many = write_run(run.parent / "many", changes=keys)
    assert marble("report", run, many, "--out", "page.html").code == 0
    text = Path("page.html").read_text()
    assert "<details><summary>Where the recipes differ, 13 keys</summary>" in text
    assert 'scope="row">harmonizer.key12</th><td>-</td><td>12</td>' in text
    few = write_run(run.parent / "few", changes=dict(list(keys.items())[1:]))
    assert marble("report", run, few, "--out", "page.html").code == 0
    assert '<p class="caption">Where the recipes differ</p>' in Path("page.html").read_text()


def test_seeds_alone_are_all_shown_and_a_comparison_stands_for_its_runs(run: Path, marble: Marble) -> None:
    folder = run.parent / "compared"
    for seed in (1, 2):
        write_run(folder / "runs" / f"marble-seed{seed}", seed=seed, shift=0.1 * seed)
    write_run(folder / "tuning" / "marble-lr1")
    (folder / "compare.json").write_text("{}")
    assert marble("report", folder, "--out", "page.html").code == 0
    text = Path("page.html").read_text()
    assert len(Page(text).all("img")) == 3 * 3
    assert "marble (2 seeds)" in text
    assert "marble-lr1" not in text


def test_json_gives_the_numbers_and_writes_nothing(run: Path, marble: Marble) -> None:
    before = tree(run)
    ran = marble("report", run, "--json")
    data = json.loads(ran.out)
    assert tree(run) == before
    (one,) = data["runs"]
    assert (one["run"], one["state"], one["done"], one["missing"]) == ("tiny", "finished", 3, [])
    assert one["results"][0]["difference"] == pytest.approx(0.2)
    assert one["results"][1]["se"] is None
    assert one["gradients"]["snapshots"][0]["cosines"] == [[1.0, -0.25], [-0.25, 1.0]]
    assert one["samples"]["training"]["align"]["mean"] == pytest.approx([0.25, 0.3, 0.35])
    assert one["recipe"]["run"]["iterations"] == 3
    problem(marble("report", run, "--json", "--out", "x.html"), "leave out one of --json and --out")
    assert not Path("x.html").exists()


def test_no_run_and_no_place_are_one_line(run: Path, marble: Marble) -> None:
    problem(marble("report", "runs/nothing"), "runs/nothing is neither a run directory nor a folder of runs")
    problem(marble("report", run, "--out", run / "config.yaml" / "x.html"), "is not a folder that can be written to")


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        (
            ["samples", "launches.jsonl", "metrics.jsonl"],
            [
                "No pictures: the run has not been evaluated yet",
                "launches.jsonl holds no start of this run.",
                "Metrics.jsonl cannot be read (no such file or directory).",
            ],
        ),
        (["ledger"], ["The ledger has no samples yet.", "The ledger holds no optimizer step of this run."]),
        (
            ["samples", "ledger", "evaluations", "metrics.jsonl", "launches.jsonl"],
            ["No evaluation on held-out prompts can be read.", "No score of any run can be read."],
        ),
    ],
)
def test_what_is_gone_is_said_and_the_rest_is_shown(
    run: Path, marble: Marble, gone: list[str], said: list[str]
) -> None:
    for name in gone:
        path = run / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    ran = marble("report", run)
    assert (ran.code, ran.err) == (0, "")
    text = (run / "report.html").read_text()
    assert [line for line in said if line not in text] == []


def test_runs_of_one_name_are_told_apart_by_as_many_folders_as_it_takes() -> None:
    paths = [Path("/x/a/tiny"), Path("/y/a/tiny"), Path("/x/b/tiny"), Path("/x/other")]
    assert labels(paths) == ["x/a/tiny", "y/a/tiny", "b/tiny", "other"]


# -- drawing ----------------------------------------------------------------------------------------------------------


def test_a_plot_says_in_words_what_it_shows() -> None:
    values = np.array([[1.0, -0.4, np.nan], [-0.4, 1.0, 0.7], [np.nan, 0.7, 1.0]])
    drawing = cosines("First solve", ["a", "b", "c"], Snapshot(0, 0, values), "x")
    assert drawing.alt.endswith("Lowest -0.40 (a and b), highest 0.70 (b and c).")
    assert drawing.svg.count("\N{MINUS SIGN}0.40") == 2
    series = Series(np.array([0, 10]), np.array([0.25, 0.5]))
    assert together("Norm", [("step", series)], "y", unit="norm").alt == "Norm, first and last value: step 0.25 to 0.5."


def test_names_that_matplotlib_would_read_as_its_own_are_drawn_as_they_are() -> None:
    series = Series(np.array([0, 10]), np.array([0.25, 0.5]))
    names = ["_first", "a$b^c$", "名前", "bell\a\ud800"]
    svg = together("Norm", [(name, series) for name in names], "z", unit="norm").svg
    for name in (*names[:3], "bell\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"):
        assert f">{name}<" in svg.replace("\N{ZERO WIDTH SPACE}", "")


def test_lines_differ_in_colour_or_stroke_and_long_names_are_cut_in_their_middle() -> None:
    looks = [style.look(index) for index in range(21)]
    assert len(set(looks)) == 21
    assert style.label("x" * 50 + "end").endswith("end")
    assert len(style.label("x" * 100)) == style.MAX_LABEL
    assert (style.legend_columns(["ab", "cd"]), style.legend_columns(["x" * 30])) == (3, 1)
