"""How many replicas a queue asks for: bounds, patience both ways, no see-saw."""

import pytest

from actors.autoscaler import PAUSE_S, Autoscaler
from actors.config import PoolConfig


def scaler(target: float = 4, grow_after_s: float = 2, shrink_after_s: float = 60) -> Autoscaler:
    autoscale = {"target_queue": target, "grow_after_s": grow_after_s, "shrink_after_s": shrink_after_s}
    return Autoscaler(PoolConfig.model_validate({"min_replicas": 1, "max_replicas": 8, "autoscale": autoscale}))


@pytest.mark.parametrize(("outstanding", "wanted"), [(0, 1), (4, 1), (5, 2), (32, 8), (1000, 8)])
def test_a_queue_asks_for_its_length_over_the_target_within_bounds(outstanding: int, wanted: int) -> None:
    assert scaler().wanted(outstanding) == wanted


def test_it_grows_once_the_queue_has_asked_long_enough_to_the_least_it_asked() -> None:
    it = scaler()
    assert it.decide(0.0, 1, 40) == 1
    assert it.decide(1.0, 1, 12) == 1
    assert it.decide(2.0, 1, 30) == 3
    assert it.decide(2.5, 3, 30) == 3, "the patience begins anew"
    assert it.decide(4.5, 3, 30) == 8


def test_a_break_in_the_asking_starts_it_over() -> None:
    it = scaler()
    assert it.decide(0.0, 1, 40) == 1
    assert it.decide(1.5, 1, 3) == 1
    assert it.decide(2.5, 1, 40) == 1
    assert it.decide(4.5, 1, 40) == 8


def test_empty_queues_between_two_rollouts_do_not_shrink_it() -> None:
    """A queue that fills every 30 s never lets the size fall; one that stays empty does, to the most it asked."""
    it, size = scaler(), 8
    for second in range(300):
        size = it.decide(float(second), size, 32 if second % 30 == 0 else 0)
    assert size == 8
    for second in range(300, 400):
        size = it.decide(float(second), size, 9 if second < 320 else 0)
        assert size == (8 if second < 331 else 3 if second < 392 else 1), second


def test_after_a_replica_that_could_not_start_it_does_not_grow_for_a_while_but_may_shrink() -> None:
    it = scaler(shrink_after_s=5)
    it.pause(0.0)
    assert it.decide(1.0, 2, 40) == 2
    assert it.decide(PAUSE_S - 1, 2, 40) == 2
    assert it.decide(PAUSE_S + 1, 2, 40) == 8
    it.pause(PAUSE_S + 1)
    assert it.decide(PAUSE_S + 2, 8, 0) == 8
    assert it.decide(PAUSE_S + 7, 8, 0) == 1


def test_a_target_of_next_to_nothing_is_as_many_as_there_may_be() -> None:
    """Not a number without end, which no size is."""
    assert (scaler(target=1e-308).wanted(5), scaler(target=1e-308).wanted(0)) == (8, 1)
