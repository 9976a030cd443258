"""Images are checked in one place, and resized as Pillow does."""

from typing import Any

import numpy as np
import pytest
from PIL import Image

from rewards.images import COEFFICIENT_BITS, check_batch, check_images, resize_matrix, upsample


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.full((1, 2, 2, 3), 0.5, np.float32), r"uint8 \[N, H, W, 3\], got float32 with values from 0\.5 to 0\.5"),
        (np.linspace(-1, 1, 12, dtype=np.float64).reshape(1, 2, 2, 3), "float64 with values from -1 to 1"),
        (np.array([[[[0.0, np.nan, np.inf]]]]), "float64 with 2 values that are not finite"),
        (np.full((1, 2, 2, 3), 300, np.int64), "int64 with values from 300 to 300"),
        (np.zeros((1, 2, 2, 3), np.bool_), "got bool"),
        (np.zeros((1, 2, 2, 3), np.complex64), "got complex64"),
        (np.zeros((0, 2, 2, 3), np.float32), r"got float32 of shape \[0, 2, 2, 3\]"),
        (np.zeros((1, 3, 2, 2), np.uint8), r"got \[1, 3, 2, 2\]; the channels come last"),
        (np.zeros((2, 2, 3), np.uint8), "leading axis of 1"),
        (np.zeros((1, 2, 2, 4), np.uint8), r"got \[1, 2, 2, 4\]"),
        (np.zeros((1, 0, 2, 3), np.uint8), r"got \[1, 0, 2, 3\]"),
        ([[1, 2]], "got list"),
    ],
)
def test_anything_but_bytes_raises_with_what_was_got(images: Any, message: str) -> None:
    """FAULTS 13."""
    with pytest.raises(ValueError, match=message):
        check_images(images)


def test_good_images_come_back_themselves() -> None:
    images = np.zeros((2, 4, 5, 3), np.uint8)
    assert check_images(images) is images


def test_batch_of_unequal_parts() -> None:
    images = np.zeros((2, 4, 5, 3), np.uint8)
    with pytest.raises(ValueError, match="2 images, 3 prompts and 1 metadata"):
        check_batch(images, ["a", "b", "c"], [{}])
    wrong: Any = ["a", None]
    with pytest.raises(ValueError, match="prompt 1 must be a string, got NoneType"):
        check_batch(images, wrong, [{}, {}])
    for foreign in (None, "tag", [("tag", "x")]):
        note: Any = foreign
        with pytest.raises(ValueError, match=f"metadata 1 must be a mapping, got {type(note).__name__}"):
            check_batch(images, ["a", "b"], [{}, note])


def test_weights_of_halving_by_hand() -> None:
    """2 to 1: the cubic kernel at ±1/4 of its doubled width gives 0.5 each; in fixed point 2^21."""
    assert resize_matrix(2, 1).tolist() == [[2.0 ** (COEFFICIENT_BITS - 1)] * 2]


def test_weights_are_whole_and_sum_to_one() -> None:
    for sizes in ((64, 224), (512, 224), (7, 3)):
        matrix = resize_matrix(*sizes)
        assert matrix.shape == sizes[::-1]
        assert (matrix == np.round(matrix)).all()
        assert abs(matrix.sum(axis=1) - 2**COEFFICIENT_BITS).max() < sizes[0]


@pytest.mark.parametrize(("height", "width", "expected"), [(20, 30, (40, 60)), (30, 20, (60, 40)), (13, 13, (40, 40))])
def test_upsample_enlarges_the_shorter_side(height: int, width: int, expected: tuple[int, int]) -> None:
    image = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    large = upsample(image, 40)
    assert large.shape == (*expected, 3)
    pillow = Image.fromarray(image).resize(expected[::-1], Image.Resampling.BICUBIC)
    assert np.array_equal(large, np.asarray(pillow))


def test_upsample_leaves_large_images_alone() -> None:
    image = np.zeros((40, 50, 3), np.uint8)
    assert upsample(image, 40) is image
