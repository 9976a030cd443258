"""What a recipe trains with, read off its resolved data. Nothing in it is believed to have the right type."""

from collections.abc import Mapping, Sequence
from typing import Any

from deploy.report.numbers.stages import stages_of
from learner.config import FLOW_GRPO, WEIGHTED_SUM


def section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of the recipe; empty where it is none."""
    found = config.get(name)
    return found if isinstance(found, Mapping) else {}


def is_flow_grpo(config: Mapping[str, Any]) -> bool:
    """Whether it trains with Flow-GRPO; else with NFT."""
    return section(config, "learner").get("algorithm") == FLOW_GRPO


def method(config: Mapping[str, Any]) -> str:
    """In a few words: what balances the rewards, and the algorithm where it is not NFT; empty where it is not known."""
    learner = section(config, "learner")
    if learner.get("objective") == WEIGHTED_SUM:
        stages = stages_of(config)
        said = f"{WEIGHTED_SUM} of {' + '.join(stages[0].rewards)}" if len(stages) == 1 else WEIGHTED_SUM
        said += f" in {len(stages)} stages" if len(stages) > 1 else ""
    else:
        said = str(section(config, "harmonizer").get("method") or "")
    return ", ".join(part for part in (FLOW_GRPO if is_flow_grpo(config) else "", said) if part)


def shares(config: Mapping[str, Any], names: Sequence[str]) -> dict[str, float]:
    """Each reward's w_k/Σw in a weighted sum: equal where the recipe gives none."""
    given = section(config, "learner").get("weights")
    weights = {name: given.get(name) if isinstance(given, Mapping) else 1.0 for name in names}
    known = {name: float(w) for name, w in weights.items() if isinstance(w, int | float) and not isinstance(w, bool)}
    total = sum(known.values())
    return {name: w / total for name, w in known.items()} if len(known) == len(names) and total > 0 else {}
