"""The fake agent: so many turns, in each of which the model asks for one tool, and no network.

Each engine has its own module beside this one, and runs in its own environment:

    python -m bench.peers.ENGINE FOLDER TURNS      prints {"took": ..., "bytes": ..., "calls": ...}
    python -m bench.peers.ENGINE FOLDER TURNS die  is killed at the last call of the model
    python -m bench.peers.ENGINE FOLDER TURNS      prints also {"resumed": ...}
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Final

#: What a tool returns: a page of text.
PAGE: Final = "The quick brown fox jumps over the lazy dog. " * 10


class Probe:
    """An agent's calls, as the benchmark sees them.

    Args:
        turns: how often the model asks for a tool.
        die: whether the process is killed at the last call of the model.

    Attributes:
        here: that of this process; a handler finds it here.
    """

    here: ClassVar[Probe]

    def __init__(self, turns: int, *, die: bool = False) -> None:
        self.turns = turns
        self.calls = 0
        self.began = time.perf_counter()
        self.resumed: float | None = None
        self.first: float | None = None
        self.last = 0.0
        self._die = die

    def begin(self) -> None:
        """Note that the agent is about to run, or to go on."""
        self.began = time.perf_counter()

    def call(self, turn: int) -> None:
        """Note a call that is really made; `turn` is that of the model, or -1 of the tool."""
        self.calls += 1
        self.last = time.perf_counter()
        if self.first is None:
            self.first = self.last
        if turn == self.turns and self._die:
            os.kill(os.getpid(), signal.SIGKILL)


def main(run: Callable[[Probe, Path], None], stored: Callable[[Path], int]) -> None:
    """Run the agent as the command line says, and print what was measured.

    Args:
        run: the agent once, on the engine; what it stores is in the folder.
        stored: returns how many bytes there are in the folder, when the engine is closed.
    """
    folder, turns = Path(sys.argv[1]), int(sys.argv[2])
    probe = Probe.here = Probe(turns, die="die" in sys.argv)
    run(probe, folder)
    assert probe.first is not None
    facts: dict[str, Any] = {
        "took": probe.last - probe.first,
        "resumed": probe.first - probe.began,
        "calls": probe.calls,
        "bytes": stored(folder),
    }
    print(json.dumps(facts))


def files(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
