"""The figures of a pool, and the file through which `marble status` gets them."""

import json
from pathlib import Path

import pytest

from actors.pool_stats import NAME, PoolMeter, PoolState, drop_pools, percentile, read_pools, write_pools

STATE = PoolState(2, 3, 7, 2, 640, 12.5, 3, 1, 0.05, 0.09)


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(i) for i in range(1, 101)]
    assert (percentile(values, 0.5), percentile(values, 0.95)) == (50.0, 95.0)
    assert percentile([3.0], 0.95) == 3.0
    assert percentile([], 0.5) is None


def test_the_rate_is_that_of_the_last_minute() -> None:
    meter = PoolMeter()
    assert meter.images_per_s(100.0) == 0.0
    meter.began(100.0)
    meter.settled(110.0, 40, 1)
    assert meter.images_per_s(110.0) == 4.0, "ten seconds so far"
    meter.settled(165.0, 60, 0)
    assert meter.images_per_s(165.0) == pytest.approx(100 / 60)
    assert meter.images_per_s(171.0) == pytest.approx(60 / 60), "the first forty are too long ago"
    assert (meter.images, meter.failed) == (100, 1)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_pools(tmp_path, {"ocr": STATE})
    assert read_pools(tmp_path) == {"ocr": STATE}


GOOD = json.dumps({"time": 1.0, "pools": {"ocr": vars(STATE)}})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        '{"pools": 3}',
        '{"pools": {"ocr": {"replicas": 1}}}',
        GOOD.replace("12.5", '"fast"'),
        GOOD.replace("12.5", "[1]"),
        GOOD.replace("640", "null"),
        GOOD.replace("0.09", '"0.09"'),
    ],
)
def test_a_file_that_cannot_be_read_is_no_pools(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text)
    assert read_pools(tmp_path) == {}


def test_no_file_is_no_pools(tmp_path: Path) -> None:
    assert read_pools(tmp_path) == {}


def test_figures_of_an_earlier_life_are_dropped(tmp_path: Path) -> None:
    drop_pools(tmp_path)
    write_pools(tmp_path, {"ocr": STATE})
    drop_pools(tmp_path)
    assert read_pools(tmp_path) == {}
