"""A Python of its own for scorers whose packages clash with ours: `python -m deploy.reward_env NAME`.

A small virtual environment in .reward-envs/NAME: what deploy/environments/NAME.txt asks for, and behind it everything
of the environment that runs this, so that only the packages that differ are installed. A pool takes it by

    actors: {pools: {REWARD: {runtime_env: {py_executable: .reward-envs/NAME/bin/python}}}}

and must find it at the same path on every machine of the cluster.
"""

import argparse
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from deploy.paths import ROOT
from learner.errors import UserError

FOLDER = ROOT / ".reward-envs"
REQUIREMENTS = ROOT / "deploy" / "environments"
BEHIND = "behind.pth"
"""Python reads every .pth file of an environment when it starts. addsitedir appends: our own packages come last, and
the .pth files among them (this clone is one) count too."""


def build(name: str, requirements: Path, folder: Path = FOLDER) -> Path:
    """Makes an environment anew; returns its Python.

    Raises:
        UserError: no such requirements, or they cannot be installed; nothing is left behind then.
    """
    if not requirements.is_file():
        known = ", ".join(sorted(path.stem for path in REQUIREMENTS.glob("*.txt")))
        raise UserError(f"{requirements} does not exist; there are {known}")
    home = folder / name
    venv.create(home, clear=True, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    try:
        packages = Path(sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)}))
        (packages / BEHIND).write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
        _install(python, requirements)
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise
    return python


def _install(python: Path, requirements: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "--quiet"]
    done = subprocess.run([*pip, "install", "-r", str(requirements)], capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise UserError(f"{requirements}: pip failed: {' '.join(errors) or done.stderr.strip()}")


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m deploy.reward_env", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", help="of a file deploy/environments/NAME.txt")
    args = parser.parse_args()
    try:
        python = build(args.name, REQUIREMENTS / f"{args.name}.txt")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"runtime_env: {{py_executable: {python.relative_to(ROOT)}}}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
