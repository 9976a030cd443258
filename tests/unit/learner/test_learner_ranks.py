"""Two gloo ranks give what one gives (FAULTS 2, 15, 25)."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import multiprocessing

from tests.unit.learner import rank_worker
from tests.unit.learner.batches import REWARDS, make_learner
from tests.unit.learner.rank_worker import SCENARIOS, SHIPPED, measure

TIMEOUT_S = 300
CASES = (*SCENARIOS, "split", "checkpointed", "shipped")


@pytest.fixture(scope="module")
def two_ranks(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank found; both run through all scenarios once, for starting them costs the most."""
    folder = tmp_path_factory.mktemp("ranks")
    arguments = (2, str(tiny_folder), str(folder / "meeting"), str(folder))
    context = multiprocessing.spawn(rank_worker.main, arguments, nprocs=2, join=False)
    try:
        assert context.join(TIMEOUT_S) or context.join(TIMEOUT_S), "the ranks did not finish"
    finally:
        for process in context.processes:
            process.kill()
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@pytest.fixture(scope="module")
def one_rank(tiny_folder: Path) -> dict[str, dict[str, Any]]:
    found = {scenario: measure(tiny_folder, scenario) for scenario in SCENARIOS}
    return {**found, "shipped": measure(tiny_folder, "plain", **SHIPPED)}


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_equal_one(case: str, two_ranks: list[dict[str, Any]], one_rank: dict[str, dict[str, Any]]) -> None:
    """FAULTS 15: loss, every g_k, ∇KL, the solving and the amortised gradient within 1e-5, for any split."""
    expected = one_rank.get(case, one_rank["plain"])
    for found in (rank[case] for rank in two_ranks):
        assert found["solved"] == expected["solved"] == [True, False]
        error = (found["gradients"] - expected["gradients"]).norm(dim=1)
        assert float((error / expected["gradients"].norm(dim=1)).max()) < 1e-5
        assert found["losses"] == pytest.approx(expected["losses"], rel=1e-5)
        assert found["alpha"] == pytest.approx(expected["alpha"], abs=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_alpha_is_bit_equal_on_all_ranks(case: str, two_ranks: list[dict[str, Any]]) -> None:
    """Only rank 0 asks the harmonizer; the others get its answer."""
    first, second = (rank[case] for rank in two_ranks)
    assert first["alpha"] == second["alpha"]
    assert first["coefficients"] == second["coefficients"]
    assert torch.equal(first["gradients"], second["gradients"])


def test_kl_on_a_share_of_the_cells_is_not_kl_on_all(one_rank: dict[str, dict[str, Any]]) -> None:
    """Else "shipped" would say no more than "plain"."""
    share, whole = (one_rank[case]["gradients"][len(REWARDS)] for case in ("shipped", "plain"))
    assert float((share - whole).norm() / whole.norm()) > 0.05


def test_two_ranks_go_on_from_a_checkpoint_bit_for_bit(two_ranks: list[dict[str, Any]], tiny_folder: Path) -> None:
    """FAULTS 5 with the shipped numbers; and the policy of the first images is one for any number of ranks."""
    alone = make_learner(tiny_folder, **SHIPPED).adapter("old").hash
    for found in (rank["resumed"] for rank in two_ranks):
        assert found["resumed"] == found["straight"]
        assert found["steps"] == 8
        assert found["start"] == alone
    assert two_ranks[0]["resumed"] == two_ranks[1]["resumed"]


def test_ranks_stay_together(two_ranks: list[dict[str, Any]]) -> None:
    """FAULTS 2, 25: under find_unused_parameters=False, with adapters switched between forward and backward."""
    first, second = (rank["trained"] for rank in two_ranks)
    assert first == second
    assert first["trainable_is_default"]
    assert first["iteration"] == 1


def test_a_fault_on_one_rank_is_raised_on_all(two_ranks: list[dict[str, Any]]) -> None:
    """FAULTS 25: nobody waits for a rank that has left."""
    first, second = (rank["faults"] for rank in two_ranks)
    assert second["latents"] == "UserError: iteration 0: latents of one batch must come from one policy, got none"
    assert first["latents"] == f"RuntimeError: rank 1: {second['latents']}"
    assert first["harmonizer"] == "RuntimeError: the harmonizer is gone"
    assert second["harmonizer"] == "RuntimeError: rank 0: RuntimeError: the harmonizer is gone"
