"""The blocks of one run's gradients: weights, cosines, measured conflicts, norms, KL, clipped ratios."""

from collections.abc import Sequence

from deploy.report.blocks import Block, Table, percent, row, signed, table
from deploy.report.drawing import lines, maps
from deploy.report.drawing.svg import Drawing
from deploy.report.method import is_flow_grpo, section, shares
from deploy.report.numbers.conflicts import ConflictNumbers
from deploy.report.numbers.gradients import mean_of
from deploy.report.numbers.run import GradientNumbers
from deploy.report.numbers.stages import stages_of
from deploy.report.reading import RunRecord
from learner.config import WEIGHTED_SUM

POSITIONS = {1: ("Only solve",), 2: ("First solve", "Last solve"), 3: ("First solve", "Middle solve", "Last solve")}
NO_STEPS = "The ledger holds no optimizer step of this run."
VECTORS = {"direction": "rewards' direction", "gradient": "whole gradient, with KL", "update": "AdamW's update"}
MIN_NORM = "min_norm"


def gradient_blocks(
    record: RunRecord, found: GradientNumbers | None, measured: ConflictNumbers | None, prefix: str
) -> tuple[Block, ...]:
    """Ids begin with `prefix`. What a run of its kind has nothing of is left out, or said in a sentence."""
    if found is None:
        return (Block(f"{prefix}-weights", "Weights", missing=(NO_STEPS,)),)
    blocks = [_weights(record, found, prefix), _cosines(found, prefix)]
    if measured is not None:
        blocks.append(_measured(record.names, measured, prefix))
    blocks += [_norms(found, prefix), _kl(record, found, prefix)]
    if len(found.clip_fraction.step) or len(found.approx_kl.step):
        blocks.append(_clipping(found, prefix))
    return tuple(blocks)


def _weights(record: RunRecord, found: GradientNumbers, prefix: str) -> Block:
    name, title = f"{prefix}-weights", "Weights"
    if found.names == (WEIGHTED_SUM,):
        return _summed(record, name, title)
    if len(found.names) == 1:
        return Block(name, title, f"{found.names[0]} is the only reward, so there is nothing to balance.")
    drawings = []
    if found.weights.values.size:
        which = "Smoothed weights ᾱ" if found.alpha_star.values.size else "Applied weights"
        drawings.append(lines.by_reward(which, found.names, found.weights, f"{prefix}-ema", unit="share"))
    if found.alpha_star.values.size:
        star, dots = found.alpha_star, len(found.alpha_star.step) > 1
        which = "Weights α* of single solves"
        drawings.append(lines.by_reward(which, found.names, star, f"{prefix}-star", unit="share", dots=dots))
    missing = () if drawings else ("No step of this run has weights.",)
    method = section(record.config, "harmonizer").get("method")
    text = "The share of each reward's unit gradient in the step. ᾱ is the moving average that steps between solves use"
    if method == MIN_NORM:
        text += "; a hard reward gets much, one that the others serve anyway gets little"
    return Block(name, title, f"{text}.", tuple(drawings), missing=missing)


def _summed(record: RunRecord, name: str, title: str) -> Block:
    """Of a weighted sum there is nothing but what the recipe says; in a stage, the weights of its rewards."""
    text = "This run steps along one gradient, that of the weighted mean of its rewards"
    if stages_of(record.config):
        return Block(name, title, f"{text} that the stage trains.")
    rows = [row(reward, percent(share)) for reward, share in shares(record.config, record.names).items()]
    return Block(name, title, f"{text}.", tables=(table(("reward", "weight"), rows),) if rows else ())


def _cosines(found: GradientNumbers, prefix: str) -> Block:
    name, title = f"{prefix}-cosines", "Gradient cosines"
    if len(found.names) == 1:
        text = (
            "This run takes one gradient, so there are no cosines between any. How its steps lie to each reward's "
            "gradient is measured with learner.probe_every."
        )
        return Block(name, title, text)
    drawings: list[Drawing] = []
    for position, one in zip(POSITIONS.get(len(found.snapshots), ()), found.snapshots, strict=True):
        drawings.append(maps.cosines(f"{position}, step {one.step}", found.names, one, f"{prefix}-cos{one.step}"))
    missing = [] if drawings else ["No step of this run solved, so no cosines between gradients are known."]
    worst = [("applied direction", found.worst_cosine), ("plain sum of gradients", found.sum_worst_cosine)]
    known = [(name, series) for name, series in worst if len(series.step)]
    if known:
        note = "Below 0, the step goes against some reward."
        title_ = "Worst cosine of any reward"
        drawings.append(lines.together(title_, known, f"{prefix}-worst", unit="cosine", note=note, zero=True))
    if len(known) == 1:
        missing.append("The ledger holds no cosines of the plain sum of gradients.")
    text = (
        "Cosines between the rewards' gradients over the same batch: blue pairs pull together, red ones apart. The "
        "worst cosine is that of the reward which a step served least."
    )
    return Block(name, title, text, tuple(drawings), _solves_table(found), tuple(missing))


def _solves_table(found: GradientNumbers) -> tuple[Table, ...]:
    rows = [
        row(name, str(c.known), percent(c.share), signed(c.mean), signed(c.worst))
        for name, c in (("applied direction", found.conflict), ("plain sum of gradients", found.sum_conflict))
        if c.known
    ]
    columns = ("direction", "solves", "against some reward", "mean worst cosine", "lowest")
    return (table(columns, rows),) if rows else ()


# -- measured conflicts -----------------------------------------------------------------------------------------------


def _measured(names: Sequence[str], found: ConflictNumbers, prefix: str) -> Block:
    text = (
        "On every step that learner.probe_every chose, all rewards' gradients were taken, also those that the run does "
        "not compute, and the step was held against them: on its own batch, whose noise any direction fits, and on "
        "the next iteration's. A step opposes a reward where their cosine is negative."
    )
    worst = [("same batch", found.worst_same), ("next batch", found.worst_next)]
    known = [(name, series) for name, series in worst if len(series.step)]
    drawings = []
    if known:
        title = "Worst cosine with any reward"
        drawings.append(lines.together(title, known, f"{prefix}-opposed", unit="cosine", zero=True))
    if len(found.cosines_next.step):
        title = "Cosine with each reward on the next batch"
        series = found.cosines_next
        drawings.append(lines.by_reward(title, names, series, f"{prefix}-next", unit="cosine", zero=True))
    tables = (_windows_table(found), _opposed_table(found))
    return Block(f"{prefix}-conflicts", "Conflicts with the rewards", text, tuple(drawings), tables)


def _windows_table(found: ConflictNumbers) -> Table:
    columns = (
        *("what", "steps", "opposing, same batch", "opposing, next batch", "mean worst cosine, same batch"),
        *("mean worst cosine, next batch", "lowest, same batch", "lowest, next batch", "measured, same and next batch"),
    )
    rows = [
        row(
            VECTORS.get(one.vector, one.vector),
            one.steps,
            percent(one.same.opposing),
            percent(one.next.opposing),
            signed(one.same.mean_worst),
            signed(one.next.mean_worst),
            signed(one.same.worst),
            signed(one.next.worst),
            f"{one.same.windows}, {one.next.windows}",
        )
        for one in found.rows
        if one.same.windows or one.next.windows
    ]
    return table(columns, rows, "Share of measured steps that oppose at least one reward")


def _opposed_table(found: ConflictNumbers) -> Table:
    rows = [
        row(
            one.name,
            *(percent(one.same.opposing), percent(one.next.opposing)),
            *(signed(one.same.mean), signed(one.next.mean)),
        )
        for one in found.rewards
    ]
    columns = (
        *("reward", "opposed, same batch", "opposed, next batch"),
        *("mean cosine, same batch", "mean cosine, next batch"),
    )
    return table(columns, rows, "Whom the rewards' direction opposes")


# -- norms, KL, ratios ------------------------------------------------------------------------------------------------


def _norms(found: GradientNumbers, prefix: str) -> Block:
    drawings = []
    if found.norms.values.size:
        title = "Norm of each reward's gradient"
        drawings.append(lines.by_reward(title, found.names, found.norms, f"{prefix}-norm", unit="norm", log=True))
    if len(found.grad_norm.step):
        title, whole = "Norm of the whole step, before clipping", [("whole step", found.grad_norm)]
        drawings.append(lines.together(title, whole, f"{prefix}-gradnorm", unit="norm"))
    missing = () if drawings else ("No norm is known.",)
    text = "Adding gradients up lets the longest one win; MARBLE solves on unit gradients."
    shown = text if len(found.names) > 1 else ""
    return Block(f"{prefix}-norms", "Gradient norms", shown, tuple(drawings), missing=missing)


def _kl(record: RunRecord, found: GradientNumbers, prefix: str) -> Block:
    kl = "KL of a step to the base" if is_flow_grpo(record.config) else "Squared velocity difference to the base"
    shown = (
        ("Cosine of KL with the rewards' direction", "kl_cosine", "cosine", found.kl_cosine),
        ("Share of KL in the step's norm", "kl_share", "share", found.kl_share),
        (kl, "kl", "mean over elements", found.kl),
    )
    drawings = [
        lines.together(title, [(title, series)], f"{prefix}-{key}", unit=unit, zero=key == "kl_cosine")
        for title, key, unit, series in shown
        if len(series.step)
    ]
    missing = () if drawings else ("The ledger knows nothing of KL.",)
    if len(found.kl_cosine.step):
        means = f"mean cosine {signed(mean_of(found.kl_cosine))}, mean share {percent(mean_of(found.kl_share))}"
        text = f"KL stands outside the balance; a negative cosine means that it pulls against the rewards: {means}."
    else:
        text = "KL's cosine with the rewards and its share are known on solving steps, of which this run has none."
    return Block(f"{prefix}-kl", "KL to the base", text if drawings else "", tuple(drawings), missing=missing)


def _clipping(found: GradientNumbers, prefix: str) -> Block:
    shown = (
        ("Share of cells outside the clipped range", "clip", "share", found.clip_fraction),
        ("Distance from the policy that drew the batch", "approx", "mean ½ (log ratio)²", found.approx_kl),
    )
    drawings = tuple(
        lines.together(title, [(title, series)], f"{prefix}-{key}", unit=unit)
        for title, key, unit, series in shown
        if len(series.step)
    )
    text = (
        "Flow-GRPO bounds the ratio of densities. The first update of an iteration trains the policy that drew its "
        "images, where both are 0; later updates are shown."
    )
    return Block(f"{prefix}-clipping", "Clipped ratios", text, drawings)
