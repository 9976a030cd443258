"""What the learner tells the harmonizer beside the Gram matrix."""

import numpy as np
import pytest
import torch

from learner.signals import advantage_correlation, kl_cosines


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
    gradients_KP = torch.tensor([[3.0, 4.0], [-1e-15, 0.0], [0.0, 0.0], [torch.nan, 1.0]])
    cosines_K = kl_cosines(gradients_KP, torch.tensor([1e-12, 0.0]))
    np.testing.assert_allclose(cosines_K, [0.6, -1.0, np.nan, np.nan], rtol=1e-6)
    assert np.isnan(kl_cosines(gradients_KP, torch.zeros(2))).all()
