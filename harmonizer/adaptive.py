"""The `adaptive` refresh policy: solve where cached weights have gone stale, by signals that need no reward's gradient.

Due at once (an alarm):
  active set   rewards with signal now that no solve of the last 4n steps was for.
  advantages   g_k is a sum over samples of A_ki times what does not depend on k, so the rewards' Gram matrix moves with
               the correlations of their advantages. Over pairs, mean (r − r₀)² − (1/n + 1/n₀) estimates how far they
               have moved since the solve, without the sampling noise; it must pass 0.2² and six of its own deviations.
  norm         the whole gradient of amortised steps, mean log of the last three, is off that of the first three after
               the solve by a factor of 2: the norms that a_k divides by are old.
Due by time: `n` steps after the last solve; the gap grows by half, up to 4n, as long as the cached direction has not
moved by more than 15°, and goes back to n when it has. What a batch's own noise turns the solved direction by is not
movement: a solve one step after the first measures it, and as squares of angles add up, 1 − cosine over a gap less
1 − cosine over that one step is what moved. After an alarm ᾱ has a way to go (ρ of it is the past), so the next solves
follow 1, 2, 4, ... steps later until the gap is n again.

A budget keeps it honest: solves off schedule are paid for by those not made, so that there are never more than
steps/n + 8, however wildly the signals jump. All numbers are ratios, angles and probabilities: they do not know K.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from harmonizer.arrays import Bools, Floats
from harmonizer.config import RefreshConfig
from harmonizer.report import Signals

MAX_STRETCH = 4.0
"""Longest gap, and how long a set of rewards counts as solved for, in n."""
GROWTH = 1.5
FAR = 1.0 - math.cos(math.radians(15))
"""A direction moved by less costs less than 3.5% of the step's progress."""
FIRST_CREDIT = 8.0
MAX_CREDIT = 16.0
"""Solves that may be made off schedule in one go."""
MIN_SAMPLES = 8
"""A correlation over fewer is not looked at."""
MOVED = 0.2
"""Root mean square change of the correlations that matters."""
DEVIATIONS = 6.0
"""For one pair this is a false alarm in 500 steps, for more pairs it is rarer."""
NORM_FACTOR = 2.0
NORM_WINDOW = 3


@dataclass
class _State:
    """What the policy remembers."""

    gap: float
    """Steps from the last solve to the next one on schedule."""
    credit: float
    """Solves that may be made off schedule, as of the last solve."""
    last: int | None
    """Step of the last solve."""
    sets: dict[str, int]
    """Set of active rewards, a digit each, → step of the last solve for it."""
    reference: Signals | None
    """As of the last solve."""
    early: list[float]
    """Logs of the first norms after the last solve."""
    late: list[float]
    """Logs of the last norms after those."""
    noise: float | None
    """1 − cosine of two solves one step apart; None until measured."""
    apart: float | None
    """1 − cosine over gaps of n and more, mean that halves the past; None after an alarm, and at first."""


class Adaptive:
    """Decides by what it has seen; see the top of this file."""

    def __init__(self, config: RefreshConfig) -> None:
        self._config = config
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._state = _State(float(self._config.n), FIRST_CREDIT, None, {}, None, [], [], None, None)
        self._latest: Signals | None = None
        self._alarm = False

    def due(self, step: int, active_K: Bools, signals: Signals | None) -> str:
        """Why this step solves; empty when it does not. Takes note of the signals."""
        self._latest = signals
        if signals is not None:
            self._note(signals.amortized_norm)
        state, n = self._state, self._config.n
        if state.last is None or step < self._config.warmup:
            self._alarm = False
            return "warm-up"
        passed = step - state.last
        can_pay = state.credit + passed / n >= 1.0
        alarm = self._alarm_of(step, active_K, signals) if can_pay else ""
        self._alarm = bool(alarm)
        gap = state.gap if can_pay else max(state.gap, float(n))
        return alarm or ("time" if passed >= round(gap) else "")

    def solved(self, step: int, active_K: Bools, cosine: float) -> None:
        """Take note of a solve.

        Args:
            step: the step that solved.
            active_K: rewards with signal in it.
            cosine: of the direction that cached weights would have taken with the solved one; NaN where unknown.
        """
        state, n = self._state, float(self._config.n)
        passed = n if state.last is None else float(step - state.last)
        if step >= self._config.warmup:  # the warm-up says nothing about gaps
            state.credit = min(MAX_CREDIT, state.credit + passed / n) - 1.0
            state.gap = self._next_gap(cosine, measures=state.noise is None and passed == 1.0)
        elif step == self._config.warmup - 1:
            state.gap = 1.0
        state.last = step
        state.sets = {key: at for key, at in state.sets.items() if step - at <= MAX_STRETCH * n}
        state.sets[_key(active_K)] = step
        state.reference, self._latest = self._latest, None
        state.early, state.late, self._alarm = [], [], False

    def _next_gap(self, cosine: float, measures: bool) -> float:
        """Steps to the next solve on schedule; `measures`: this one was made to measure the noise."""
        state, n = self._state, float(self._config.n)
        if self._alarm:
            state.apart = None
            return 1.0
        if measures:
            state.noise = None if math.isnan(cosine) else max(0.0, 1.0 - cosine)
            return n
        if state.gap < n:
            return min(2 * state.gap, n)
        if math.isnan(cosine):
            return state.gap
        apart = max(0.0, 1.0 - cosine)
        state.apart = apart if state.apart is None else (state.apart + apart) / 2
        near = state.apart - (state.noise or 0.0) <= FAR
        return min(GROWTH * state.gap, MAX_STRETCH * n) if near else n

    def _note(self, norm: float) -> None:
        """One more norm of an amortised step."""
        if not (math.isfinite(norm) and norm > 0):
            return
        if len(self._state.early) < NORM_WINDOW:
            self._state.early.append(math.log(norm))
        else:
            self._state.late = [*self._state.late[1 - NORM_WINDOW :], math.log(norm)]

    def _alarm_of(self, step: int, active_K: Bools, signals: Signals | None) -> str:
        state = self._state
        at = state.sets.get(_key(active_K))
        if at is None or step - at > MAX_STRETCH * self._config.n:
            return "active set"
        if signals is not None and state.reference is not None and correlations_moved(state.reference, signals):
            return "advantages"
        if len(state.late) == NORM_WINDOW:
            change = math.fsum(state.late) - math.fsum(state.early)
            if abs(change) > NORM_WINDOW * math.log(NORM_FACTOR):
                return "norm"
        return ""

    def state_dict(self) -> dict[str, Any]:
        """JSON-able, bit for bit; taken between steps."""
        state = self._state
        return {
            "gap": state.gap,
            "credit": state.credit,
            "last": state.last,
            "sets": dict(state.sets),
            "reference": None if state.reference is None else _signals_to_json(state.reference),
            "early": list(state.early),
            "late": list(state.late),
            "noise": state.noise,
            "apart": state.apart,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Remember what :meth:`state_dict` gave.

        Raises:
            ValueError: a key is missing; nothing is loaded then.
        """
        missing = [key for key in self.state_dict() if key not in state]
        if missing:
            raise ValueError(f"state of the adaptive refresh lacks {', '.join(missing)}, got keys {list(state)}")
        values = {key: state[key] for key in self.state_dict()}
        if values["reference"] is not None:
            values["reference"] = _signals_from_json(values["reference"])
        # Copies: what was loaded from stays as it was while the run goes on.
        values |= {"sets": dict(values["sets"]), "early": list(values["early"]), "late": list(values["late"])}
        self._state = _State(**values)
        self._latest, self._alarm = None, False


def correlations_moved(before: Signals, now: Signals) -> bool:
    """Whether advantages are correlated otherwise than before, beyond sampling noise and by an amount that matters."""
    upper = np.triu_indices(len(now.correlation_KK), 1)
    changes, noises = now.correlation_KK[upper] - before.correlation_KK[upper], _noise(before, now)[upper]
    known = np.isfinite(changes) & np.isfinite(noises)
    if not known.any():
        return False
    excess = float((changes[known] ** 2 - noises[known]).mean())
    deviation = math.sqrt(2 * float((noises[known] ** 2).sum())) / int(known.sum())
    return excess > max(MOVED**2, DEVIATIONS * deviation)


def _noise(before: Signals, now: Signals) -> Floats:
    """[K, K] variance of the difference of two unchanged correlations, 1/n + 1/n₀; infinite for too few samples."""
    parts = (np.where(s.counts_KK >= MIN_SAMPLES, 1.0 / np.maximum(s.counts_KK, 1), np.inf) for s in (before, now))
    return np.asarray(sum(parts))


def _key(active_K: Bools) -> str:
    return "".join("1" if active else "0" for active in active_K)


def _signals_to_json(signals: Signals) -> dict[str, Any]:
    rows = [[None if math.isnan(r) else r for r in row] for row in signals.correlation_KK.tolist()]
    return {"correlation": rows, "counts": signals.counts_KK.tolist()}


def _signals_from_json(state: Mapping[str, Any]) -> Signals:
    rows = [[math.nan if r is None else r for r in row] for row in state["correlation"]]
    return Signals(np.array(rows, dtype=np.float64), np.array(state["counts"], dtype=np.intp), math.nan)
