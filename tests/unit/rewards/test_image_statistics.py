"""Measures of the pixels against pictures whose values are known."""

import numpy as np
import pytest
from numpy.typing import NDArray

from rewards import image_statistics as statistics
from rewards.config import RewardConfig
from rewards.registry import build_scorer, self_test

NAMES = ("Compressibility", "Sharpness", "Contrast", "Colorfulness", "Exposure", "Entropy")


def plain(*rgb: int, side: int = 8) -> NDArray[np.uint8]:
    return np.broadcast_to(np.array(rgb, np.uint8), (side, side, 3)).copy()


def halves(left: int, right: int, side: int = 8) -> NDArray[np.uint8]:
    image = plain(left, left, left, side=side)
    image[:, side // 2 :] = right
    return image


@pytest.mark.parametrize("name", NAMES)
def test_every_one_is_reached_by_its_path_and_passes_the_self_test(name: str) -> None:
    scorer = build_scorer("it", RewardConfig(scorer=f"rewards.image_statistics:{name}"))
    assert np.isfinite(self_test(scorer, 64).scores).all()
    images = np.stack([plain(10, 20, 30), halves(0, 255)])
    result = scorer(images, ["a", "b"], [{}, {}])
    assert result.states.tolist() == [0, 0]
    assert result.scores.tolist() == pytest.approx([scorer.value(image) for image in images])  # type: ignore[attr-defined]


def test_row_13_other_ranges_are_refused() -> None:
    with pytest.raises(ValueError, match="uint8"):
        statistics.Contrast()(np.zeros((1, 8, 8, 3)), ["a"], [{}])  # type: ignore[arg-type]


def test_contrast_and_entropy_of_two_halves() -> None:
    """Grey 0 and 1 in equal parts: σ = 1/2; one bit of eight."""
    image = halves(0, 255)
    assert statistics.Contrast().value(image) == pytest.approx(0.5)
    assert statistics.Entropy().value(image) == pytest.approx(1 / 8)
    assert statistics.Contrast().value(plain(9, 9, 9)) == pytest.approx(0.0, abs=1e-12)
    assert statistics.Entropy().value(plain(9, 9, 9)) == 0.0


def test_sharpness_by_hand() -> None:
    """An edge of height 100 between two of four columns: Laplacians 0, 100, −100, 0, variance 5000."""
    assert statistics.Sharpness().value(halves(100, 200, side=4)) == pytest.approx(np.log1p(5000.0))
    assert statistics.Sharpness().value(plain(5, 5, 5)) == pytest.approx(0.0, abs=1e-9)


def test_exposure_is_one_at_middle_grey() -> None:
    assert statistics.Exposure().value(plain(127, 128, 127)) == pytest.approx(1.0, abs=1e-3)
    assert statistics.Exposure().value(plain(0, 0, 0)) == pytest.approx(np.exp(-3 * 0.25 / 0.08))


def test_colorfulness_by_hand() -> None:
    """Pure red: no spread; opponents 1 and 1/2, so 0.3 √(1 + 1/4)."""
    assert statistics.Colorfulness().value(plain(255, 0, 0)) == pytest.approx(0.3 * np.sqrt(1.25))
    assert statistics.Colorfulness().value(halves(0, 255)) == pytest.approx(0.0, abs=1e-12)


def test_noise_compresses_worse_than_a_plain_picture() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    scorer = statistics.Compressibility()
    assert scorer.value(noise) < scorer.value(plain(10, 200, 30, side=64)) < 0
    with pytest.raises(ValueError, match="quality must be 1 to 95, got 0"):
        statistics.Compressibility(0)
