"""The rollout actor: draws images and latents with the adapter it was given last.

Letters: N samples of one task, H, W pixels, C, h, w latent channels and size.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from actors.config import RoleConfig
from actors.process import Started, device_of
from actors.results import ActorVitals
from learner.config import PolicyConfig, SamplingConfig
from learner.errors import UserError
from learner.types import AdapterState, Latents, RolloutTask

Slot = Literal["old", "eval"]
"""`old` draws training batches, `eval` held-out images; None in their place is the base model."""
ADAPTER_OF: Mapping[Slot, str] = {"old": "old", "eval": "evaluation"}
"""Adapter behind each slot; torch modules have an attribute `eval`, so no adapter can be called that."""
BASE_HASH = "base"
"""Stands for a policy hash where no adapter drew the images."""


@dataclass(frozen=True)
class RolloutSpec:
    """What one rollout actor is made from."""

    name: str
    role: RoleConfig
    policy: PolicyConfig
    seed: int


@dataclass(frozen=True)
class Loaded:
    """Proof of a push: what stands in the module now."""

    slot: Slot
    policy_version: int
    policy_hash: str
    num_tensors: int


@dataclass(frozen=True)
class RolloutMeta:
    """The small part of a rollout, the only one that passes through the controller."""

    policy_version: int
    policy_hash: str
    seeds_N: NDArray[np.int64]
    """[N] seed of each sample's noise."""
    seconds: float
    kept: tuple[NDArray[np.uint8], ...] = ()
    """Images [H, W, 3] that were asked for by `keep`, in its order."""


class RolloutActor:
    """One policy with adapters `old` and `eval`."""

    def __init__(self, spec: RolloutSpec) -> None:
        # Loading is start()'s work: Ray wraps what a constructor raises in an error that hides it.
        self._spec = spec
        self._started = Started("rollout", spec.name, spec.role.threads)
        self._policy: Any = None
        self._held: dict[Slot, Loaded] = {}

    def start(self) -> ActorVitals:
        """Loads the base model.

        Raises:
            PolicyError: it cannot be loaded.
        """
        with self._started:
            from learner.policy import Policy

            self._policy = Policy.load(
                self._spec.policy, tuple(ADAPTER_OF.values()), device_of(self._spec.role), self._spec.seed
            )
        return self._started.vitals

    def load_adapter(self, slot: Slot, state: AdapterState, num_expected: int) -> Loaded:
        """Puts an adapter into a slot and reads it back.

        Args:
            num_expected: tensors the learner trains, 2 per target module.

        Raises:
            UserError: other keys, another count, or what is read back is not what was pushed.
        """
        from learner import adapters

        transformer = self._policy.transformer
        try:
            count = adapters.write(transformer, ADAPTER_OF[slot], dict(state.tensors))
        except ValueError as error:
            raise UserError(f"{self._spec.name}: the pushed adapter does not fit: {error}") from error
        targets = adapters.num_target_modules(transformer)
        if count == 0 or count != num_expected or count != 2 * targets:
            raise UserError(
                f"{self._spec.name}: the push bound {count} LoRA tensors; the learner trains {num_expected} "
                f"and {targets} target modules here take {2 * targets}"
            )
        found = adapters.hash_tensors(adapters.read(transformer, ADAPTER_OF[slot]))
        if found != state.hash:
            raise UserError(
                f"{self._spec.name}: adapter {slot} reads back as {found[:12]}, pushed was {state.hash[:12]}"
            )
        self._held[slot] = Loaded(slot, state.policy_version, found, count)
        return self._held[slot]

    def sample(
        self, task: RolloutTask, sampling: SamplingConfig, slot: Slot | None, keep: tuple[int, ...] = ()
    ) -> tuple[NDArray[np.uint8], Latents | None, RolloutMeta]:
        """Images uint8 [N, H, W, 3] for the scorers, latents for the learner (training only), and the small part.

        Args:
            slot: adapter that draws; None is the base model.
            keep: rows whose images come back in the small part.
        """
        from learner import adapters
        from learner.noise import sample_seed
        from learner.sampler import sample
        from learner.sde import sample_trajectory

        began = time.monotonic()
        policy = Loaded("eval", 0, BASE_HASH, 0) if slot is None else self._held[slot]
        with adapters.using(self._policy.transformer, slot and ADAPTER_OF[slot]):
            if sampling.sde is None:
                x0_NChw, images_NHWC, trajectory = *sample(self._policy, task, sampling), None
            else:
                x0_NChw, images_NHWC, trajectory = sample_trajectory(self._policy, task, sampling)
        latents = None
        if task.purpose == "train":
            x0 = x0_NChw.float().cpu().numpy()
            latents = Latents(x0, task.sample_ids, policy.policy_version, policy.policy_hash, trajectory)
        seeds = [sample_seed(task.seed, task.purpose, task.iteration, int(i)) for i in task.sample_ids]
        meta = RolloutMeta(
            policy.policy_version,
            policy.policy_hash,
            np.array(seeds, dtype=np.int64),
            time.monotonic() - began,
            tuple(np.ascontiguousarray(images_NHWC[row]) for row in keep),
        )
        return images_NHWC, latents, meta

    def vitals(self) -> ActorVitals:
        """As of now."""
        return self._started.vitals
