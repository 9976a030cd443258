import pytest

from harmonizer.config import RefreshConfig
from harmonizer.refresh import is_due


@pytest.mark.parametrize(
    ("config", "steps"),
    [
        (RefreshConfig(), [0, 10, 20]),
        (RefreshConfig(n=4), [0, 4, 8, 12, 16, 20, 24]),
        (RefreshConfig(n=10, warmup=3), [0, 1, 2, 12, 22]),
        (RefreshConfig(n=1), list(range(25))),
        (RefreshConfig(policy="every_step"), list(range(25))),
        (RefreshConfig(policy="never", warmup=3), []),
    ],
)
def test_steps_that_solve(config: RefreshConfig, steps: list[int]) -> None:
    assert [step for step in range(25) if is_due(step, config)] == steps
