"""Progress of commands that are not a run: a line that redraws itself on a terminal, few plain lines elsewhere.

Goes to standard error, so that standard output holds the result alone.
"""

import sys
import time
from collections.abc import Callable

INTERVAL_S = 10.0
"""Between two plain lines of one stage."""


def stage_printer() -> Callable[[str, str], None]:
    """A function of (stage, detail)."""
    last_stage, last_s = "", 0.0

    def say(stage: str, detail: str) -> None:
        nonlocal last_stage, last_s
        line = f"{stage}: {detail}"
        if sys.stderr.isatty():
            # Clears the rest of the line: the next detail may be shorter.
            end = "\n" if stage == "warning" else "\r"
            print(f"\x1b[2K{line}", end=end, file=sys.stderr, flush=True)
        elif stage != last_stage or stage == "warning" or time.monotonic() - last_s >= INTERVAL_S:
            print(line, file=sys.stderr, flush=True)
            last_s = time.monotonic()
        last_stage = stage

    return say
