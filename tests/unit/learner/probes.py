"""Looks inside a learner's step: its gradients before they are clipped and applied."""

from dataclasses import dataclass, field
from unittest import mock

import torch
from torch import Tensor

from learner import train_step
from learner.cells import micro_batches
from learner.gradients import RewardGradients, reward_gradients
from learner.learner import Learner
from learner.train_step import Direction, Update
from learner.types import TrainBatch


@dataclass
class Seen:
    """Per step: the whole gradient [P]; per solving step also the rewards' apart."""

    gradients: list[Tensor] = field(default_factory=list)
    apart: list[RewardGradients] = field(default_factory=list)


def kl_row(found: RewardGradients) -> Tensor:
    """[P] the gradient of mean KL, no copy."""
    assert len(found.rows_RP) == len(found.losses_K) + 1, "KL is off"
    return found.rows_RP[-1]


def gradient(learner: Learner) -> Tensor:
    """[P] what lies in `.grad`."""
    return torch.cat([p.grad.flatten() for p in learner._optimizer.parameters.values() if p.grad is not None])


def watched(learner: Learner) -> tuple[Seen, "mock._patch[object]"]:
    """A record that fills while the patch is active, and the patch."""
    seen = Seen()
    step = learner._optimizer.step

    def recording_step(norm: float) -> None:
        seen.gradients.append(gradient(learner).clone())
        step(norm)

    def recording_gradients(*args: object, **kwargs: object) -> RewardGradients:
        seen.apart.append(reward_gradients(*args, **kwargs))  # type: ignore[arg-type]
        return seen.apart[-1]

    learner._optimizer.step = recording_step  # type: ignore[method-assign]
    return seen, mock.patch.object(train_step, "reward_gradients", recording_gradients)


def update_of(learner: Learner, batch: TrainBatch, index: int = 0, on_policy: bool = False) -> Update:
    """What the learner would train in one update of a batch."""
    found = learner._check(batch)
    local, published = learner._local(batch)
    learner._load_old(published)
    cells = micro_batches(local, learner._schedule, index)
    num_cells = learner.num_samples * learner.config.timesteps
    return Update(
        learner.steps_done,
        batch.iteration,
        cells,
        num_cells,
        learner._signals.trained(found, batch.iteration),
        on_policy,
    )


def solved(learner: Learner, update: Update) -> tuple[Direction, Tensor]:
    """A solving step's direction and gradient [P], not applied."""
    learner._optimizer.clear()
    direction = learner._step._solved(update, update.signal.counts_K > 0)
    return direction, gradient(learner).clone()
