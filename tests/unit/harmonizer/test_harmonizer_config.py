import math

import pytest
from pydantic import ValidationError

from harmonizer.config import EmaConfig, HarmonizerConfig, RefreshConfig


def test_defaults_are_the_papers() -> None:
    config = HarmonizerConfig()
    assert (config.method, config.normalize, config.apply, config.amortize) == (
        "min_norm",
        True,
        "solved",
        "normalized",
    )
    assert (config.ema.rho, config.refresh.policy, config.refresh.n, config.refresh.warmup) == (0.7, "every_n", 10, 1)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"methode": "uniform"}, "methode"),
        ({"method": "sum"}, "min_norm"),
        ({"normalize": "perhaps"}, "boolean"),
        ({"ema": {"rho": 1.0}}, "less than 1"),
        ({"ema": {"rho": -0.1}}, "greater than or equal to 0"),
        ({"refresh": {"n": 0}}, "greater than or equal to 1"),
        ({"refresh": {"warmup": 0}}, "greater than or equal to 1"),
        ({"refresh": {"every": 10}}, "every"),
        ({"method": "fixed"}, "got method fixed, no weights"),
        ({"method": "uniform", "fixed": {"a": 1}}, "got method uniform, weights for a"),
        ({"method": "fixed", "fixed": {"a": 0, "b": 0}}, "positive, finite sum, got 0"),
        ({"method": "fixed", "fixed": {}}, "positive, finite sum, got 0"),
        ({"method": "fixed", "fixed": {"a": -1}}, "greater than or equal to 0"),
        ({"method": "fixed", "fixed": {"a": math.nan}}, "finite"),
        ({"method": "fixed", "fixed": {"a": 1e308, "b": 1e308}}, "positive, finite sum, got inf"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        HarmonizerConfig.model_validate(settings)


def test_fixed_weights_come_to_sum_one() -> None:
    assert HarmonizerConfig(method="fixed", fixed={"a": 3, "b": 1}).fixed == {"a": 0.75, "b": 0.25}


def test_a_resolved_recipe_reads_back_bit_for_bit() -> None:
    config = HarmonizerConfig(method="fixed", fixed={"a": 0.1, "b": 0.7, "c": 1.3})
    for _ in range(3):
        again = HarmonizerConfig.model_validate_json(config.model_dump_json())
        assert again == config
        config = again


def test_configuration_is_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        EmaConfig().rho = 0.5  # type: ignore[misc]
    with pytest.raises(ValidationError, match="frozen"):
        RefreshConfig().n = 5  # type: ignore[misc]
