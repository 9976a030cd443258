"""Preprocessing in torch against the published Pillow pipeline."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from rewards.preprocess import Fit, Preprocess, centred, resized

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
SIZES = [(64, 64), (512, 512), (90, 160), (161, 90), (224, 224), (31, 47)]


def hard_image(height: int, width: int) -> NDArray[np.uint8]:
    """Black and white noise: the filter overshoots everywhere, where rounding and cutting order shows."""
    bits = np.random.default_rng(height * width).integers(0, 2, (height, width, 3))
    return (bits * 255).astype(np.uint8)


def smooth_image(height: int, width: int) -> NDArray[np.uint8]:
    """Waves of a few periods, as far from black and white noise as pictures are."""
    y, x = np.mgrid[0:height, 0:width] / 100
    waves = [np.sin(7 * x + k) * np.cos(5 * y - k) for k in range(3)]
    return np.round(127.5 + 100 * np.stack(waves, axis=-1)).astype(np.uint8)


def width_then_height(picture: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Pillow's resize as it was before version 13, which does the height first where that is less work.

    Both axes at once and one after the other are the same arithmetic, as Pillow rounds to bytes in between.
    """
    halfway = picture.resize((size[0], picture.height), Image.Resampling.BICUBIC)
    return halfway.resize(size, Image.Resampling.BICUBIC)


def pillow_square(image: NDArray[np.uint8], fit: Fit, resize: int, side: int) -> NDArray[np.uint8]:
    """The same step written with Pillow alone."""
    height, width = image.shape[:2]
    picture = Image.fromarray(image)
    if fit == "stretch":
        return np.asarray(width_then_height(picture, (side, side)))
    if fit == "pad":
        scale = side / max(height, width)
        small = width_then_height(picture, (round(width * scale), round(height * scale)))
        square = Image.new("RGB", (side, side), (0, 0, 0))
        square.paste(small, ((side - small.width) // 2, (side - small.height) // 2))
        return np.asarray(square)
    short, long = min(height, width), max(height, width)
    new_long = int(resize * long / short)
    new = (resize, new_long) if width <= height else (new_long, resize)
    small = width_then_height(picture, new)
    left, top = (small.width - side) // 2, (small.height - side) // 2
    return np.asarray(small.crop((left, top, left + side, top + side)))


@pytest.mark.parametrize(("height", "width"), [(512, 512), (384, 512), (640, 384), (64, 64)])
def test_within_one_level_of_the_installed_pillow(height: int, width: int) -> None:
    """FAULTS 12, 13: on pictures whose sides do not differ much, the order of the axes costs at most one level.

    (On a picture of 500 × 180, Pillow 13 is two levels from Pillow 12.)
    """
    image = smooth_image(height, width)
    new_height, new_width = 96 * height // min(height, width), 96 * width // min(height, width)
    pixels = torch.from_numpy(image[None]).permute(0, 3, 1, 2)
    ours = resized(pixels, new_height, new_width)[0].permute(1, 2, 0).numpy()
    pillow = np.asarray(Image.fromarray(image).resize((new_width, new_height), Image.Resampling.BICUBIC))
    assert abs(ours.astype(int) - pillow.astype(int)).max() <= 1


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("fit", ["crop", "stretch", "pad"])
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_bytes_are_pillows(height: int, width: int, fit: Fit, device: str) -> None:
    """FAULTS 13; the bound wanted is 1/255, the fixed-point filter keeps 0."""
    image = hard_image(height, width)
    pixels = torch.from_numpy(image[None]).permute(0, 3, 1, 2).to(device)
    square = Preprocess(fit, 98, 96).fitted(pixels)[0].permute(1, 2, 0).cpu().numpy()
    assert np.array_equal(square, pillow_square(image, fit, 98, 96))


def test_normalisation_by_hand() -> None:
    """Pixel 255 with mean 0.5 and std 0.25 is (1 - 0.5)/0.25 = 2, pixel 0 is -2; channels keep their own numbers."""
    image = np.zeros((1, 4, 4, 3), np.uint8)
    image[..., 0] = 255
    out = Preprocess("crop", 4, 4, (0.5, 0.5, 0.0), (0.25, 0.25, 1.0))(image)
    assert out.dtype == torch.float32
    assert out.shape == (1, 3, 4, 4)
    assert out[0, :, 0, 0].tolist() == [2.0, -2.0, 0.0]


def test_batch_is_each_image_alone() -> None:
    images = np.stack([hard_image(40, 60), hard_image(60, 40).transpose(1, 0, 2)])
    prepare = Preprocess("crop", 32, 32)
    alone = torch.cat([prepare(images[i : i + 1]) for i in range(2)])
    assert torch.equal(prepare(images), alone)


def test_float_images_are_refused() -> None:
    """FAULTS 13."""
    wrong = np.zeros((1, 8, 8, 3), np.float32)
    with pytest.raises(ValueError, match="got float32"):
        Preprocess("crop", 8, 8)(wrong)  # type: ignore[arg-type]


def test_same_size_is_untouched() -> None:
    pixels = torch.from_numpy(hard_image(8, 8)[None]).permute(0, 3, 1, 2)
    assert resized(pixels, 8, 8) is pixels


def test_bars_are_black_and_centred() -> None:
    """3 rows in a square of 8: 2 above, 3 below, as the published padding rounds."""
    square = centred(torch.full((1, 1, 3, 8), 9, dtype=torch.uint8), 8)
    assert square[0, 0, :, 0].tolist() == [0, 0, 9, 9, 9, 0, 0, 0]
