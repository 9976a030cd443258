"""The runs a command names, and what they are called beside each other."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from deploy.overview import find_runs
from deploy.rundir import RunDir, expanded


def named_runs(runs: Sequence[Path]) -> list[RunDir]:
    """Run directories, each once; a folder of runs stands for all of them.

    Raises:
        UserError: a path is neither.
    """
    found = [run_dir for path in runs for run_dir in find_runs(expanded(path, "RUN"))]
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
