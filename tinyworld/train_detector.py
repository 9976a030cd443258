"""Stage ``strict_detector``: a small network learns where whole, clean shapes are, and that spoilt ones are none.

Pictures are bent, blurred and cut into as a weak generator might draw; an object that is bent too far, or of which a
good part is missing, is no object to it. So it is strict where the training detector's templates forgive.
"""

from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from tinyworld.loop import set_lr, warmup_cosine
from tinyworld.palette import SHAPES
from tinyworld.pipeline import replace_folder
from tinyworld.render import render
from tinyworld.scene import SIZE, Item, Scene
from tinyworld.spot_net import CELL, FOLDER, WEIGHTS_FILE, build_spot_net
from tinyworld.train_judges import SEED_OFFSET, draw_scene
from tinyworld.train_preference import warp

BATCH: Final = 96
LR: Final = 2e-3
CLEAN: Final = 0.3
"""Damage up to which a shape is surely one ..."""
SPOILT: Final = 0.6
"""... and from which it surely is none."""
CUT_SHARE: Final = 0.2
"""Share of pictures of which one object loses half of itself."""
PLACE_WEIGHT: Final = 2.0
FOCUS: Final = 2.0
"""Exponent of the focal weight: easy empty cells would drown the few that hold something."""


class DetectorStage:
    """Focal cross-entropy on where shapes are, L1 on their centres and sizes."""

    name = "strict_detector"

    def __init__(self, seed: int, steps: int, work: Path) -> None:
        self.steps = steps
        self.net = build_spot_net(seed + SEED_OFFSET).train()
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=LR, weight_decay=0.01)

    def step(self, index: int, rng: np.random.Generator) -> float:
        pixels, sure, places = examples(rng, BATCH)
        logits, found = self.net(pixels)
        loss = spot_loss(logits, found, sure, places)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        set_lr(self.optimizer, LR * warmup_cosine(index, self.steps))
        self.optimizer.step()
        return loss.item()

    def state(self) -> dict[str, Any]:
        return {"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])

    def finish(self) -> None:
        tensors = {key: tensor.half().contiguous() for key, tensor in self.net.state_dict().items()}

        def write(folder: Path) -> None:
            folder.mkdir()
            save_file(tensors, folder / WEIGHTS_FILE)

        replace_folder(FOLDER, write)


def spot_loss(logits: Tensor, places: Tensor, sure: Tensor, wanted: Tensor) -> Tensor:
    """Of logits [N, shapes, H, W] against how surely a shape is there, and of places where one is.

    The focal weight is the distance between the two numbers, so that a target between 0 and 1 is learned as such (Li et
    al. 2020, arXiv 2006.04388).
    """
    gap = (torch.sigmoid(logits) - sure).abs().detach()
    there = sure.amax(dim=1, keepdim=True)
    number = there.sum().clamp(min=1.0)
    presence = (gap**FOCUS * functional.binary_cross_entropy_with_logits(logits, sure, reduction="none")).sum()
    return (presence + PLACE_WEIGHT * (there * (places - wanted).abs()).sum()) / number


def examples(rng: np.random.Generator, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Pixels [N, 3, 64, 64], how surely each shape is in each cell [N, shapes, 8, 8], and places [N, 3, 8, 8]."""
    images, sure, places = [], [], []
    damage = np.where(rng.random(count) < 0.5, 0.0, rng.random(count))
    for bent in damage:
        scene = draw_scene(rng)
        cut = int(rng.integers(len(scene.items))) if scene.items and rng.random() < CUT_SHARE else None
        image = render(scene)
        images.append(image if cut is None else without_half(image, scene.items[cut], rng))
        one_sure, one_place = targets(scene, float(np.clip((SPOILT - bent) / (SPOILT - CLEAN), 0, 1)), cut)
        sure.append(one_sure)
        places.append(one_place)
    pixels = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() / 255
    pixels = warp(soften(pixels, rng), torch.from_numpy(damage).float())
    return pixels, torch.from_numpy(np.stack(sure)), torch.from_numpy(np.stack(places))


def targets(scene: Scene, sure: float, cut: int | None) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """[shapes, 8, 8] and [3, 8, 8] of one scene; object `cut` is none."""
    side = SIZE // CELL
    points, places = np.zeros((len(SHAPES), side, side), np.float32), np.zeros((3, side, side), np.float32)
    for index, item in enumerate(scene.items):
        if index != cut:
            column, row = (min(int(at / CELL), side - 1) for at in (item.x, item.y))
            points[SHAPES.index(item.shape), row, column] = sure
            places[:, row, column] = item.x / CELL - column, item.y / CELL - row, item.radius / CELL
    return points, places


def without_half(image: NDArray[np.uint8], item: Item, rng: np.random.Generator) -> NDArray[np.uint8]:
    """The picture with one side of an object painted over in the colour of the picture's corner."""
    cut = image.copy()
    low_x, high_x = round(item.x - item.radius) - 1, round(item.x + item.radius) + 1
    low_y, high_y = round(item.y - item.radius) - 1, round(item.y + item.radius) + 1
    middle_x, middle_y = round(item.x), round(item.y)
    x, y = [
        (slice(max(low_x, 0), middle_x), slice(max(low_y, 0), high_y)),
        (slice(middle_x, high_x), slice(max(low_y, 0), high_y)),
        (slice(max(low_x, 0), high_x), slice(max(low_y, 0), middle_y)),
        (slice(max(low_x, 0), high_x), slice(middle_y, high_y)),
    ][int(rng.integers(4))]
    cut[y, x] = image[0, 0]
    return cut


def soften(pixels: Tensor, rng: np.random.Generator) -> Tensor:
    """Each picture [N, 3, H, W] blended with its blurred self by a random share, and a little noise."""
    soft = functional.avg_pool2d(functional.pad(pixels, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
    share = torch.from_numpy(rng.random((len(pixels), 1, 1, 1))).float()
    return (pixels + share * (soft - pixels) + 0.02 * float(rng.random()) * torch.randn_like(pixels)).clamp(0, 1)
