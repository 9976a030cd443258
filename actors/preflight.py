"""Everything that would stop a run, found before its first step and said at once.

`marble check` and the controller use the same three looks: files (prompts, base model), cluster, and starting every
actor, where each scorer scores one known image and the base model is loaded.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.config import RoleConfig
from actors.environments import environment_problems
from actors.evaluation import heldout
from actors.prompt_checks import bad_metadata, prompt_warnings, rewards_without_prompts
from actors.prompts import Prompt, read_sources, shortages
from actors.run_config import RunConfig
from harmonizer.config import HarmonizerConfig
from learner.errors import Problem, UserError
from learner.model_folder import checkpoint_problems, folder_problems
from rewards.scorer_args import IMAGEREWARD_FILES

RESOURCES_WAIT_S = 20.0
"""For what a run that just ended has yet to give back; an impossible placement is an error within 30 s."""
POLL_S = 0.5
TOLERANCE = 1e-6
"""Ray counts in ten-thousandths; sums of shares like 0.1 err by less."""


class PreflightError(UserError):
    """The run cannot start; `problems` has every reason."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(problem.text for problem in problems))
        self.problems = tuple(problems)

    @property
    def lines(self) -> tuple[str, ...]:
        """Every reason as a line."""
        return tuple(problem.text for problem in self.problems)


@dataclass(frozen=True)
class PromptSets:
    """Prompts of a run."""

    train: Mapping[str, tuple[Prompt, ...]]
    heldout: tuple[Prompt, ...]
    """[N] those that are evaluated."""
    warnings: tuple[Problem, ...] = ()
    """What is odd about them and stops nothing."""


@dataclass(frozen=True)
class Asked:
    """What one role asks of the cluster."""

    role: str
    replicas: int
    each: Mapping[str, float]
    """Resource -> amount for one replica."""


def check_files(config: RunConfig) -> PromptSets:
    """Reads the prompts, looks at the models' folders and the pools' Pythons, and for the harmonizer's packages.

    Raises:
        PreflightError: every problem of these, a line each.
    """
    train, unread = read_sources(config.prompts, "train")
    held, more = read_sources(config.prompts, "heldout")
    problems = coded("prompts.file", [*unread, *more])
    problems += coded(
        "prompts.metadata", [*bad_metadata(config, train, "train"), *bad_metadata(config, held, "heldout")]
    )
    per_source = config.prompts.groups_per_iteration // len(config.prompts.sources)
    problems += coded("prompts.too_few", shortages(train, per_source * len(train)))
    if not (unread or more):
        problems += coded("rewards.no_prompts", rewards_without_prompts(config, train, "train"))
        problems += coded("rewards.no_prompts", rewards_without_prompts(config, held, "heldout"))
    problems += start_problems(config)
    problems += coded("harmonizer.package", method_problems(config.harmonizer))
    if problems:
        raise PreflightError(problems)
    return PromptSets(train, heldout(held, config.eval.prompts_per_source), prompt_warnings(config, train, held))


def coded(code: str, lines: Sequence[str]) -> list[Problem]:
    """Lines as problems of one kind."""
    return [Problem(code, line) for line in lines]


def method_problems(config: HarmonizerConfig) -> list[str]:
    """One line when the method's packages are not installed."""
    try:
        config.check_installed()
    except ValueError as error:
        return [f"harmonizer.{error}"]
    return []


def start_problems(config: RunConfig) -> list[Problem]:
    """What would keep actors from starting, as far as a look at models' folders and pools' Pythons shows."""
    return [
        *coded("model.files", model_problems(config.policy.base)),
        *coded("rewards.files", scorer_problems(config)),
        *coded("rewards.environment", environment_problems(config)),
    ]


def model_problems(base: str) -> list[str]:
    """What a look at the folder shows; its weights are read when the actors start."""
    folder = Path(base)
    looks_local = folder.is_absolute() or base.startswith((".", "~")) or base.count("/") != 1
    if not folder.exists():
        return [f"policy.base: {base} does not exist"] if looks_local else []
    return [f"policy.base: {problem}" for problem in folder_problems(folder)]


def scorer_problems(config: RunConfig) -> list[str]:
    """What a look at the folders of the scorers' checkpoints shows; a checkpoint of the hub is not here to be seen."""
    problems = []
    for section, _, reward in config.judges():
        for at, _, args in reward.parts():
            folder = Path(str(args.get("checkpoint", ""))).expanduser()
            key = f"{section}.args.{at}.checkpoint" if at else f"{section}.args.checkpoint"
            if "checkpoint" in args and folder.is_dir():
                problems += [f"{key}: {folder}: {wrong}" for wrong in _checkpoint_problems(reward.scorer, folder, args)]
    return problems


def _checkpoint_problems(scorer: str, folder: Path, args: Mapping[str, Any]) -> list[str]:
    if scorer == "imagereward":
        return [f"{file} is missing" for file in IMAGEREWARD_FILES if not (folder / file).is_file()]
    if scorer == "hpsv2" and (folder / str(args["file"])).is_file():
        return []  # open_clip's own format
    return checkpoint_problems(folder, "model")


# -- cluster ----------------------------------------------------------------------------------------------------------


def asked_by_role(config: RunConfig) -> tuple[Asked, ...]:
    """What every role asks for, in the order in which the actors are created."""
    actors = config.actors
    roles: list[tuple[str, RoleConfig]] = [
        ("rollout", actors.rollout),
        *((f"reward.{name}", config.pool(name)) for name in config.judge_names),
        ("harmonizer", actors.harmonizer),
        ("learner", actors.learner),
    ]
    return tuple(Asked(role, asked.replicas, _resources(asked)) for role, asked in roles)


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
        raise PreflightError(coded("cluster.resources", hopeless))
    deadline_s = time.monotonic() + RESOURCES_WAIT_S
    while problems := placement_problems(asked, cluster.available_resources(), nodes):
        if time.monotonic() > deadline_s:
            raise PreflightError(coded("cluster.resources", problems))
        time.sleep(POLL_S)
