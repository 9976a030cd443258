"""What the learner tells the harmonizer beside the Gram matrix."""

import numpy as np
import pytest

from learner.signals import advantage_correlation, kl_cosines, kl_geometry


def test_correlations_are_numpys_over_the_samples_both_have() -> None:
    rng = np.random.default_rng(0)
    advantages_KN, signal_KN = rng.standard_normal((4, 50)) + 3.0, rng.random((4, 50)) < 0.7
    advantages_KN[1] += 2 * advantages_KN[0]
    correlation_KK, counts_KK = advantage_correlation(np.where(signal_KN, advantages_KN, np.nan), signal_KN)
    for k in range(4):
        for other in range(4):
            both_N = signal_KN[k] & signal_KN[other]
            expected = np.corrcoef(advantages_KN[k, both_N], advantages_KN[other, both_N])[0, 1]
            assert correlation_KK[k, other] == pytest.approx(expected, abs=1e-12)
            assert counts_KK[k, other] == both_N.sum()


def test_what_does_not_vary_or_is_not_there_has_none() -> None:
    advantages_KN = np.array([[1.0, 2.0, 3.0], [5.0, 5.0, 5.0], [1.0, 2.0, 3.0]])
    signal_KN = np.array([[True, True, True], [True, True, True], [False, False, False]])
    correlation_KK, counts_KK = advantage_correlation(advantages_KN, signal_KN)
    assert correlation_KK[0, 0] == 1.0
    assert np.isnan(correlation_KK[1]).all()
    assert np.isnan(correlation_KK[2]).all()
    assert counts_KK.tolist() == [[3, 3, 0], [3, 3, 0], [0, 0, 0]]


def test_kl_cosines_by_hand_whatever_the_sizes() -> None:
    rows_RP = np.array([[3.0, 4.0], [-1e-15, 0.0], [0.0, 0.0], [np.nan, 1.0], [1e-12, 0.0]])
    np.testing.assert_allclose(kl_cosines(rows_RP @ rows_RP.T), [0.6, -1.0, np.nan, np.nan], rtol=1e-12)
    rows_RP[-1] = 0.0
    assert np.isnan(kl_cosines(rows_RP @ rows_RP.T)).all()


def test_kl_geometry_by_hand() -> None:
    """d = (6, 0) and β ∇KL = (0, 8), then (−3, 4); a row that d leaves out is not read."""
    rows_RP = np.array([[3.0, 0.0], [np.nan, 0.0], [0.0, 4.0]])
    assert kl_geometry(rows_RP @ rows_RP.T, np.array([2.0, 0.0]), 2.0) == (0.0, 0.8)
    rows_RP[-1] = [-3.0, 4.0]
    cosine, share = kl_geometry(rows_RP @ rows_RP.T, np.array([2.0, 0.0]), 1.0)
    assert cosine == pytest.approx(-0.6)
    assert share == pytest.approx(5 / np.hypot(3, 4))
    rows_RP[-1] = 0.0
    assert np.isnan(kl_geometry(rows_RP @ rows_RP.T, np.zeros(2), 1.0)).all()
