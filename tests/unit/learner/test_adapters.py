"""Adapters by name: who is trainable after every operation, what is read and written (FAULTS 1, 2, 6)."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from peft.tuners.lora import LoraLayer

from learner import adapters
from learner.config import SD3_ATTENTION_TARGETS, LoraConfig
from learner.errors import PolicyError
from tests.unit.learner.tiny_sd3 import tiny_sd3

LORA = LoraConfig(rank=4, alpha=6.0)


@pytest.fixture
def transformer() -> torch.nn.Module:
    model = tiny_sd3(0).transformer
    adapters.attach(model, LORA, ("default", "old"), seed=1)
    return model


def trainable(model: torch.nn.Module) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def only_default(model: torch.nn.Module) -> set[str]:
    return {name for name, _ in model.named_parameters() if name.endswith(".default.weight")}


def fail_inside(model: torch.nn.Module) -> None:
    with pytest.raises(RuntimeError, match="inside"), adapters.using(model, "old"):
        raise RuntimeError("inside")


def use(name: str | None) -> Callable[[torch.nn.Module], None]:
    def operation(model: torch.nn.Module) -> None:
        with adapters.using(model, name):
            assert adapters.active(model) == name
            assert trainable(model) == only_default(model)

    return operation


def nested(model: torch.nn.Module) -> None:
    with adapters.using(model, "old"), adapters.using(model, None):
        pass


def unknown(model: torch.nn.Module) -> None:
    with pytest.raises(ValueError, match="no adapter 'new'; there are default, old"), adapters.using(model, "new"):
        pass


def half_switched(model: torch.nn.Module) -> None:
    """PEFT itself fails on the way."""
    layer = [m for m in model.modules() if isinstance(m, LoraLayer)][5]
    original = layer.set_adapter

    def broken(names: list[str]) -> None:
        original(names)
        raise RuntimeError("half way")

    layer.set_adapter = broken  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="half way"), adapters.using(model, "old"):
        pass
    del layer.set_adapter
    use("default")(model)


@pytest.mark.parametrize(
    "operation",
    [
        lambda model: None,
        use("old"),
        use("default"),
        use(None),
        nested,
        fail_inside,
        unknown,
        half_switched,
        lambda model: adapters.read(model, "old"),
        lambda model: adapters.write(model, "old", adapters.read(model, "default")),
    ],
    ids=["attach", "old", "default", "none", "nested", "exception", "unknown", "half", "read", "write"],
)
def test_exactly_default_is_trainable_after(
    operation: Callable[[torch.nn.Module], None], transformer: torch.nn.Module
) -> None:
    """FAULTS 2."""
    operation(transformer)
    assert trainable(transformer) == only_default(transformer)
    assert len(trainable(transformer)) == 2 * adapters.num_target_modules(transformer)


def test_peft_itself_flips_requires_grad(transformer: torch.nn.Module) -> None:
    """Why it is put back after every call; when this fails, PEFT has changed and the module can be simpler."""
    layer = next(m for m in transformer.modules() if isinstance(m, LoraLayer))
    layer.set_adapter(["old"])
    assert layer.lora_A["old"].weight.requires_grad
    assert not layer.lora_A["default"].weight.requires_grad
    layer.enable_adapters(False)
    assert not layer.lora_A["old"].weight.requires_grad
    layer.enable_adapters(True)
    assert layer.lora_A["old"].weight.requires_grad


def test_the_former_adapter_comes_back(transformer: torch.nn.Module) -> None:
    with adapters.using(transformer, None):
        with adapters.using(transformer, "old"):
            assert adapters.active(transformer) == "old"
        assert adapters.active(transformer) is None
    assert adapters.active(transformer) == "default"


def test_without_default_nothing_is_trainable() -> None:
    model = tiny_sd3(0).transformer
    adapters.attach(model, LORA, ("old", "eval"), seed=1)
    assert adapters.active(model) == "old"
    with adapters.using(model, "eval"):
        assert not trainable(model)
    assert not trainable(model)


def test_a_model_without_adapters_is_its_own_reference() -> None:
    model = tiny_sd3(0).transformer
    with adapters.using(model, None):
        assert adapters.active(model) is None
    assert adapters.num_target_modules(model) == 0
    with pytest.raises(ValueError, match="there are none"):
        adapters.read(model, "default")


def test_adapters_start_equal_but_not_shared(transformer: torch.nn.Module) -> None:
    default, old = (adapters.read(transformer, name) for name in ("default", "old"))
    assert adapters.hash_tensors(default) == adapters.hash_tensors(old)
    adapters.write(transformer, "default", {key: value + 1 for key, value in default.items()})
    assert adapters.hash_tensors(adapters.read(transformer, "old")) == adapters.hash_tensors(old)


def test_fresh_weights_depend_on_the_seed_only() -> None:
    hashes = []
    for seed in (1, 1, 2):
        torch.manual_seed(len(hashes))
        model = tiny_sd3(0).transformer
        before = torch.random.get_rng_state()
        adapters.attach(model, LORA, ("default",), seed=seed)
        assert torch.equal(before, torch.random.get_rng_state())
        hashes.append(adapters.hash_tensors(adapters.read(model, "default")))
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize(("init", "std"), [("gaussian", 1 / 4), ("kaiming", 1 / 4 / 3**0.5)])
def test_init(init: str, std: float) -> None:
    """gaussian: 1/rank; kaiming: uniform within ±1/√16, the layers being 16 wide. lora_B is zero: no effect yet."""
    model = tiny_sd3(0).transformer
    adapters.attach(model, LoraConfig(rank=4, alpha=6.0, init=init), ("default",), seed=1)
    tensors = adapters.read(model, "default")
    drawn = torch.cat([value.flatten() for key, value in tensors.items() if ".lora_A." in key])
    assert drawn.std() == pytest.approx(std, rel=0.05)
    assert not any(value.any() for key, value in tensors.items() if ".lora_B." in key)


def test_lora_is_float32_on_a_bfloat16_base() -> None:
    model = tiny_sd3(0).transformer.to(torch.bfloat16)
    adapters.attach(model, LORA, ("default", "old"), seed=1)
    exact = tiny_sd3(0).transformer
    adapters.attach(exact, LORA, ("default", "old"), seed=1)
    assert {p.dtype for p in adapters.parameters(model, "default").values()} == {torch.float32}
    assert adapters.hash_tensors(adapters.read(model, "old")) == adapters.hash_tensors(adapters.read(exact, "old"))
    assert model.proj_out.weight.dtype == torch.bfloat16


def test_keys_are_canonical_and_counted(transformer: torch.nn.Module) -> None:
    """FAULTS 1: two tensors per target module; the last block has no to_add_out."""
    tensors = adapters.read(transformer, "default")
    assert list(tensors) == sorted(tensors)
    assert len(tensors) == 2 * adapters.num_target_modules(transformer) == 2 * (2 * len(SD3_ATTENTION_TARGETS) - 1)
    assert "transformer_blocks.0.attn.to_out.0.lora_A.weight" in tensors
    assert not [key for key in tensors if "default" in key]


def test_what_is_read_is_a_copy(transformer: torch.nn.Module) -> None:
    """FAULTS 6."""
    kept = adapters.read(transformer, "default")
    before = adapters.hash_tensors(kept)
    for parameter in adapters.parameters(transformer, "default").values():
        parameter.data += 1
    assert adapters.hash_tensors(kept) == before
    assert all(not value.requires_grad and value.dtype == torch.float32 for value in kept.values())


def test_written_tensors_read_back_from_read_only_arrays(transformer: torch.nn.Module) -> None:
    arrays = {key: value.numpy() + 1 for key, value in adapters.read(transformer, "old").items()}
    for array in arrays.values():
        array.setflags(write=False)
    assert adapters.write(transformer, "old", arrays) == len(arrays)
    assert adapters.hash_tensors(adapters.read(transformer, "old")) == adapters.hash_tensors(arrays)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: {}, r"matched 0 of 30 expected tensors, got 0; first missing: transformer_blocks\.0\.attn\.add_k"),
        (
            lambda t: {f"base_model.{key}": value for key, value in t.items()},
            r"matched 0 of 30 expected tensors, got 30; first missing: .*; first unknown: base_model\.transformer",
        ),
        (lambda t: dict(list(t.items())[1:]), r"matched 29 of 30 expected tensors, got 29; first missing"),
        (lambda t: {**t, "more": torch.zeros(1)}, r"matched 30 of 30 expected tensors, got 31; first unknown: more"),
        (lambda t: {**t, next(iter(t)): torch.zeros(3, 16)}, r"has shape \[3, 16\], expected \[4, 16\]"),
    ],
)
def test_wrong_keys_are_refused_and_nothing_is_written(
    change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]], message: str, transformer: torch.nn.Module
) -> None:
    """FAULTS 1: a wrong prefix names matched and expected."""
    before = adapters.read(transformer, "old")
    with pytest.raises(ValueError, match=message):
        adapters.write(transformer, "old", change({key: value + 1 for key, value in before.items()}))
    assert adapters.hash_tensors(adapters.read(transformer, "old")) == adapters.hash_tensors(before)


def test_hash_sees_keys_shapes_types_and_bytes() -> None:
    base = {"a": torch.arange(4.0), "b": torch.zeros(2)}
    same = adapters.hash_tensors({"b": np.zeros(2, np.float32), "a": np.arange(4, dtype=np.float32)})
    assert adapters.hash_tensors(base) == same
    others = [
        {"c": base["a"], "b": base["b"]},
        {"a": base["a"].reshape(2, 2), "b": base["b"]},
        {"a": base["a"].double(), "b": base["b"]},
        {"a": base["a"] + 1e-6, "b": base["b"]},
    ]
    assert len({same, *map(adapters.hash_tensors, others)}) == 5


def test_adapters_change_the_velocity(transformer: torch.nn.Module) -> None:
    """And `None` is the base, bit for bit."""
    inputs = {
        "hidden_states": torch.ones(1, 16, 4, 4),
        "timestep": torch.tensor([500.0]),
        "encoder_hidden_states": torch.ones(1, 8, 24),
        "pooled_projections": torch.ones(1, 24),
        "return_dict": False,
    }
    tensors = adapters.read(transformer, "old")
    adapters.write(transformer, "old", {key: value + 0.1 for key, value in tensors.items()})
    results = {}
    with torch.no_grad():
        for name in ("default", "old", None):
            with adapters.using(transformer, name):
                results[name] = transformer(**inputs)[0]
        base = tiny_sd3(0).transformer(**inputs)[0]
    assert torch.equal(results[None], base)
    assert torch.allclose(results["default"], base, atol=1e-6)
    assert not torch.allclose(results["old"], base, atol=1e-2)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (("attn.to_q", "attn.to_z"), r"lora.targets: attn.to_z matches no layer of SD3Transformer2DModel"),
        (("attn",), r"attn matches transformer_blocks\.0\.attn, a .*Attention; LoRA needs linear layers"),
    ],
)
def test_targets_that_match_nothing_are_refused(targets: tuple[str, ...], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        adapters.attach(tiny_sd3(0).transformer, LoraConfig(targets=targets), ("default",), seed=1)
