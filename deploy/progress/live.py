"""The display of a run on a terminal: bar with time left, rewards now and at start, α as bars, last step."""

from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from actors.results import EvaluationResult, IterationResult
from actors.run_config import RunConfig
from deploy.progress.view import RunView, duration, number

BAR_WIDTH = 16
"""Characters of a full α bar."""
REFRESHES_PER_S = 2.0
"""Enough to look alive; the display shares its cores with the training."""


class LiveListener:
    """Redraws one panel in place; warnings scroll above it."""

    def __init__(self, console: Console, run_dir: Path) -> None:
        self._console = console
        self._run_dir = run_dir
        self._view = RunView()
        # A callable is asked at every refresh, so the bar and the clock move between events too.
        self._live = Live(get_renderable=self.render, console=console, refresh_per_second=REFRESHES_PER_S)
        self._live.start()

    def on_start(self, config: RunConfig, baseline: EvaluationResult | None) -> None:
        """Show the rewards by name."""
        self._view.start(config, baseline)

    def on_stage(self, stage: str, detail: str) -> None:
        """Shown under the bar."""
        self._view.stage, self._view.stage_detail = stage, detail

    def on_iteration(self, result: IterationResult) -> None:
        """Move the bar and the numbers."""
        self._view.iteration(result)

    def on_evaluation(self, result: EvaluationResult) -> None:
        """Fill the held-out columns."""
        self._view.evaluated(result)

    def on_checkpoint(self, path: Path) -> None:
        """Scrolls by."""
        self._console.print(Text(f"checkpoint {path}", style="dim"))

    def on_warning(self, text: str) -> None:
        """Scrolls by, and stays readable."""
        self._console.print(Text(f"warning: {text}", style="yellow"))

    def close(self) -> None:
        """Leave the last state standing on the screen."""
        self._live.stop()

    def render(self) -> RenderableType:
        """The panel as it is now."""
        view = self._view
        name = view.config.run.name if view.config else self._run_dir.name
        head = Text.assemble((f"{name}", "bold"), (f"  {self._run_dir}", "dim"))
        stage = Text(f"{view.stage} {view.stage_detail}".strip() or "starting", style="cyan")
        return Group(head, _bar(view), stage, rewards_table(view), _last_step(view))


def _bar(view: RunView) -> RenderableType:
    row = Table.grid(padding=(0, 2))
    row.add_row(
        Text(f"iteration {view.done}/{view.num_iterations or '-'}"),
        ProgressBar(total=max(view.num_iterations, 1), completed=view.done, width=32),
        Text(f"{number(view.images_per_s, 1)} images/s"),
        Text(f"left {duration(view.seconds_left)}", style="bold"),
    )
    return row


def rewards_table(view: RunView) -> Table:
    """Training score at start and now, held-out score before and at the last evaluation, and ᾱ."""
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for title in ("reward", "at start", "now", "change", "held out", "last", "α", "", "failed"):
        table.add_column(title, justify="left" if title in ("reward", "") else "right")
    before = view.baseline.means if view.baseline else {}
    last = view.evaluation.means if view.evaluation else {}
    for name, trend in view.trends.items():
        change = trend.now - trend.start
        style = "green" if change > 0 else "red" if change < 0 else ""
        alpha = view.ema_alpha.get(name, 0.0)
        table.add_row(
            name,
            number(trend.start),
            number(trend.now),
            Text(number(change, sign=True), style=style),
            number(before.get(name, float("nan"))),
            number(last.get(name, float("nan"))),
            number(alpha, 2),
            Text("█" * round(alpha * BAR_WIDTH), style="magenta"),
            Text(str(view.failed[name]), style="red") if view.failed.get(name) else "",
        )
    for name in view.config.heldout_rewards if view.config else ():
        means = (before.get(name, float("nan")), last.get(name, float("nan")))
        table.add_row(Text(f"{name}, held out", style="dim"), "", "", "", *map(number, means))
    return table


def _last_step(view: RunView) -> Text:
    step = view.step
    if step is None:
        return Text("no step yet", style="dim")
    parts = [
        f"step {step.step}",
        f"norm {number(step.grad_norm)}",
        f"mean reward norm {number(step.mean_norm)}",
        f"worst cosine {number(view.worst_cosine, sign=True)}",
        f"KL {step.kl:.2e}",
    ]
    if not step.applied:
        parts.append(f"not applied: {step.skip_reason}")
    return Text(" · ".join(parts), style="dim" if step.applied else "yellow")
