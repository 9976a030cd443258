import numpy as np
import pytest

from harmonizer.config import HarmonizerConfig
from harmonizer.methods import ConstantWeights, build_method

NAMES = ("a", "b", "c")


def weights(config: HarmonizerConfig, members: list[int]) -> tuple[list[float], str, str]:
    found = build_method(config, NAMES)(np.eye(len(members)), np.array(members))
    return found.alpha_M.tolist(), found.status, found.solver


def test_uniform_is_equal_over_who_is_there() -> None:
    config = HarmonizerConfig(method="uniform")
    assert weights(config, [0, 2]) == ([0.5, 0.5], "uniform", "none")


def test_fixed_follows_names_not_order_and_renormalises() -> None:
    config = HarmonizerConfig(method="fixed", fixed={"c": 0.75, "b": 0.25, "a": 0.0})
    assert weights(config, [0, 1, 2]) == ([0.0, 0.25, 0.75], "fixed", "none")
    assert weights(config, [0, 2]) == ([0.0, 1.0], "fixed", "none")
    assert weights(config, [0]) == ([0.0], "fixed", "none")


@pytest.mark.parametrize("given", [{"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}, {"x": 1.0}])
def test_fixed_weights_of_other_rewards_are_refused(given: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"each of a, b, c, got {', '.join(given)}"):
        build_method(HarmonizerConfig(method="fixed", fixed=given), NAMES)


def test_min_norm_is_the_default() -> None:
    assert not isinstance(build_method(HarmonizerConfig(), NAMES), ConstantWeights)
