"""Do the rewards disagree on the base? ``python -m tinyworld.conflict [--batches 30] [--markdown FILE]``.

Draws batches of rollouts as the learner would, scores them with all five rewards, and takes every reward's gradient at
the base itself, where the old and the trained policy are one. Prints the median K×K cosine matrix, and how often the
gradient of the weighted sum points against some reward. The weights ship only when they disagree by design: two pairs
below -0.05 in the median, and a negative worst cosine of the weighted sum in more than 30% of the batches.

Letters: K rewards, N samples, P trained parameters.
"""

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner import adapters, nft, sampler
from learner.advantages import advantages
from learner.config import AdvantageConfig, LoraConfig, PolicyConfig, SamplingConfig
from learner.noise import generator, sample_seed
from learner.policy import Policy
from learner.types import RolloutTask
from rewards.config import RewardConfig
from rewards.contract import RewardResult, State
from rewards.registry import build_scorer
from tinyworld.base import STEPS, geneval_scorer, ocr_scorer, read_prompts
from tinyworld.pipeline import WEIGHTS
from tinyworld.scene import SIZE, SOURCES

REWARDS: Final = ("pickscore", "hpsv2", "clipscore", "ocr", "geneval")
GROUPS_A_SOURCE: Final = 8
IMAGES_A_GROUP: Final = 8
TIMESTEPS: Final = 2
BETA: Final = 0.1
A_MAX: Final = 5.0
MICRO_BATCH: Final = 32

Score = Callable[[NDArray[np.uint8], list[str], list[dict[str, Any]]], RewardResult]


@dataclass(frozen=True)
class Batch:
    """Rollouts of one batch and their scores."""

    prompts: list[str]
    group_ids: NDArray[np.int64]
    x0: Tensor
    scores_KN: NDArray[np.float32]
    states_KN: NDArray[np.uint8]


def scorers() -> dict[str, Score]:
    """The five rewards of the tiny world by name."""
    clips: dict[str, Score] = {
        name: build_scorer(name, RewardConfig(scorer=name, args={"checkpoint": str(WEIGHTS / name)}))
        for name in ("pickscore", "hpsv2", "clipscore")
    }
    return {**clips, "ocr": ocr_scorer(), "geneval": geneval_scorer()}


def draw_batch(policy: Policy, rewards: dict[str, Score], index: int, rng: np.random.Generator) -> Batch:
    """``GROUPS_A_SOURCE`` training prompts of each source, ``IMAGES_A_GROUP`` pictures each, scored."""
    chosen = []
    for source in SOURCES:
        known = read_prompts(source, "train")
        chosen += [(source, *known[i]) for i in rng.choice(len(known), GROUPS_A_SOURCE, replace=False)]
    latents, images = [], []
    for group, (_, prompt, _) in enumerate(chosen):
        ids = np.arange(IMAGES_A_GROUP) + group * IMAGES_A_GROUP
        task = RolloutTask("train", index, 0, ids, (prompt,) * IMAGES_A_GROUP)
        x0, pictures = sampler.sample(policy, task, SamplingConfig(steps=STEPS))
        latents.append(x0)
        images.append(pictures)
    rows = [row for row in chosen for _ in range(IMAGES_A_GROUP)]
    prompts = [prompt for _, prompt, _ in rows]
    scores, states = _score_all(
        rewards, np.concatenate(images), [row[0] for row in rows], prompts, [row[2] for row in rows]
    )
    groups = np.repeat(np.arange(len(chosen)), IMAGES_A_GROUP)
    return Batch(prompts, groups, torch.cat(latents), scores, states)


def _score_all(
    rewards: dict[str, Score], images: NDArray[np.uint8], sources: list[str], prompts: list[str], metadata: list[Any]
) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Scores and states [K, N]. OCR and GenEval apply to their own sources, the CLIP family to all."""
    scores = np.full((len(rewards), len(prompts)), np.nan, dtype=np.float32)
    states = np.full(scores.shape, State.NOT_APPLICABLE, dtype=np.uint8)
    for row, (name, score) in enumerate(rewards.items()):
        own = np.flatnonzero([name not in SOURCES or source == name for source in sources])
        result = score(images[own], [prompts[i] for i in own], [metadata[i] for i in own])
        scores[row, own], states[row, own] = result.scores, result.states
    return scores, states


def with_weighted_sum(batch: Batch) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Scores and states [K + 1, N]; the last row is the mean of the raw rewards each sample has."""
    scored = batch.states_KN == State.SCORED
    total = np.where(scored, batch.scores_KN, 0).sum(0) / scored.sum(0)
    states = np.zeros((1, scored.shape[1]), dtype=np.uint8)
    return np.vstack([batch.scores_KN, total[None].astype(np.float32)]), np.vstack([batch.states_KN, states])


def gradients(policy: Policy, batch: Batch, index: int) -> NDArray[np.float64]:
    """g_k of every reward and of the weighted sum, [K + 1, P], on the base: only D = L+ - L- has a gradient there."""
    scores, states = with_weighted_sum(batch)
    unknown = np.full(len(scores), np.nan)
    found = advantages(scores, states, batch.group_ids, unknown, AdvantageConfig())
    acceptance = nft.acceptance(torch.from_numpy(found.advantages_KN), A_MAX)
    _, weights_KN = nft.reward_weights(
        acceptance, torch.from_numpy(found.signal_KN), torch.from_numpy(found.counts_K), TIMESTEPS, A_MAX, BETA
    )
    parameters = list(adapters.parameters(policy.transformer, adapters.TRAINED).values())
    total = torch.zeros(len(scores), sum(p.numel() for p in parameters), dtype=torch.float64)
    levels = sampler.trainable_sigmas(policy.scheduler_config, STEPS, 0.99)
    text = policy.encode(batch.prompts)
    draws = generator(sample_seed(0, "conflict", index, 0))
    for _ in range(TIMESTEPS):
        sigma = levels[torch.randint(len(levels), (len(batch.x0),), generator=draws)]
        noise = torch.randn(batch.x0.shape, generator=draws)
        for rows in torch.arange(len(batch.x0)).split(MICRO_BATCH):
            x_t = nft.noised(batch.x0[rows], noise[rows], sigma[rows])
            velocity = policy.velocity(x_t, sigma[rows], text.rows(rows))
            pair = nft.loss_pair(velocity, velocity.detach(), batch.x0[rows], x_t, sigma[rows], BETA)
            _add_gradients(total, velocity, pair.difference_cotangent, weights_KN[:, rows].float(), parameters)
    return total.numpy()


def _add_gradients(
    total: Tensor, velocity: Tensor, cotangent: Tensor, weights_KN: Tensor, parameters: Iterable[torch.nn.Parameter]
) -> None:
    """Add one micro-batch to the gradients [K, P], one backward per row."""
    parameters = list(parameters)
    for row, weights in enumerate(weights_KN):
        grads = torch.autograd.grad(velocity, parameters, weights[:, None, None, None] * cotangent, retain_graph=True)
        total[row] += torch.cat([g.flatten() for g in grads]).double()


def cosines(gradients_KP: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cosine matrix [K, K] of the rows; NaN where a row is zero."""
    norms = np.linalg.norm(gradients_KP, axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        unit = gradients_KP / norms
    return np.asarray(unit @ unit.T)


def report(matrices: list[NDArray[np.float64]], command: str) -> str:
    """Markdown: the median matrix, the pairs that disagree, the worst cosine of the weighted sum."""
    stack = np.stack(matrices)
    median = np.nanmedian(stack, axis=0)
    count = len(REWARDS)
    worst = np.nanmin(stack[:, -1, :count], axis=1)
    pairs = [(a, b) for a in range(count) for b in range(a) if median[a, b] < -0.05]
    lines = ["| cosine | " + " | ".join([*REWARDS, "weighted sum"]) + " |", "|---" * (count + 2) + "|"]
    for name, row in zip([*REWARDS, "weighted sum"], median, strict=True):
        lines.append(f"| {name} | " + " | ".join(f"{value:+.3f}" for value in row) + " |")
    lines += [
        "",
        f"{len(matrices)} batches of {3 * GROUPS_A_SOURCE} prompts × {IMAGES_A_GROUP} images, {STEPS} sampling steps.",
        "",
        f"- Pairs with a median below -0.05: {', '.join(f'{REWARDS[a]}/{REWARDS[b]}' for a, b in pairs) or 'none'}.",
        f"- Worst cosine of the weighted sum over the rewards: median {np.median(worst):+.3f}, "
        f"negative in {100 * (worst < 0).mean():.0f}% of the batches.",
        "",
        f"Command: `{command}`",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=WEIGHTS / "pipeline")
    parser.add_argument("--markdown", type=Path, help="also write the report here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    config = PolicyConfig(base=str(options.folder), resolution=SIZE, max_sequence_length=0, lora=LoraConfig())
    policy = Policy.load(config, [adapters.TRAINED])
    rewards = scorers()
    matrices: list[NDArray[np.float64]] = []
    for index in range(options.batches):
        batch = draw_batch(policy, rewards, index, np.random.default_rng((options.seed, index)))
        matrices.append(cosines(gradients(policy, batch, index)))
        print(f"batch {index + 1}/{options.batches}: worst cosine {np.nanmin(matrices[-1][-1]):+.3f}", flush=True)
    text = report(matrices, f"python -m tinyworld.conflict --batches {options.batches} --seed {options.seed}")
    print(text)
    if options.markdown:
        options.markdown.write_text("# How the rewards disagree on the base\n\n" + text, encoding="utf-8")


if __name__ == "__main__":
    main()
