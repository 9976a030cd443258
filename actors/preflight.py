"""Everything that would stop a run, found before its first step and said at once.

`marble check` and the controller use the same three looks: files (prompts, base model), cluster, and starting every
actor, where each scorer scores one known image and the base model is loaded.
"""

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.config import RoleConfig
from actors.environments import environment_problems
from actors.evaluation import heldout
from actors.prompts import Prompt, read_sources, shortages
from actors.run_config import RunConfig
from harmonizer.config import HarmonizerConfig
from learner.errors import UserError
from rewards.registry import applicable

RESOURCES_WAIT_S = 20.0
"""For what a run that just ended has yet to give back; an impossible placement is an error within 30 s."""
POLL_S = 0.5
TOLERANCE = 1e-6
"""Ray counts in ten-thousandths; sums of shares like 0.1 err by less."""


class PreflightError(UserError):
    """The run cannot start; `lines` has every reason."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("; ".join(lines))
        self.lines = tuple(lines)


@dataclass(frozen=True)
class PromptSets:
    """Prompts of a run."""

    train: Mapping[str, tuple[Prompt, ...]]
    heldout: tuple[Prompt, ...]
    """[N] those that are evaluated."""


@dataclass(frozen=True)
class Asked:
    """What one role asks of the cluster."""

    role: str
    replicas: int
    each: Mapping[str, float]
    """Resource -> amount for one replica."""


def check_files(config: RunConfig) -> PromptSets:
    """Reads the prompts, looks at the base model's folder, for the packages of the harmonizer's method, and at the
    Pythons of the pools.

    Raises:
        PreflightError: every problem of these, a line each.
    """
    train, problems = read_sources(config.prompts, "train")
    held, more = read_sources(config.prompts, "heldout")
    problems += more
    if not problems:
        problems += shortages(train, config.prompts.groups_per_iteration)
        problems += rewards_without_prompts(config, train, "training")
        problems += rewards_without_prompts(config, held, "held-out")
    problems += model_problems(config.policy.base)
    problems += method_problems(config.harmonizer)
    problems += environment_problems(config)
    if problems:
        raise PreflightError(problems)
    return PromptSets(train, heldout(held, config.eval.prompts_per_source))


def rewards_without_prompts(config: RunConfig, sources: Mapping[str, Sequence[Prompt]], kind: str) -> list[str]:
    """One line for each reward that applies to none of these prompts."""
    lines = []
    for name, reward in config.rewards.items():
        prompts = (prompt for prompts in sources.values() for prompt in prompts)
        if not any(applicable(reward, prompt.source, prompt.text, prompt.metadata) for prompt in prompts):
            lines.append(
                f"rewards.{name} applies to none of the {kind} prompts "
                f"(applies: {', '.join(reward.applies or sources)}; when: {reward.when})"
            )
    return lines


def method_problems(config: HarmonizerConfig) -> list[str]:
    """One line when the method's packages are not installed."""
    try:
        config.check_installed()
    except ValueError as error:
        return [f"harmonizer.{error}"]
    return []


def model_problems(base: str) -> list[str]:
    """What a look at the folder shows; its weights are read when the actors start."""
    folder = Path(base)
    looks_local = folder.is_absolute() or base.startswith((".", "~")) or base.count("/") != 1
    if not folder.exists():
        return [f"policy.base: {base} does not exist"] if looks_local else []
    index = folder / "model_index.json"
    if not index.is_file():
        return [f"policy.base: {base} has no model_index.json, so it is no model in diffusers' format"]
    try:
        names = json.loads(index.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        return [f"policy.base: {index} is not JSON ({error})"]
    parts = [name for name, value in names.items() if isinstance(value, list) and value and value[0] is not None]
    missing = [name for name in parts if not (folder / name).is_dir()]
    return [f"policy.base: {base} lacks the folders {', '.join(missing)}"] if missing else []


# -- cluster ----------------------------------------------------------------------------------------------------------


def asked_by_role(config: RunConfig) -> tuple[Asked, ...]:
    """What every role asks for, in the order in which the actors are created."""
    actors = config.actors
    roles: list[tuple[str, RoleConfig]] = [
        ("rollout", actors.rollout),
        *((f"reward.{name}", config.pool(name)) for name in config.reward_names),
        ("harmonizer", actors.harmonizer),
        ("learner", actors.learner),
    ]
    return tuple(Asked(role, 1 if role == "harmonizer" else asked.replicas, _resources(asked)) for role, asked in roles)


def _resources(role: RoleConfig) -> dict[str, float]:
    wanted = {"CPU": role.num_cpus, "GPU": role.num_gpus, **role.resources}
    return {name: amount for name, amount in wanted.items() if amount > 0}


def placement_problems(
    asked: Sequence[Asked], available: Mapping[str, float], nodes: Sequence[Mapping[str, float]]
) -> list[str]:
    """Why these roles do not fit, with what each asks for against what is there.

    Args:
        available: free in the whole cluster.
        nodes: what each node has in all; an actor must fit on one.
    """
    short = [
        name
        for name in dict.fromkeys(name for role in asked for name in role.each)
        if sum(role.replicas * role.each.get(name, 0.0) for role in asked) > available.get(name, 0.0) + TOLERANCE
    ]
    if short:
        return [
            f"not enough {name}: {_shares(asked, name)} ask for "
            f"{_amount(sum(role.replicas * role.each.get(name, 0.0) for role in asked))}, "
            f"available is {_amount(available.get(name, 0.0))}"
            for name in short
        ]
    return _packing_problems(asked, nodes)


def _packing_problems(asked: Sequence[Asked], nodes: Sequence[Mapping[str, float]]) -> list[str]:
    """First fit, largest first, on whole nodes: what cannot be placed even on an empty cluster."""
    left = [dict(node) for node in nodes]
    problems = []
    for role in sorted(asked, key=lambda role: -sum(role.each.values())):
        for placed in range(role.replicas):
            node = next((node for node in left if _fits(role.each, node)), None)
            if node is None:
                wanted = ", ".join(f"{_amount(amount)} {name}" for name, amount in role.each.items())
                problems.append(
                    f"role {role.role}: no node has room for replica {placed + 1} of {role.replicas}, which asks for "
                    f"{wanted} on one node; nodes have {'; '.join(_node_text(node) for node in nodes)}"
                )
                break
            for name, amount in role.each.items():
                node[name] -= amount
    return problems


def _fits(each: Mapping[str, float], node: Mapping[str, float]) -> bool:
    return all(node.get(name, 0.0) + TOLERANCE >= amount for name, amount in each.items())


def _shares(asked: Sequence[Asked], name: str) -> str:
    parts = [
        f"{role.role} {role.replicas} x {_amount(role.each[name])}" for role in asked if role.each.get(name, 0.0) > 0
    ]
    return ", ".join(parts)


def _amount(value: float) -> str:
    return f"{math.floor(value * 1e4 + 0.5) / 1e4:g}"


def _node_text(node: Mapping[str, float]) -> str:
    # Ray lists memory, object store and every node's own address among its resources.
    hidden = ("memory", "object_store_memory")
    shown = [f"{_amount(v)} {k}" for k, v in node.items() if k not in hidden and not k.startswith("node:")]
    return ", ".join(shown) or "nothing"


def check_cluster(config: RunConfig) -> None:
    """Compares what is asked with what the connected Ray has.

    Raises:
        PreflightError: it does not fit, and did not within RESOURCES_WAIT_S unless it never can.
    """
    import ray

    cluster: Any = ray  # these calls have no types
    asked = asked_by_role(config)
    nodes: list[dict[str, Any]] = [dict(node["Resources"]) for node in cluster.nodes() if node["Alive"]]
    hopeless = placement_problems(asked, cluster.cluster_resources(), nodes)
    if hopeless:
        raise PreflightError(hopeless)
    deadline_s = time.monotonic() + RESOURCES_WAIT_S
    while problems := placement_problems(asked, cluster.available_resources(), nodes):
        if time.monotonic() > deadline_s:
            raise PreflightError(problems)
        time.sleep(POLL_S)
