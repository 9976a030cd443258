"""Reads a training batch as one rank sees it: checked, gathered, on the device.

Letters: K rewards, N samples of the batch, n of this rank, C, h, w latent channels and size.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.cells import LocalBatch
from learner.errors import UserError
from learner.policy import Policy
from learner.types import Latents, TrainBatch


def check_shapes(batch: TrainBatch, reward_names: Sequence[str], num_samples: int) -> None:
    """
    Raises:
        UserError: a batch of another size or of other rewards; the message says what was got.
    """
    wanted = (len(reward_names), num_samples)
    shapes = {
        "scores_KN": (batch.scores_KN.shape, wanted),
        "states_KN": (batch.states_KN.shape, wanted),
        "group_ids": (batch.group_ids.shape, wanted[1:]),
        "prompts": ((len(batch.prompts),), wanted[1:]),
    }
    for name, (got, expected) in shapes.items():
        if tuple(got) != expected:
            raise UserError(
                f"iteration {batch.iteration}: {name} has shape {list(got)}, expected {list(expected)} "
                f"({num_samples} samples, rewards {', '.join(reward_names)})"
            )


def drawn_by(latents: Sequence[Latents], iteration: int) -> tuple[int, str]:
    """(policy version, hash) of the one policy that drew the batch.

    Raises:
        UserError: no latents, or of more than one policy.
    """
    policies = sorted({(part.policy_version, part.policy_hash) for part in latents})
    if len(policies) != 1:
        listed = ", ".join(f"version {version} ({policy_hash[:12]})" for version, policy_hash in policies) or "none"
        raise UserError(f"iteration {iteration}: latents of one batch must come from one policy, got {listed}")
    return policies[0]


def gather(
    batch: TrainBatch, samples: slice, arrays: Sequence[NDArray[np.float32]], shape: Sequence[int], what: str
) -> Tensor:
    """[n, *shape] of these samples, in order; other ranks' samples are passed over.

    Args:
        batch: whose latents say which samples each array holds.
        samples: of this rank.
        arrays: one for each of the batch's latents.
        shape: of one sample.
        what: their name in messages.

    Raises:
        UserError: a sample missing or given twice, another shape, or numbers that are not finite.
    """
    where = f"iteration {batch.iteration}"
    values = np.empty((samples.stop - samples.start, *shape), np.float32)
    seen = np.zeros(len(values), dtype=np.int64)
    for part, array in zip(batch.latents, arrays, strict=True):
        if array.shape != (len(part.sample_ids), *shape):
            raise UserError(
                f"{where}: {what} have shape {list(array.shape)}, expected {[len(part.sample_ids), *shape]}"
            )
        mine = (part.sample_ids >= samples.start) & (part.sample_ids < samples.stop)
        at = part.sample_ids[mine] - samples.start
        values[at] = array[mine]
        np.add.at(seen, at, 1)
    if (seen != 1).any():
        first = int(np.argmax(seen != 1))
        raise UserError(f"{where}: {what} of sample {samples.start + first} came {int(seen[first])} times, not once")
    broken = ~np.isfinite(values.reshape(len(values), -1)).all(1)
    if broken.any():
        ids = (np.flatnonzero(broken) + samples.start).tolist()
        raise UserError(f"{where}: {what} of samples {ids} are not finite")
    return torch.from_numpy(values)


def local_batch(batch: TrainBatch, samples: slice, policy: Policy) -> LocalBatch:
    """This rank's part of a batch, with its prompts encoded.

    Raises:
        UserError: as :func:`gather`.
    """
    arrays = [part.x0_NChw for part in batch.latents]
    x0_nChw = gather(batch, samples, arrays, policy.latent_shape, "latents").to(policy.device)
    prompts = batch.prompts[samples]
    rows = {prompt: row for row, prompt in enumerate(dict.fromkeys(prompts))}
    return LocalBatch(
        iteration=batch.iteration,
        sample_ids=tuple(range(samples.start, samples.stop)),
        x0_NChw=x0_nChw,
        text=policy.encode(list(rows)),
        text_rows_N=torch.tensor([rows[prompt] for prompt in prompts], device=policy.device),
    )
