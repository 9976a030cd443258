"""The methods that are compared, each as a change of the same recipe (DESIGN 7; MARBLE, Tables 1 and 3).

A recipe is plain data here, every default filled in. A method that is laid down in a file beside the recipe,
`<recipe>_<method>.yaml`, is taken from there instead.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deploy.layers import merged
from harmonizer.config import HarmonizerConfig
from learner.config import FLOW_GRPO, WEIGHTED_SUM, LearnerConfig, SamplingConfig
from learner.errors import UserError

Data = dict[str, Any]

MARBLE, UNIFORM, SEQUENTIAL, SINGLE = "marble", "uniform", "sequential", "single"
ABLATIONS = ("marble_paper", UNIFORM, "every_step", "unnormalized", "no_ema")
"""What each part of MARBLE is worth; beside `marble` itself they make Table 3."""
SUITES = {
    "core": (MARBLE, WEIGHTED_SUM, UNIFORM, SEQUENTIAL),
    "paper": (
        MARBLE, WEIGHTED_SUM, UNIFORM, SEQUENTIAL, "marble_paper", "every_step", "unnormalized", "no_ema", SINGLE,
        FLOW_GRPO,
    ),
}  # fmt: skip
SCHEDULE = ((0, 800), (1, 300), (0, 200), (1, 200), (2, 100))
"""The paper's stages: which set of rewards, and for how many of its 1600 steps."""
GRPO_STEPS, GRPO_NOISE, GRPO_CLIP, GRPO_RESOLUTION = 10, 0.7, 1e-4, 512
"""Flow-GRPO's public recipe: sampling steps of a rollout, noise level, clip range at a resolution."""
GRPO_KL, GRPO_KL_ELSE, GRPO_KL_SCALE = {"pickscore": 0.01, "hpsv2": 0.01, "clipscore": 0.02}, 0.04, 4.4
"""Its β of KL by scorer (HPSv2's as PickScore's), that of GenEval and OCR, and how much larger the KL divergence of a
step is here than there, where |Δt| does not divide it: mean over ten steps at shift 3."""

GOES_WITH = {"fixed": "fixed", "weights": "weighted_gradients"} | dict.fromkeys(
    ("floors", "preference", "groups", "kl", "kl_bound"), "min_norm"
)
"""Keys of the harmonizer by the one method they go with."""


@dataclass(frozen=True)
class Method:
    """One row of the tables."""

    name: str
    change: Callable[[Data], Data]
    of_one: str = ""
    """The one reward it trains, if it is a specialist."""


def _with(patch: Mapping[str, Any]) -> Callable[[Data], Data]:
    return lambda data: dict(merged(data, patch))


def _summed(data: Data) -> Data:
    """NFT on the weighted mean: nothing to balance, so no step solves."""
    harmonizer = {"method": "weighted_gradients", "refresh": {"policy": "never"}}
    return without_steering(dict(merged(data, {"learner": {"objective": WEIGHTED_SUM}, "harmonizer": harmonizer})))


def _uniform(data: Data) -> Data:
    return without_steering(dict(merged(data, {"harmonizer": {"method": UNIFORM}})))


def steering(data: Data) -> tuple[str, ...]:
    """Keys of a recipe's harmonizer that say something and go with one method alone."""
    said, fields = data.get("harmonizer") or {}, HarmonizerConfig.model_fields
    return tuple(key for key in GOES_WITH if key in said and said[key] != fields[key].default)


def without_steering(data: Data, keep: Container[str] = ()) -> Data:
    """The recipe without what its harmonizer's method cannot take."""
    method = (data.get("harmonizer") or {}).get("method", HarmonizerConfig.model_fields["method"].default)
    # Weights of a harmonizer are of the rewards' gradients; a sum of rewards has one gradient.
    summed = (data.get("learner") or {}).get("objective") == WEIGHTED_SUM
    allowed = {key for key, goes_with in GOES_WITH.items() if goes_with == method and not (key == "weights" and summed)}
    left = {k: v for k, v in (data.get("harmonizer") or {}).items() if k not in GOES_WITH or k in allowed or k in keep}
    return {**data, "harmonizer": left}


def _sequential(data: Data) -> Data:
    """In the paper's own numbers of steps: whoever gives it a budget brings them to it."""
    sets = reward_sets(data)
    order = [(index, share) for index, share in SCHEDULE if index < len(sets)] if len(sets) > 1 else [(0, 1)]
    order += [(index, SCHEDULE[-1][1]) for index in range(len(SCHEDULE) - 2, len(sets))]
    stages = [{"rewards": sets[index], "iterations": share} for index, share in order]
    return dict(merged(_summed(data), {"learner": {"stages": stages}}))


def _single(reward: str) -> Callable[[Data], Data]:
    def change(data: Data) -> Data:
        iterations = data["run"]["iterations"]
        return in_stages(_summed(data), [{"rewards": [reward], "iterations": iterations}], iterations)

    return change


def _flow_grpo(reward: str) -> Callable[[Data], Data]:
    """The paper's specialists: another algorithm, else as :func:`_single`."""

    def change(data: Data) -> Data:
        # Ratios are of densities per latent element: they spread with one over the root of the elements' number.
        clip_range = GRPO_CLIP * GRPO_RESOLUTION / data["policy"]["resolution"]
        learner = {
            "algorithm": FLOW_GRPO,
            "clip_range": clip_range,
            "kl_beta": round(GRPO_KL.get(data["rewards"][reward]["scorer"], GRPO_KL_ELSE) / GRPO_KL_SCALE, 4),
            "advantage": {"std": "batch"},
            "old_policy": {"slope": 0.0},
        }
        steps = min(data["sampling"]["steps"], GRPO_STEPS)
        sampling = {"steps": steps, "sde": {"noise_level": GRPO_NOISE}}
        return _trainable(dict(merged(_single(reward)(data), {"sampling": sampling, "learner": learner})))

    return change


def _trainable(data: Data) -> Data:
    """With no more timesteps than steps with noise allow each of an iteration's updates."""
    learner = LearnerConfig.model_validate(data["learner"])
    trainable = learner.num_trainable(SamplingConfig.model_validate(data["sampling"]))
    timesteps = min(learner.timesteps, max(1, trainable // learner.updates_per_iteration))
    return dict(merged(data, {"learner": {"timesteps": timesteps}}))


_SPECIALISTS: Mapping[str, Callable[[str], Callable[[Data], Data]]] = {SINGLE: _single, FLOW_GRPO: _flow_grpo}
_METHODS: Mapping[str, Callable[[Data], Data]] = {
    MARBLE: dict,
    WEIGHTED_SUM: _summed,
    UNIFORM: _uniform,
    SEQUENTIAL: _sequential,
    "marble_paper": _with({"harmonizer": {"amortize": "paper"}}),
    "every_step": _with({"harmonizer": {"refresh": {"policy": "every_step"}}}),
    "unnormalized": _with({"harmonizer": {"normalize": False}}),
    "no_ema": _with({"harmonizer": {"ema": {"rho": 0.0, "trust_region": None}}}),
}


def choose(names: Iterable[str], rewards: Sequence[str]) -> tuple[Method, ...]:
    """Methods by name, `single` being one for each reward, `single_NAME` that of one; the same of `flow_grpo`.

    Raises:
        UserError: no such method, or none at all; lists those there are.
    """
    chosen: dict[str, Method] = {}
    for name in names:
        found = [f"{name}_{reward}" for reward in rewards] if name in _SPECIALISTS else [name]
        chosen |= {each: _method(each, rewards) for each in found}
    if not chosen:
        raise UserError(f"no method to compare; there are {', '.join((*_METHODS, *_SPECIALISTS))}")
    return tuple(chosen.values())


def _method(name: str, rewards: Sequence[str]) -> Method:
    if name in _METHODS:
        return Method(name, _METHODS[name])
    for kind, of in _SPECIALISTS.items():
        reward = name.removeprefix(f"{kind}_")
        if reward != name and reward in rewards:
            return Method(name, of(reward), reward)
    known = ", ".join((*_METHODS, *(f"{kind}[_{'|'.join(rewards)}]" for kind in _SPECIALISTS)))
    raise UserError(f"no method {name!r}; there are {known}")


def reward_sets(data: Data) -> list[list[str]]:
    """What stages are made of: the rewards of all sources together, then each of the others by itself."""
    sources = set(data["prompts"]["sources"])
    broad = [n for n, reward in data["rewards"].items() if set(reward.get("applies") or sources) == sources]
    return [*([broad] if broad else []), *([name] for name in data["rewards"] if name not in broad)]


def stages_of(data: Data) -> Sequence[Mapping[str, Any]]:
    """The stages of a recipe; none where it trains all its rewards all the time."""
    return data["learner"].get("stages") or ()


def in_stages(data: Data, stages: Sequence[Mapping[str, Any]], iterations: int) -> Data:
    """The recipe with these stages, scaled to a number of iterations; each gets one at least.

    Raises:
        UserError: fewer iterations than stages.
    """
    if iterations < len(stages):
        raise UserError(f"{len(stages)} stages do not fit into {iterations} iterations; give each run more")
    scaled = apportioned([stage["iterations"] for stage in stages], iterations)
    listed = [{"rewards": list(stage["rewards"]), "iterations": n} for stage, n in zip(stages, scaled, strict=True)]
    return {**data, "learner": {**data["learner"], "stages": listed}}


def apportioned(shares: Sequence[int], total: int) -> list[int]:
    """Whole numbers in proportion to shares, each at least 1, that add up to a total of at least their number.

    What is left over each one's 1 is dealt out by largest remainder, of equals the earlier first.
    """
    free = total - len(shares)
    exact = [max(0.0, share * total / sum(shares) - 1.0) for share in shares]
    scale = free / sum(exact) if sum(exact) > 0 else 0.0
    parts = [part * scale for part in exact]
    whole = [int(part) for part in parts]
    by_rest = sorted(range(len(parts)), key=lambda i: (whole[i] - parts[i], i))
    for index in by_rest[: free - sum(whole)]:
        whole[index] += 1
    return [1 + part for part in whole]
