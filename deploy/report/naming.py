"""The runs a command names, and what they are called beside each other."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from deploy.compare.session import ASKED, RUNS
from deploy.overview import find_runs
from deploy.rundir import RunDir, expanded


def named_runs(runs: Sequence[Path]) -> list[RunDir]:
    """Run directories, each once; a folder of runs stands for all of them, and a comparison for those it compares.

    Raises:
        UserError: a path is neither.
    """
    found = [run_dir for path in runs for run_dir in find_runs(_compared(expanded(path, "RUN")))]
    return list({run_dir.path.resolve(): run_dir for run_dir in found}.values())


def labels(paths: Sequence[Path]) -> list[str]:
    """Names of run directories; with as many of their parents as it takes to tell them apart."""
    found = [path.name for path in paths]
    for depth in range(2, max(len(path.parts) for path in paths) + 1):
        twice = {name for name, count in Counter(found).items() if count > 1}
        if not twice:
            break
        found = ["/".join(p.parts[-depth:]) if name in twice else name for name, p in zip(found, paths, strict=True)]
    return found


def _compared(path: Path) -> Path:
    """The folder of a comparison's runs; any other path as it is."""
    return path / RUNS if (path / ASKED).is_file() and (path / RUNS).is_dir() else path
