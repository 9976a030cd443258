"""The one module that touches PEFT: attach, switch, read, write and hash LoRA adapters by name.

`default` is trained, `old` draws the rollouts, no adapter at all is the reference. PEFT's add, set, enable and disable
calls all flip `requires_grad`; here it is put back after every one, so that exactly `default` is ever trainable.
Canonical keys carry no adapter name: ``transformer_blocks.0.attn.to_q.lora_A.weight``.
"""

import hashlib
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from peft import LoraConfig as PeftLoraConfig
from peft import inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn

from learner.config import LoraConfig
from learner.errors import PolicyError
from learner.export import LoadedLora
from learner.noise import generator, sample_seed

TRAINED = "default"
MATRICES = ("lora_A", "lora_B")
SHIELD = "_adapter"


def attach(transformer: nn.Module, lora: LoraConfig, names: Sequence[str], seed: int) -> None:
    """Add the adapters, all with the same seeded weights (lora_B zero: no effect yet), and activate the first.

    Afterwards the base is frozen, LoRA is float32 also on a bfloat16 base, and exactly `default` is trainable.

    Raises:
        PolicyError: a target matches no linear layer, or something that is not one.
    """
    _check_targets(transformer, lora.targets)
    config = {"r": lora.rank, "lora_alpha": lora.alpha, "target_modules": list(lora.targets)}
    for name in names:
        # PEFT draws weights that are replaced below; the global generator must not notice.
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Already found a `peft_config` attribute")
            inject_adapter_in_model(PeftLoraConfig(**config), transformer, adapter_name=_inner(name))
    for parameter in transformer.parameters():
        parameter.requires_grad_(False)
    tensors = initial_tensors(transformer, lora, seed)
    for name in names:
        for key, parameter in parameters(transformer, name).items():
            parameter.data = tensors[key].to(parameter.device, copy=True)
    if names:
        _switch(transformer, names[0])


def initial_tensors(transformer: nn.Module, lora: LoraConfig, seed: int) -> dict[str, Tensor]:
    """Weights of a fresh adapter by canonical key: lora_A random, one seed per matrix; lora_B zero.

    gaussian: normal with standard deviation 1/rank; kaiming: uniform within ±1/√fan_in, as for a linear layer.
    """
    tensors = {}
    for key, parameter in parameters(transformer, _names(transformer)[0]).items():
        value = torch.zeros(parameter.shape, dtype=torch.float32)
        if ".lora_A." in key:
            source = generator(sample_seed(seed, f"lora {key}", 0, 0))
            if lora.init == "gaussian":
                value.normal_(std=1 / lora.rank, generator=source)
            else:
                bound = 1 / math.sqrt(parameter.shape[1])
                value.uniform_(-bound, bound, generator=source)
        tensors[key] = value
    return tensors


@contextmanager
def using(transformer: nn.Module, name: str | None) -> Iterator[None]:
    """Run with this adapter active, or with none; the former one comes back, also after an exception.

    Raises:
        ValueError: no adapter of that name.
    """
    former = active(transformer)
    _switch(transformer, name)
    try:
        yield
    finally:
        _switch(transformer, former)


def active(transformer: nn.Module) -> str | None:
    """Name of the active adapter; None when adapters are off or there are none."""
    found = next(_layers(transformer), None)
    return None if found is None or found[1].disable_adapters else _outer(found[1].active_adapters[0])


def linears(transformer: nn.Module, name: str) -> dict[str, nn.Linear]:
    """The adapter's own matrices as layers by canonical key of their weights, sorted.

    Raises:
        ValueError: no adapter of that name.
    """
    _check_name(transformer, name)
    found = {
        f"{path}.{matrix}.weight": getattr(layer, matrix)[_inner(name)]
        for path, layer in _layers(transformer)
        for matrix in MATRICES
    }
    return dict(sorted(found.items()))


def parameters(transformer: nn.Module, name: str) -> dict[str, nn.Parameter]:
    """The adapter's own parameters by canonical key, sorted.

    Raises:
        ValueError: no adapter of that name.
    """
    return {key: cast(nn.Parameter, layer.weight) for key, layer in linears(transformer, name).items()}


def read(transformer: nn.Module, name: str) -> dict[str, Tensor]:
    """Clones of the adapter's tensors by canonical key, sorted; detached, CPU, float32."""
    # On a CPU `.cpu()` alone would hand out the live weights, and a kept copy would change with training.
    return {
        key: parameter.detach().to("cpu", torch.float32, copy=True)
        for key, parameter in parameters(transformer, name).items()
    }


def continued(start: LoadedLora, fresh: Mapping[str, Tensor], lora: LoraConfig) -> dict[str, Tensor]:
    """An adapter of rank, alpha and targets of `lora` that computes what `start` does.

    (alpha/r) B A stays as it is: B is rescaled by (alpha'/r') / (alpha/r). Ranks and layers that `start` lacks keep the
    fresh lora_A and a lora_B of zeros, which add nothing yet and can be trained.

    Args:
        start: of at most this rank, on some or all of these layers.
        fresh: :func:`initial_tensors`, by canonical key.
        lora: what the recipe trains.

    Raises:
        PolicyError: a higher rank, layers that are not trained, or matrices of another base; names the first.
    """
    strangers = sorted(start.tensors.keys() - fresh.keys())
    if strangers:
        raise PolicyError(
            f"adapts {len(strangers) // 2} layers that policy.lora.targets leaves out, first "
            f"{strangers[0].removesuffix('.lora_A.weight')}"
        )
    if start.rank > lora.rank:
        raise PolicyError(f"has rank {start.rank}, policy.lora.rank is {lora.rank}: a LoRA can grow, not shrink")
    scale = (start.alpha / start.rank) / (lora.alpha / lora.rank)
    tensors = {key: value.clone() for key, value in fresh.items()}
    for key, value in start.tensors.items():
        of_a = key.endswith(".lora_A.weight")
        whole = tensors[key]
        part = whole[: start.rank] if of_a else whole[:, : start.rank]
        if value.shape != part.shape:
            raise PolicyError(f"is of another base: {key} has shape {list(value.shape)}, not {list(part.shape)}")
        part.copy_(value if of_a else value * scale)
    return tensors


def write(transformer: nn.Module, name: str, tensors: Mapping[str, Tensor | NDArray[np.float32]]) -> int:
    """Overwrite the adapter in place; returns how many tensors it holds.

    Raises:
        ValueError: keys or shapes are not the adapter's; the message counts matched and expected, nothing is written.
    """
    targets = parameters(transformer, name)
    matched = targets.keys() & tensors.keys()
    if len(matched) != len(targets) or len(matched) != len(tensors):
        missing, unknown = sorted(targets.keys() - tensors.keys()), sorted(tensors.keys() - targets.keys())
        raise ValueError(
            f"adapter {name}: matched {len(matched)} of {len(targets)} expected tensors, got {len(tensors)}"
            + (f"; first missing: {missing[0]}" if missing else "")
            + (f"; first unknown: {unknown[0]}" if unknown else "")
        )
    # Arrays that come out of an object store are read-only, which torch will not share.
    values = {key: value if isinstance(value, Tensor) else torch.tensor(value) for key, value in tensors.items()}
    for key, parameter in targets.items():
        if values[key].shape != parameter.shape:
            raise ValueError(
                f"adapter {name}: {key} has shape {list(values[key].shape)}, expected {list(parameter.shape)}"
            )
    with torch.no_grad():
        for key, parameter in targets.items():
            parameter.copy_(values[key])
    return len(targets)


def hash_tensors(tensors: Mapping[str, Tensor | NDArray[Any]]) -> str:
    """SHA-256 over sorted keys, types, shapes and bytes."""
    digest = hashlib.sha256()
    for key in sorted(tensors):
        value = tensors[key]
        array = np.ascontiguousarray(value.detach().cpu().numpy() if isinstance(value, Tensor) else value)
        digest.update(f"{key} {array.dtype} {list(array.shape)}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def num_target_modules(transformer: nn.Module) -> int:
    """Linear layers that carry adapters; each has two tensors per adapter."""
    return sum(1 for _ in _layers(transformer))


def _layers(transformer: nn.Module) -> Iterator[tuple[str, LoraLayer]]:
    return ((path, module) for path, module in transformer.named_modules() if isinstance(module, LoraLayer))


def _inner(name: str) -> str:
    """PEFT keeps adapters in a ModuleDict, whose own attributes (`eval`, `train`, …) cannot be keys."""
    return f"{name}{SHIELD}" if hasattr(nn.ModuleDict, name) else name


def _outer(inner: str) -> str:
    return inner.removesuffix(SHIELD)


def _names(transformer: nn.Module) -> list[str]:
    layer = next(_layers(transformer), None)
    return [] if layer is None else [_outer(inner) for inner in layer[1].lora_A]


def _check_name(transformer: nn.Module, name: str) -> None:
    names = _names(transformer)
    if name not in names:
        raise ValueError(f"no adapter {name!r}; there are {', '.join(names) or 'none'}")


def _switch(transformer: nn.Module, name: str | None) -> None:
    """Activate an adapter or none through PEFT, and put `requires_grad` back whatever happens."""
    if name is not None:
        _check_name(transformer, name)
    layers = [layer for _, layer in _layers(transformer)]
    try:
        for layer in layers:
            if name is not None:
                layer.set_adapter([_inner(name)])
            if layer.disable_adapters != (name is None):
                layer.enable_adapters(name is not None)
    finally:
        for layer in layers:
            _freeze_all_but_trained(layer)


def _freeze_all_but_trained(layer: LoraLayer) -> None:
    for matrix in MATRICES:
        for name, module in getattr(layer, matrix).items():
            module.weight.requires_grad_(name == TRAINED)


def _check_targets(transformer: nn.Module, targets: Sequence[str]) -> None:
    modules = dict(transformer.named_modules())
    for target in targets:
        matched = [path for path in modules if path == target or path.endswith(f".{target}")]
        if not matched:
            raise PolicyError(f"lora.targets: {target} matches no layer of {type(transformer).__name__}")
        for path in matched:
            if not isinstance(modules[path], nn.Linear):
                raise PolicyError(
                    f"lora.targets: {target} matches {path}, a {type(modules[path]).__name__}; LoRA needs linear layers"
                )
