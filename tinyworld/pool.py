"""Rendered training pictures, made once and kept: picture i of a pool depends on (pool seed, i) alone."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tinyworld.captions import Prompt, sample_prompt
from tinyworld.render import render
from tinyworld.scene import SIZE, SOURCES, Scene
from tinyworld.splits import Kind
from tinyworld.world import realise


@dataclass(frozen=True)
class PoolSpec:
    """What a pool holds."""

    name: str
    seed: int
    size: int
    source_weights: tuple[float, float, float]
    """Share of general, ocr, geneval."""
    unseen_share: float = 0.0
    """Share of unseen prompts: 0 for what the generator learns from."""


def scene_at(spec: PoolSpec, index: int) -> tuple[Prompt, Scene]:
    """Prompt and scene of picture ``index``."""
    rng = np.random.default_rng((spec.seed, index))
    source = SOURCES[int(rng.choice(len(SOURCES), p=spec.source_weights))]
    kind: Kind = "unseen" if rng.random() < spec.unseen_share else "seen"
    prompt = sample_prompt(rng, source, kind)
    return prompt, realise(prompt, rng, kind)


def load_pool(spec: PoolSpec, work: Path) -> tuple[NDArray[np.uint8], list[str]]:
    """Pictures uint8 [size, 64, 64, 3] (memory-mapped) and captions; rendered when the file is not there yet."""
    weights = "-".join(f"{100 * w:.0f}" for w in spec.source_weights)
    path = work / f"pool-{spec.name}-{spec.seed}-{spec.size}-{weights}-{100 * spec.unseen_share:.0f}.npy"
    scenes = [scene_at(spec, index)[1] for index in range(spec.size)]
    if not path.exists():
        work.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        images = np.lib.format.open_memmap(partial, "w+", np.uint8, (spec.size, SIZE, SIZE, 3))
        for index, scene in enumerate(scenes):
            images[index] = render(scene)
        images.flush()
        partial.rename(path)
    return np.load(path, mmap_mode="r"), [scene.caption for scene in scenes]
