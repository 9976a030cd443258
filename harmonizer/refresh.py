"""Which steps solve."""

from harmonizer.config import RefreshConfig


def is_due(step: int, config: RefreshConfig) -> bool:
    """Whether optimizer step `step` (from 0) solves: the first `warmup`, then every n-th after the last of these."""
    if config.policy == "every_step" or step < config.warmup:
        return True
    return (step - (config.warmup - 1)) % config.n == 0
