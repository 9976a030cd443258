"""How many replicas a queue asks for, with patience both ways. Pure: no clock, no actors."""

import math

from actors.config import PoolConfig

PAUSE_S = 300.0
"""After a replica that could not start: what was missing then (memory, a GPU) is seldom there a moment later."""


class Autoscaler:
    """Replicas of one pool by the length of its queue."""

    def __init__(self, role: PoolConfig) -> None:
        """`role.autoscale` says how."""
        assert role.autoscale is not None
        assert role.max_replicas is not None
        self._config, self._min, self._max = role.autoscale, role.min_replicas, role.max_replicas
        self._since_s = math.nan
        """Since when the queue has asked for more, or for fewer, without a break."""
        self._direction = 0
        self._nearest = 0
        """Of what it asked for since then, the nearest to what there is."""
        self._pause_until_s = -math.inf

    def wanted(self, outstanding: int) -> int:
        """Replicas for so many calls queued or under way."""
        return max(self._min, math.ceil(min(self._max, outstanding / self._config.target_queue)))

    def decide(self, now_s: float, size: int, outstanding: int) -> int:
        """The size to have now, by all that was seen so far. Call it more often than the patience it is given."""
        wanted = self.wanted(outstanding)
        direction = (wanted > size) - (wanted < size)
        if direction != self._direction:
            self._direction, self._since_s, self._nearest = direction, now_s, wanted
        elif direction:
            self._nearest = min(self._nearest, wanted) if direction > 0 else max(self._nearest, wanted)
        patience_s = self._config.grow_after_s if direction > 0 else self._config.shrink_after_s
        if not direction or now_s - self._since_s < patience_s or (direction > 0 and now_s < self._pause_until_s):
            return size
        self._direction = 0
        return self._nearest

    def pause(self, now_s: float) -> None:
        """No growth for a while."""
        self._pause_until_s = now_s + PAUSE_S
