"""Refresh policies on a drifting toy: ``python benchmarks/adaptive_refresh.py [--steps 400] [--seeds 3] [--json]``.

Every step has N samples with random features z; reward k's advantages are b_k·z plus noise, its gradient is
1/N Σ_i A_ki φ(z_i). Advantages and gradients thus move together when the b_k turn, as in DiffusionNFT, where g_k is a
sum of A_ki times what does not depend on k. A policy sees batches only; its direction is held against the min-norm
direction of the true gradients, in degrees.

The comparison that counts gives every_n at least as many solves as `adaptive` took, by a smaller n.
Letters: K rewards, N samples, L features, P parameters.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from harmonizer.arrays import Bools, Floats
from harmonizer.config import HarmonizerConfig
from harmonizer.formulas import cosine_between
from harmonizer.harmonizer import Harmonizer, Signals
from harmonizer.min_norm import MinNorm
from learner.signals import advantage_correlation

ADVANTAGE_NOISE = 0.5
GRADIENT_NOISE = 0.5
TURN_STEPS = 4
"""A burst turns the b_k to new directions within so many steps."""
SCENARIOS = ("still", "bursts", "coming_and_going", "steady_drift", "flicker")


@dataclass(frozen=True)
class Truth:
    """One step of the toy world."""

    tastes_KL: Floats
    """b_k, of length 1."""
    active_K: Bools


@dataclass(frozen=True)
class Outcome:
    """What a policy did in a whole run."""

    solves: int
    error_deg: float
    """Mean angle between the direction taken and the min-norm direction of the true gradients."""


def _unit(rows: Floats) -> Floats:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def _random_tastes(rng: np.random.Generator, num_rewards: int, num_features: int) -> Floats:
    """[K, L] with something in common, so that a direction serves all."""
    return _unit(rng.standard_normal((num_rewards, num_features)) + 0.5 * rng.standard_normal(num_features))


def world(scenario: str, num_rewards: int, num_features: int, num_steps: int, seed: int) -> Iterator[Truth]:
    """The truth at every step."""
    rng = np.random.default_rng((seed, SCENARIOS.index(scenario)))
    old = new = _random_tastes(rng, num_rewards, num_features)
    turn, next_burst, missing = TURN_STEPS, int(rng.integers(30, 100)), 0
    for step in range(num_steps):
        if scenario in ("bursts", "coming_and_going") and step == next_burst:
            old, new, turn = new, _random_tastes(rng, num_rewards, num_features), 0
            next_burst += int(rng.integers(30, 100))
            missing = int(rng.integers(num_rewards)) if scenario == "coming_and_going" and not missing else 0
        if scenario == "steady_drift" and step % 60 == 0:
            old, new = new, _random_tastes(rng, num_rewards, num_features)
        turn = min(turn + 1, TURN_STEPS)
        share = (step % 60) / 60 if scenario == "steady_drift" else turn / TURN_STEPS
        active_K = np.ones(num_rewards, dtype=bool)
        if missing:
            active_K[missing] = False
        if scenario == "flicker":
            active_K &= rng.random(num_rewards) < 0.9
            active_K[0] = True
        yield Truth(_unit((1 - share) * old + share * new), active_K)


def run(
    config: HarmonizerConfig, scenario: str, num_rewards: int, num_samples: int, num_steps: int, seed: int
) -> Outcome:
    """Let a harmonizer go through a world; batches are the same for every configuration."""
    rng = np.random.default_rng((seed, 99))
    num_features = 2 * num_rewards + 2
    features_LP = rng.standard_normal((num_features, 3 * num_features)) * rng.uniform(0.5, 2.0, (num_features, 1))
    harmonizer = Harmonizer([f"r{k}" for k in range(num_rewards)], config)
    errors, solves, norm = [], 0, float("nan")
    for step, truth in enumerate(world(scenario, num_rewards, num_features, num_steps, seed)):
        z_NL = rng.standard_normal((num_samples, num_features))
        noise_KN = ADVANTAGE_NOISE * rng.standard_normal((num_rewards, num_samples))
        advantages_KN = truth.tastes_KL @ z_NL.T + noise_KN
        phi_NP = z_NL @ features_LP + GRADIENT_NOISE * rng.standard_normal((num_samples, features_LP.shape[1]))
        gradients_KP = advantages_KN @ phi_NP / num_samples
        signal_KN = np.broadcast_to(truth.active_K[:, None], advantages_KN.shape)
        signals = Signals(*advantage_correlation(advantages_KN, signal_KN), norm)
        plan = harmonizer.plan(step, truth.active_K, signals)
        if plan.weights is None:
            coefficients_K = harmonizer.solve(step, gradients_KP @ gradients_KP.T, truth.active_K).coefficients_K
            solves, norm = solves + 1, float("nan")
        else:
            coefficients_K = plan.weights.coefficients_K
            norm = float(np.linalg.norm(coefficients_K @ gradients_KP))
        errors.append(_angle(truth.tastes_KL @ features_LP, truth.active_K, coefficients_K))
    return Outcome(solves, float(np.nanmean(errors)))


MIN_NORM = MinNorm()


@cache
def _best(unit: bytes, size: int) -> bytes:
    """α* of a Gram matrix: between bursts the truth stands still, and every policy is held against the same."""
    unit_MM = np.frombuffer(unit).reshape(size, size)
    return MIN_NORM(unit_MM, np.arange(size)).alpha_M.tobytes()


def _angle(gradients_KP: Floats, active_K: Bools, coefficients_K: Floats) -> float:
    """Degrees between Σ a_k g_k and the min-norm direction of the true gradients."""
    present_KP = gradients_KP[active_K]
    norms = np.linalg.norm(present_KP, axis=1)
    unit = present_KP @ present_KP.T / np.outer(norms, norms)
    best = np.frombuffer(_best(unit.tobytes(), len(unit)))
    return float(np.degrees(np.arccos(cosine_between(unit, best, coefficients_K[active_K] * norms))))


def compared(
    scenario: str, num_rewards: int, num_samples: int, num_steps: int, seed: int
) -> tuple[Outcome, Outcome, Outcome]:
    """`adaptive`; `every_n` with at least as many solves; `every_n` as it comes (n = 10)."""

    def outcome(**refresh: object) -> Outcome:
        config = HarmonizerConfig.model_validate({"refresh": refresh})
        return run(config, scenario, num_rewards, num_samples, num_steps, seed)

    adaptive = outcome(policy="adaptive")
    return adaptive, outcome(n=max(1, (num_steps - 1) // max(1, adaptive.solves - 1))), outcome()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rewards", type=int, nargs="+", default=[2, 5, 16])
    parser.add_argument("--samples", type=int, nargs="+", default=[96, 1152])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for num_rewards in options.rewards:
        for num_samples in options.samples:
            for scenario in SCENARIOS:
                runs = [compared(scenario, num_rewards, num_samples, options.steps, s) for s in range(options.seeds)]
                means = np.array([[(o.solves, o.error_deg) for o in row] for row in runs]).mean(axis=0)
                rows.append({"K": num_rewards, "N": num_samples, "scenario": scenario, "means": means.tolist()})
    if options.json:
        print(json.dumps(rows))
        return
    print("solves and mean error in degrees          adaptive      as many solves    every 10th")
    for row in rows:
        cells = "  ".join(f"{solves:6.1f} {error:6.1f}°" for solves, error in row["means"])
        print(f"K {row['K']:2}  N {row['N']:4}  {row['scenario']:18}  {cells}")


if __name__ == "__main__":
    main()
