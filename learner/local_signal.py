"""What one rank hands to its optimizer steps: the signal that trains, and what is measured beside it.

Letters: J rows of advantages, R all of them, K rewards, N samples of the batch.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from learner.advantages import Advantages
from learner.config import LearnerConfig
from learner.nft import acceptance
from learner.objective import Objective
from learner.probe import ProbeInput
from learner.stages import probed_updates
from learner.train_step import Signal


class LocalSignals:
    """Makes them, for one rank's samples on its device."""

    def __init__(self, config: LearnerConfig, objective: Objective, samples: slice, device: torch.device) -> None:
        self._config, self._objective = config, objective
        self._samples, self._device = samples, device

    def trained(self, found: Advantages, iteration: int) -> Signal:
        """The rows that become gradients."""
        trained = self._objective.trained(iteration, found)
        accepted_JN, signal_JN = self._local(trained.advantages_JN, trained.signal_JN)
        return Signal(accepted_JN, signal_JN, trained.signal_JN.sum(1), trained.correlation)

    def measured(self, found: Advantages, iteration: int, update: int) -> ProbeInput | None:
        """All rows, on the steps that are measured or open an iteration; None on the others."""
        own, opens = update in probed_updates(self._config, iteration), update == 0
        if not self._config.probe_every or not (own or opens):
            return None
        signal = Signal(*self._local(found.advantages_KN, found.signal_KN), found.counts_K)
        active_K = found.counts_K[: len(self._objective.reward_names)] > 0
        return ProbeInput(signal, active_K, self._objective.trained_rows, own, opens)

    def _local(
        self, advantages_JN: NDArray[np.float64], signal_JN: NDArray[np.bool_]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        mine = torch.from_numpy(advantages_JN[:, self._samples])
        accepted_JN = acceptance(mine, self._config.advantage.max).float().to(self._device)
        return accepted_JN, torch.from_numpy(signal_JN[:, self._samples]).to(self._device)
