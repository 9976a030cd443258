"""Whether the Pythons that pools name can run a scorer actor: looked at before any actor starts.

Ray starts a worker with whatever it is given; one with another Ray or another Python dies without a word that names
the cause.
"""

import json
import subprocess
import sys
from importlib.metadata import version

from actors.run_config import RunConfig

TIMEOUT_S = 60.0
"""For a Python to say its version, which takes a fraction of a second."""
_ASK = """
import json, sys
from importlib.metadata import PackageNotFoundError, version
try:
    ray = version("ray")
except PackageNotFoundError:
    ray = None
print(json.dumps([list(sys.version_info[:2]), ray]))
"""


def environment_problems(config: RunConfig) -> list[str]:
    """One line for each pool whose py_executable cannot run our actors."""
    problems = []
    for name in config.judge_names:
        python = config.pool(name).runtime_env.py_executable
        wrong = _what_is_wrong(python) if python else ""
        if wrong:
            problems.append(f"actors.pools.{name}.runtime_env.py_executable: {python} {wrong}")
    return problems


def _what_is_wrong(python: str) -> str:
    try:
        done = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
        (major, minor), ray = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return f"cannot be run as a Python ({type(error).__name__})"
    if (major, minor) != sys.version_info[:2]:
        return f"is Python {major}.{minor}, this is {sys.version_info[0]}.{sys.version_info[1]}"
    if ray != version("ray"):
        return f"has {'no Ray' if ray is None else f'Ray {ray}'}, this is Ray {version('ray')}"
    return ""
