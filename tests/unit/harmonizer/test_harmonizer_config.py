import math

import pytest
from pydantic import ValidationError

from harmonizer.config import EmaConfig, HarmonizerConfig, RefreshConfig
from harmonizer.harmonizer import Harmonizer


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
        ({"weights": {"a": 1}}, "weights are for method weighted_gradients, got method min_norm"),
        ({"method": "weighted_gradients", "weights": {"a": 0}}, "positive, finite sum, got {'a': 0.0}"),
        ({"method": "weighted_gradients", "weights": {"a": -1}}, "greater than or equal to 0"),
        ({"floors": {"a": 0.7, "b": 0.4}}, r"at most 1, got 1.1 from {'a': 0.7, 'b': 0.4}"),
        ({"floors": {"a": -0.1}}, "greater than or equal to 0"),
        ({"floors": {"a": math.nan}}, "finite"),
        ({"preference": {"a": 0}}, "greater than 0"),
        ({"preference": {"a": math.inf}}, "finite"),
        ({"groups": {"one": {"a": 1, "b": 1}, "two": {"b": 1}}}, "one group only, got b in several"),
        ({"groups": {"one": {}}}, "shares of group one must have a positive, finite sum, got 0"),
        ({"method": "uniform", "floors": {"a": 0.1}}, "floors goes with method min_norm, got method uniform"),
        ({"method": "upgrad", "preference": {"a": 1}}, "preference goes with method min_norm, got method upgrad"),
        ({"method": "pcgrad", "groups": {"one": {"a": 1}}}, "groups goes with method min_norm"),
        ({"method": "uniform", "kl": "constraint"}, "kl: constraint goes with method min_norm, got method uniform"),
        ({"kl_bound": 1.0}, "less than 1"),
        ({"kl_bound": math.nan}, "finite"),
        ({"cagrad_c": 1.0}, "less than 1"),
        ({"ema": {"trust_region": 0}}, "greater than 0"),
        ({"ema": {"trust_region": 2.5}}, "less than or equal to 2"),
        ({"refresh": {"policy": "adaptiv"}}, "'every_n', 'every_step', 'adaptive' or 'never'"),
        ({"refresh": {"policy": "never"}}, "never goes with method weighted_gradients, got method min_norm"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        HarmonizerConfig.model_validate(settings)


def test_fixed_weights_come_to_sum_one() -> None:
    assert HarmonizerConfig(method="fixed", fixed={"a": 3, "b": 1}).fixed == {"a": 0.75, "b": 0.25}


def test_a_resolved_recipe_reads_back_bit_for_bit() -> None:
    config = HarmonizerConfig(method="fixed", fixed={"a": 0.1, "b": 0.7, "c": 1.3})
    _reads_back(config)
    _reads_back(HarmonizerConfig(groups={"one": {"a": 0.1, "b": 0.7, "c": 1.3}}, floors={"one": 0.3}))


def _reads_back(config: HarmonizerConfig) -> None:
    for _ in range(3):
        again = HarmonizerConfig.model_validate_json(config.model_dump_json())
        assert again == config
        config = again


GROUPED = {"groups": {"one": {"a": 1, "b": 2}}}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"method": "fixed", "fixed": {"a": 1, "b": 1}}, "fixed must give a weight to each of a, b, c, got a, b"),
        (
            {"method": "weighted_gradients", "weights": {"a": 1, "b": 1, "d": 1}},
            "weights must give a weight to each of a, b, c, got a, b, d",
        ),
        ({"floors": {"d": 0.1, "a": 0.1}}, "floors names d; it may name a, b, c"),
        ({"floors": {"b": 0.1}, **GROUPED}, "floors names b; it may name one, c"),
        ({"preference": {"a": 1, "b": 1}}, "preference must have a number for each of a, b, c, got a, b"),
        ({"preference": {"a": 1, "c": 1}, **GROUPED}, "preference must have a number for each of one, c, got a, c"),
        ({"groups": {"one": {"a": 1, "x": 1}}}, "groups.one names x; rewards are a, b, c"),
        ({"groups": {"c": {"a": 1}}}, "groups.c is called like a reward; give the group a name of its own"),
    ],
)
def test_names_of_other_rewards_are_refused(settings: dict[str, object], said: str) -> None:
    config = HarmonizerConfig.model_validate(settings)
    with pytest.raises(ValueError, match=said):
        config.check_names(("a", "b", "c"))
    with pytest.raises(ValueError, match=said):
        Harmonizer(("a", "b", "c"), config)


def test_units_are_groups_and_who_is_in_none_in_the_rewards_order() -> None:
    config = HarmonizerConfig.model_validate({"groups": {"one": {"d": 1, "b": 3}, "two": {"c": 2}}})
    units = config.units(("a", "b", "c", "d"))
    assert list(units.items()) == [("a", {"a": 1.0}), ("one", {"d": 0.25, "b": 0.75}), ("two", {"c": 1.0})]


def test_configuration_is_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        EmaConfig().rho = 0.5  # type: ignore[misc]
    with pytest.raises(ValidationError, match="frozen"):
        RefreshConfig().n = 5  # type: ignore[misc]
