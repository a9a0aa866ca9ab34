"""So many runs at once of a list of no-op items and their join, the same on each engine.

Each engine has its own module beside this one, and runs in its own environment:

    python -m bench.peers.each_ENGINE FOLDER RUNS ITEMS   prints {"took": ..., "joins": [...]}

An item returns when it ran, in seconds of the machine's monotonic clock. The join is given them
all, and returns how long ago the last one was.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path


def item() -> float:
    """Return the time."""
    return time.monotonic()


def join(times: list[float]) -> float:
    """Return the seconds since the last item of a run."""
    return time.monotonic() - max(times)


def main(run: Callable[[Path, int, int], tuple[float, list[float]]]) -> None:
    """Run them all as the command line says, and print what was measured.

    Args:
        run: starts so many runs of so many items at once in a folder, and returns the time when
            it began, and what the joins returned.
    """
    folder, runs, items = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    began, joins = run(folder, runs, items)
    assert len(joins) == runs, joins
    print(json.dumps({"took": time.monotonic() - began, "joins": joins}), flush=True)
