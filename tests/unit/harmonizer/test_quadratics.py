"""A toy that can be proved: descent on the weighted sum loses a reward, descent along MARBLE's direction loses none.

Losses f_k(x) = c_k/2 ‖x − m_k‖² in the plane, c = (100, 1), m_1 = (0, 0), m_2 = (1, 0); start x₀ = (1, 1/2).

Weighted sum. Σ f_k is strongly convex with its only minimum at x̄ = Σ c_k m_k / Σ c_k = (1/101, 0), to which gradient
descent with a step below 2/101 converges. There f_2(x̄) = ½ (100/101)² ≈ 0.490, but f_2(x₀) = ½ (1/2)² = 0.125: reward 2
ends nearly four times worse than it began, for the only reason that reward 1 has the larger scale.

MARBLE. d = n̄ Σ α*_k ĝ_k =: n̄ d̂, and at the min-norm point ⟨ĝ_k, d̂⟩ ≥ ‖d̂‖². As f_k has curvature c_k,
    f_k(x − η d) ≤ f_k(x) − η ‖g_k‖ n̄ ‖d̂‖² + η² c_k/2 n̄² ‖d̂‖²,
so f_k does not grow while η ≤ 2 ‖g_k‖ / (c_k n̄) = 2 ‖x − m_k‖ / n̄, since ‖g_k‖ = c_k ‖x − m_k‖. With
η = γ min_k ‖x − m_k‖ / n̄, γ ≤ 1, no loss ever grows, and each falls by at least η ‖g_k‖ n̄ ‖d̂‖²/2: descent can only come
to rest where d̂ = 0, which is the segment between m_1 and m_2, the Pareto front. Under a preference p the first bound
reads ⟨ĝ_k, d̂⟩ ≥ p_k/max p · ‖d̂‖², and the same follows for γ ≤ min p / max p (and no growth for twice that).
"""

from typing import Any

import numpy as np
import pytest

from harmonizer.arrays import Floats
from harmonizer.config import HarmonizerConfig
from harmonizer.harmonizer import Harmonizer

CURVATURES = np.array([100.0, 1.0])
MINIMA = np.array([[0.0, 0.0], [1.0, 0.0]])
START = np.array([1.0, 0.5])
BOTH = np.ones(2, dtype=bool)


def losses(x: Floats) -> Floats:
    return np.asarray(CURVATURES / 2 * ((x - MINIMA) ** 2).sum(axis=1))


def gradients(x: Floats) -> Floats:
    return np.asarray(CURVATURES[:, None] * (x - MINIMA))


def balanced_descent(steps: int, gamma: float, **settings: Any) -> list[Floats]:
    """Points of descent along the harmonizer's direction, with the proof's step size."""
    harmonizer = Harmonizer(("one", "two"), HarmonizerConfig(refresh={"policy": "every_step"}, **settings))
    points = [START]
    for step in range(steps):
        g_KP = gradients(points[-1])
        solution = harmonizer.solve(step, g_KP @ g_KP.T, BOTH)
        if solution.report.status == "stationary":
            break
        eta = gamma * np.linalg.norm(points[-1] - MINIMA, axis=1).min() / solution.mean_norm
        points.append(points[-1] - eta * (solution.coefficients_K @ g_KP))
    return points


def test_the_weighted_sum_loses_a_reward() -> None:
    harmonizer = Harmonizer(("one", "two"), HarmonizerConfig(method="weighted_gradients", weights={"one": 1, "two": 1}))
    x = START
    for step in range(2000):
        g_KP = gradients(x)
        coefficients_K = harmonizer.solve(step, g_KP @ g_KP.T, BOTH).coefficients_K
        x = x - 0.01 * (coefficients_K @ g_KP)
    np.testing.assert_allclose(x, [1 / 101, 0], atol=1e-8)
    assert losses(x)[1] == pytest.approx(0.5 * (100 / 101) ** 2, rel=1e-6)
    assert losses(x)[1] > 3.9 * losses(START)[1]


@pytest.mark.parametrize("settings", [{}, {"preference": {"one": 1.0, "two": 3.0}}])
def test_marble_loses_none_and_comes_to_rest_on_the_pareto_front(settings: dict[str, Any]) -> None:
    points = balanced_descent(400, 0.5, **settings)
    values = np.array([losses(x) for x in points])
    assert (np.diff(values, axis=0) <= 1e-12).all()
    assert (values[-1] < values[0]).all()
    x = points[-1]
    assert abs(x[1]) < 1e-3
    assert 0 < x[0] < 1


def test_a_preference_decides_where_on_the_front() -> None:
    """Who is preferred ends nearer to its own minimum."""
    ends = [balanced_descent(400, 0.5, preference={"one": p, "two": 1.0})[-1][0] for p in (0.3, 1.0, 3.0)]
    assert ends[0] > ends[1] > ends[2]
