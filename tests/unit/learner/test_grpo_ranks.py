"""Flow-GRPO on two gloo ranks gives what one gives, in any split (FAULTS 2, 15, 25)."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import multiprocessing

from tests.unit.learner import grpo_rank_worker
from tests.unit.learner.grpo_rank_worker import CASES, measure

TIMEOUT_S = 300


@pytest.fixture(scope="module")
def two_ranks(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("ranks")
    arguments = (2, str(tiny_folder), str(folder / "meeting"), str(folder))
    context = multiprocessing.spawn(grpo_rank_worker.main, arguments, nprocs=2, join=False)
    try:
        # It answers whenever one of them ends.
        assert any(context.join(TIMEOUT_S) for _ in range(2)), "the ranks did not finish"
    finally:
        for process in context.processes:
            process.kill()
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


def assert_equal(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Every g_k, ∇KL, the solving and the amortised gradient and the policy's shift, within 1e-5.

    Losses are sums of terms about 1 that nearly cancel, for the advantages of a group do.
    """
    assert found["solved"] == expected["solved"] == [True, False]
    error = (found["gradients"] - expected["gradients"]).norm(dim=1)
    assert float((error / expected["gradients"].norm(dim=1)).max()) < 1e-5
    assert found["numbers"] == pytest.approx(expected["numbers"], rel=1e-5)
    assert found["losses"] == pytest.approx(expected["losses"], rel=1e-5, abs=2e-7)


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_equal_one(case: str, two_ranks: list[dict[str, Any]], tiny_folder: Path) -> None:
    """FAULTS 15: off-policy, with cells beyond either bound."""
    expected = measure(tiny_folder, case)
    clip_fraction = expected["numbers"][2]
    assert 0.02 < clip_fraction < 0.98
    for rank in two_ranks:
        assert_equal(rank[case], expected)
    assert torch.equal(two_ranks[0][case]["gradients"], two_ranks[1][case]["gradients"])


@pytest.mark.parametrize("micro_batch_size", [1, 7])
def test_any_split_into_micro_batches_gives_the_same(micro_batch_size: int, tiny_folder: Path) -> None:
    """FAULTS 15."""
    assert_equal(measure(tiny_folder, "plain", micro_batch_size=micro_batch_size), measure(tiny_folder, "plain"))


def test_ranks_stay_together(two_ranks: list[dict[str, Any]]) -> None:
    """FAULTS 2, 25."""
    assert two_ranks[0]["trained"] == two_ranks[1]["trained"]
    assert len({*two_ranks[0]["trained"]}) == 2
