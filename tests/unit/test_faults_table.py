"""Every row of the faults table names a test that exists, or the part that is not built yet."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NUM_ROWS = 32


def rows() -> dict[int, str]:
    """Row number -> what tests/FAULTS.md says of it."""
    text = (ROOT / "tests" / "FAULTS.md").read_text(encoding="utf-8")
    return {int(m[1]): m[2] for m in re.finditer(r"^\|\s*(\d+)\s*\|(.*)\|\s*$", text, re.MULTILINE)}


def test_no_row_is_missing() -> None:
    assert sorted(rows()) == list(range(1, NUM_ROWS + 1))


def test_each_row_points_at_a_test_that_exists_or_is_open_by_name() -> None:
    for number, said in rows().items():
        tests = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", said)
        assert tests or re.search(r"open: \w+", said), f"row {number} names neither a test nor an open part"
        for file, name in tests:
            path = ROOT / file
            assert path.exists(), f"row {number}: {file} does not exist"
            source = path.read_text(encoding="utf-8")
            assert f"def {name}(" in source, f"row {number}: {file} has no {name}"
