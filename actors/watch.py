"""What a run's evaluations say as it goes on: has it ceased to get better, does it please its training rewards only?

**Early stop.** The figure is the mean gain over the followed rewards (``evaluation.gain``); the base's is 0. It is
better when it exceeds the last better one by more than `min_delta`; after `patience` evaluations in a row that are not,
the run ends. An evaluation in which none of the followed rewards has a scored cell is none.

**Reward hacking.** Each evaluation is held against the one so far, the base included, in which a held-out reward stood
highest, on the prompts scored both times. There is an alarm where that reward has fallen since by more than ALARM_SE
standard errors of the paired differences, and the rewards trained so far have risen in the mean by more than ALARM_SE
of theirs. It is told once; it may be told again after the reward has come back to within OVER_SE of its best.

Both follow from the evaluations alone, in their order, and a resumed run reads those back.

Letters: N prompts, K rewards.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from actors.evaluation import gain, spread
from actors.results import Alarm, Change, EvaluationResult, paired
from actors.run_config import RunConfig
from learner.stages import trained_until

ALARM_SE = 3.0
"""As for the tables: from three standard errors on a change is called clear. A best of several evaluations is high by
chance too, and each evaluation looks at every held-out reward, so two would cry wolf."""
OVER_SE = 1.0


class Watch:
    """Keeps what it has seen of one run's evaluations."""

    def __init__(self, config: RunConfig) -> None:
        self._config, self._heldout = config, tuple(config.heldout_rewards)
        self._stop = config.eval.early_stop
        self._followed = config.followed(self._stop.by) if self._stop else ()
        self._seen: list[EvaluationResult] = []
        self._alarmed: set[str] = set()
        self._best, self._best_done, self._in_vain = 0.0, 0, 0

    @property
    def verdict(self) -> str:
        """Why the run should end now; empty while it should go on."""
        if self._stop is None or self._in_vain < self._stop.patience:
            return ""
        return (
            f"{self._stop.by} has not got better in {self._in_vain} evaluations in a row; the best was "
            f"{self._best:+.3f} standard deviations from the base after {self._best_done} iterations"
        )

    def note(self, before: EvaluationResult, result: EvaluationResult) -> list[Alarm]:
        """Takes the next evaluation into account; alarms that begin with it.

        Args:
            before: of the base.
            result: later than all before it; one that was noted already changes nothing.
        """
        if result.iteration <= (self._seen[-1].iteration if self._seen else 0):
            return []
        self._count(before, result)
        alarms = [alarm for name in self._heldout if (alarm := self._alarm(name, before, result)) is not None]
        self._seen.append(dataclasses.replace(result, samples=()))
        return alarms

    def _count(self, before: EvaluationResult, result: EvaluationResult) -> None:
        if self._stop is None:
            return
        figure = gain(before, result, self._followed)
        if figure > self._best + self._stop.min_delta:
            self._best, self._best_done, self._in_vain = figure, result.iteration, 0
        elif np.isfinite(figure):
            self._in_vain += 1

    def _alarm(self, name: str, before: EvaluationResult, result: EvaluationResult) -> Alarm | None:
        best = _best(name, before, self._seen)
        fall = difference(best, result, name)
        if name in self._alarmed:
            if fall.mean >= -OVER_SE * fall.se:
                self._alarmed.remove(name)
            return None
        trained = trained_until(self._config.learner, self._config.reward_names, result.iteration)
        rise = mean_change(before, best, result, trained)
        if not (dataclasses.replace(fall, mean=-fall.mean).beyond(ALARM_SE) and rise.beyond(ALARM_SE)):
            return None
        self._alarmed.add(name)
        return Alarm(name, result.iteration, best.iteration, fall, rise)


def _best(name: str, before: EvaluationResult, later: Sequence[EvaluationResult]) -> EvaluationResult:
    """Where a reward stood highest, relative to the base on the same prompts; of equals the earliest."""
    best, highest = before, 0.0
    for result in later:
        height = gain(before, result, (name,))
        if height > highest:
            best, highest = result, height
    return best


def difference(old: EvaluationResult, new: EvaluationResult, name: str) -> Change:
    """One reward's mean paired difference, in its own units."""
    found = paired(old.per_prompt[name], new.per_prompt[name])
    return Change(found.after - found.before, found.se, found.n)


def mean_change(base: EvaluationResult, old: EvaluationResult, new: EvaluationResult, names: Sequence[str]) -> Change:
    """Mean over rewards of the mean paired difference d̄_k, each in units of its spread s_k on the base.

    Its standard error takes a prompt as the unit, so that rewards of one prompt may be as alike as they are: with
    r_i = Σ_k (d_ki − d̄_k)/(s_k K n_k) over the rewards that prompt i has both times, it is √(n/(n−1) Σ_i r_i²). For one
    reward that is the usual one. A reward with fewer than two such prompts has no error and is left out.
    """
    both = {name: new.per_prompt[name] - old.per_prompt[name] for name in names if base.n[name]}
    scaled = [d_N / spread(base, name) for name, d_N in both.items() if np.isfinite(d_N).sum() > 1]
    if not scaled:
        return Change(float("nan"), float("nan"), 0)
    differences_KN = np.stack(scaled)
    known_KN = np.isfinite(differences_KN)
    n = int(known_KN.any(axis=0).sum())
    counts_K = known_KN.sum(axis=1, keepdims=True)
    means_K = np.where(known_KN, differences_KN, 0.0).sum(axis=1, keepdims=True) / counts_K
    residuals_N = (np.where(known_KN, differences_KN - means_K, 0.0) / (len(counts_K) * counts_K)).sum(axis=0)
    return Change(float(means_K.mean()), float(np.sqrt(n / (n - 1) * (residuals_N**2).sum())), n)
