"""One step of each kind that `learner_step.py` times, on a randomly weighted policy. Letters: K rewards, N samples."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from random_policy import SEED, Size, random_policy

from harmonizer.config import HarmonizerConfig
from harmonizer.harmonizer import AmortizedWeights, Harmonizer, Plan, Signals
from learner import train_step
from learner.cells import LocalBatch, Schedule, micro_batches
from learner.config import LearnerConfig
from learner.contraction import Contraction
from learner.ema import Ema
from learner.forward import Forward, trainable
from learner.gradients import RewardGradients, reward_gradients
from learner.k_pass import k_pass_gradients
from learner.optimizer import LoraOptimizer
from learner.policy import TextEmbeddings
from learner.ranks import Ranks
from learner.train_step import Signal, TrainStep, Update

SCORED = 0.8
"""Share of cells with signal."""
WEIGHTED_SUM, ONE_REWARD, K_PASS, TWO_PASS, AMORTIZED = "weighted_sum", "one_reward", "k_pass", "two_pass", "amortized"
BARE = "bare_passes"
CHECKPOINTED = "_checkpointed"


class Fixed:
    """A harmonizer that solves, or takes even weights, as it is told."""

    def __init__(self, balance: Harmonizer, solves: bool) -> None:
        self.solve = balance.solve
        self._solves = solves

    def plan(self, step: int, active_K: NDArray[np.bool_], signals: Signals | None = None) -> Plan:
        even_K = active_K / active_K.sum()
        return Plan(self._solves, None if self._solves else AmortizedWeights(even_K, even_K, active_K, 1.0))


class Bench:
    """Steps on one policy; optimizer and EMA are shared, for their cost does not depend on their content."""

    def __init__(self, size: Size, device: str) -> None:
        self.size = size
        self.policy = random_policy(size, device)
        self._balances: dict[int, Harmonizer] = {}
        self._config = LearnerConfig(lr=1e-6, timesteps=size.timesteps, micro_batch_size=size.micro_batch)
        self._optimizer = LoraOptimizer(trainable(self.policy), self._config)
        self._ema = Ema(self._optimizer.parameters, 0.9)
        draws = torch.Generator().manual_seed(SEED)
        n, dtype = size.num_samples, self.policy.dtype
        tokens = torch.randn(n, size.tokens, size.text_widths[0], generator=draws).to(device, dtype)
        pooled = torch.randn(n, size.text_widths[1], generator=draws).to(device, dtype)
        x0 = torch.randn(n, *self.policy.latent_shape, generator=draws).to(device)
        self._batch = LocalBatch(
            0, tuple(range(n)), x0, TextEmbeddings(tokens, pooled), torch.arange(n, device=x0.device)
        )

    @property
    def num_micro_batches(self) -> int:
        """Of a whole step."""
        return -(-self.size.num_cells // self.size.micro_batch)

    def step(self, row: str, num_rewards: int, kl_fraction: float, micro_batches_run: int | None = None) -> None:
        """Take one step of a row's kind, on all micro-batches or the first few."""
        kind = row.removesuffix(CHECKPOINTED)
        count = 1 if kind in (WEIGHTED_SUM, ONE_REWARD) else num_rewards
        names = tuple(f"r{k}" for k in range(count))
        fraction = {"kl_fraction": kl_fraction} if kl_fraction else {"kl_beta": 0.0}
        config = self._config.model_copy(update=fraction)
        forward = Forward(self.policy, config.nft_beta, config.kl_beta > 0, config.autocast)
        # Kept from step to step, as in a run: its first solve compiles the QP.
        balance = self._balances.setdefault(count, Harmonizer(names, HarmonizerConfig()))
        client = Fixed(balance, solves=kind in (K_PASS, TWO_PASS, BARE))
        trainer = TrainStep(config, names, forward, self._optimizer, self._ema, client, Ranks(0, 1), None)
        schedule = Schedule(
            SEED,
            torch.linspace(0.95, 0.05, config.timesteps),
            config.timesteps,
            config.micro_batch_size,
            self.size.num_samples,
            config.kl_fraction,
        )
        cells = micro_batches(self._batch, schedule, 0)[:micro_batches_run]
        with self._mode(row):
            record = trainer.run(Update(0, 0, cells, self.size.num_cells, self._signal(count), on_policy=False))
        if not record.applied:
            raise RuntimeError(f"{row}: {record.skip_reason}")

    def _signal(self, num_rewards: int) -> Signal:
        draws = torch.Generator().manual_seed(SEED + 1)
        shape = (num_rewards, self.size.num_samples)
        signal = torch.rand(shape, generator=draws) < SCORED
        signal[:, 0] = True
        device = self.policy.device
        accepted = torch.rand(shape, generator=draws).to(device)
        return Signal(accepted, signal.to(device), signal.sum(1).numpy())

    @contextmanager
    def _mode(self, row: str) -> Iterator[None]:
        """With K passes in place of two, or with gradient checkpointing, where the row says so."""

        def k_pass(outcomes: Any, layers: Any, *rest: Any) -> RewardGradients:
            return k_pass_gradients(outcomes, [layer.weight for layer in layers], *rest)

        def nothing(*_: Any) -> None:
            """A mock's own stand-in would keep what it is called with."""

        def bare(*arguments: Any) -> RewardGradients:
            with mock.patch.object(Contraction, "contract", nothing):
                found = reward_gradients(*arguments)
            found.rows_RP.normal_()  # something to solve for
            return found

        transformer: Any = self.policy.transformer
        transformer.gradient_checkpointing = False
        if row.endswith(CHECKPOINTED):
            transformer.enable_gradient_checkpointing()
        gradients = k_pass if row.startswith(K_PASS) else bare if row == BARE else reward_gradients
        with mock.patch.object(train_step, "reward_gradients", gradients):
            yield
