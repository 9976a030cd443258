"""Reports of runs that are not plain MARBLE: a weighted sum, stages, measured conflicts, alarms, Flow-GRPO."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deploy_helpers import Marble

from deploy.report.method import method, shares
from tests.unit.deploy.report.made_run import Kind, write_run

STAGED = Kind(summed=True, stages=(("align", 2), ("text", 1)))


def page(marble: Marble, *runs: Path) -> str:
    """The page of these runs, without its plots' own texts."""
    ran = marble("report", *runs, "--out", "page.html")
    assert (ran.code, ran.err) == (0, "")
    return Path("page.html").read_text()


def numbers(marble: Marble, run: Path) -> dict[str, Any]:
    (one,) = json.loads(marble("report", run, "--json").out)["runs"]
    found: dict[str, Any] = one
    return found


def plots(text: str) -> list[str]:
    """Titles of the page's plots."""
    return re.findall(r"<figure><figcaption>(.*?)(?:<small>.*?)?</figcaption><svg", text)


def test_a_weighted_sum_has_its_recipes_weights_and_no_plot_of_gradients_it_never_took(
    workdir: Path, marble: Marble
) -> None:
    weights = {"learner.weights": {"align": 3.0, "text": 1.0}}
    run = write_run(workdir / "sum", kind=Kind(summed=True), changes=weights)
    text = page(marble, run)
    assert 'scope="row">align</th><td>75.0%</td>' in text
    assert 'scope="row">text</th><td>25.0%</td>' in text
    assert not {"Applied weights", "Smoothed weights ᾱ", "Worst cosine of any reward"} & set(plots(text))
    assert "This run takes one gradient" in text
    assert "known on solving steps, of which this run has none" in text
    assert 'class="missing"' not in text
    assert "<td>weighted_sum</td>" in text
    one = numbers(marble, run)
    assert one["gradients"]["names"] == ["weighted_sum"]
    assert one["gradients"]["weights"]["values"] == [[1.0] * 6]
    assert one["rewards"] == ["align", "text"]


def test_stages_are_told_with_what_each_left_of_every_reward(workdir: Path, marble: Marble) -> None:
    run = write_run(workdir / "sequence", kind=STAGED)
    text = page(marble, run)
    assert "weighted_sum in 2 stages" in text
    assert "the weighted mean of its rewards that the stage trains." in text
    row = r'scope="row">1\. align</th><td>1 to 2</td><td class="trained">([\d.]+)</td><td>([\d.]+)</td>'
    found = re.search(row, text)
    assert found
    assert [float(x) for x in found.groups()] == [0.64, 0.5]  # 0.6 at first, 0.02 · mean(1, 2, 3) more
    assert 'scope="row">2. text</th><td>3</td><td>0.8000</td><td class="trained">0.5000</td>' in text
    training = numbers(marble, run)["samples"]["training"]
    assert (training["align"]["x"], training["text"]["x"]) == ([1, 2], [3])
    # The third iteration scores signs only, so there is nothing to show of its other source.
    assert [one for one in plots(text) if "iteration" in one and "," in one] == [
        "plain, iteration 1",
        "signs, iteration 1",
        "signs, iteration 3",
    ]


def test_measured_steps_are_counted_against_the_same_and_the_next_batch(workdir: Path, marble: Marble) -> None:
    run = write_run(workdir / "measured", kind=Kind(measured=True))
    found = numbers(marble, run)["conflicts"]
    first = {key: found["rows"][0][key] for key in ("vector", "steps")}
    assert first == {"vector": "direction", "steps": "all"}
    same, after = found["rows"][0]["same"], found["rows"][0]["next"]
    assert (same["windows"], same["opposing"], same["mean_worst"]) == (3, 0.0, pytest.approx((0.3 + 0.2 + 0.2) / 3))
    assert (after["windows"], after["opposing"], after["worst"]) == (2, 1.0, -0.1)
    solving, between = found["rows"][1:3]
    assert (solving["steps"], solving["same"]["windows"], solving["next"]["windows"]) == ("solving", 2, 1)
    assert (between["steps"], between["same"]["windows"], between["next"]["windows"]) == ("between solves", 1, 1)
    align, text_ = found["rewards"]
    assert (align["same"]["windows"], align["next"]["opposing"], align["next"]["mean"]) == (3, 0.0, 0.5)
    assert (text_["same"]["windows"], text_["next"]["opposing"], text_["next"]["mean"]) == (2, 1.0, -0.1)
    text = page(marble, run)
    assert "<b>0.0%, 100.0%</b><span>of 3 measured steps opposed some reward" in text
    assert "Cosine with each reward on the next batch" in plots(text)


def test_the_time_of_measurements_is_a_part_of_its_own(workdir: Path, marble: Marble) -> None:
    found = numbers(marble, write_run(workdir / "measured", kind=Kind(measured=True)))["times"]
    went = {part["what"]: part["seconds"] for part in found["went"]}
    assert went["probe"] == 1.5
    assert sum(went.values()) == pytest.approx(found["wall_s"])
    assert {part["what"]: part["seconds"] for part in found["lost"]}["slow iterations"] == 0.0


def test_conflicts_of_several_runs_stand_side_by_side(workdir: Path, marble: Marble) -> None:
    first = write_run(workdir / "measured", kind=Kind(measured=True))
    other = write_run(workdir / "sum", kind=Kind(summed=True, measured=True))
    text = page(marble, first, other)
    cells = "<td>0.0%</td><td>100.0%</td><td>+0.233</td><td>\N{MINUS SIGN}0.100</td><td>3</td>"
    assert f'scope="row">measured</th>{cells}' in text
    assert f'scope="row">sum</th>{cells}' in text


def test_alarms_and_held_out_rewards_are_not_to_be_missed(workdir: Path, marble: Marble) -> None:
    text = page(marble, write_run(workdir / "hacked", kind=Kind(alarmed=True)))
    alarm = (
        "Reward hacking? After 3 iterations taste, held out, had fallen by 0.4 (s.e. 0.05) since the base while the "
        "training rewards rose by 0.7 (s.e. 0.1) standard deviations of the base."
    )
    assert f'<ul class="missing"><li>{alarm}</li></ul>' in text
    assert "<b>1</b><span>alarms of reward hacking</span>" in text
    assert 'scope="row">taste *</th>' in text
    plot = text.split("<figcaption>taste *</figcaption>")[1].split("</svg>")[0]
    assert ">held out<" in plot
    assert ">training<" not in plot


def test_flow_grpo_shows_its_clipped_ratios_of_later_updates(workdir: Path, marble: Marble) -> None:
    run = write_run(workdir / "grpo", kind=Kind(flow_grpo=True))
    text = page(marble, run)
    assert {"Share of cells outside the clipped range", "KL of a step to the base"} <= set(plots(text))
    assert "<td>flow_grpo, min_norm</td>" in text
    gradients = numbers(marble, run)["gradients"]
    assert (gradients["clip_fraction"]["step"], gradients["clip_fraction"]["values"]) == ([1, 3, 5], [0.3] * 3)
    assert "Clipped ratios" not in page(marble, write_run(workdir / "nft"))


def test_runs_of_every_kind_share_a_page(workdir: Path, marble: Marble) -> None:
    kinds = (Kind(), replace(STAGED, measured=True), Kind(flow_grpo=True, alarmed=True))
    text = page(marble, *(write_run(workdir / f"run{n}", kind=kind) for n, kind in enumerate(kinds)))
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))


def test_a_method_is_told_in_a_few_words_whatever_a_recipe_holds() -> None:
    summed = {"objective": "weighted_sum"}
    assert method({"harmonizer": {"method": "min_norm"}}) == "min_norm"
    assert method({"learner": summed, "harmonizer": {"method": "weighted_gradients"}}) == "weighted_sum"
    single = {**summed, "stages": [{"rewards": ["ocr"], "iterations": 9}]}
    assert method({"learner": single}) == "weighted_sum of ocr"
    assert method({"learner": {**summed, "stages": [{"rewards": "ocr"}]}}) == "weighted_sum"
    assert (method({}), method({"learner": [], "harmonizer": "x"})) == ("", "")
    assert shares({}, ["a", "b"]) == {"a": 0.5, "b": 0.5}
    assert shares({"learner": {"weights": {"a": 1}}}, ["a", "b"]) == {}
    assert shares({"learner": {"weights": {"a": 0, "b": "x"}}}, ["a", "b"]) == {}
