"""One process that serves a function, from its start until nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from leasehold.devserver.orphan_processes import kill_left_behind

#: How long requests may take to end once a server is told to: Cloud Run, too, kills an instance
#: 10 s after SIGTERM.
DRAIN_S: Final = 10

#: What a server says of itself: that it takes requests, and that it takes no more.
SERVES: Final = b"+"
ENDS: Final = b"-"

_MODULE: Final = "leasehold.devserver.function_server"


class ServerProcess:
    """A server that says when it serves, and when it takes no more requests.

    Args:
        words: options of functions-framework.
        environ: its environment.
        listener: the socket that it takes requests from; it stays the caller's.

    Attributes:
        pid: of the master, which leads the session.
        serves: set once it takes requests.
        leaves: set once it takes no more: it drains, or it ended.
    """

    def __init__(self, words: Sequence[str], environ: Mapping[str, str], listener: int) -> None:
        states, told = os.pipe()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-m", _MODULE, f"{os.getpid()},{listener},{told}", *words],
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(listener, told),
            )
        except BaseException:
            os.close(states)
            raise
        finally:
            os.close(told)
        self.pid = self._process.pid
        self.serves, self.leaves = threading.Event(), threading.Event()
        for watch in (self._read, states), (self._wait,):
            threading.Thread(target=watch[0], args=watch[1:], daemon=True).start()

    def code(self) -> int | None:
        """Return its exit code; None while it runs."""
        return self._process.poll()

    def ask_to_stop(self) -> None:
        """Let it finish what it does."""
        self._process.terminate()

    def wait(self, seconds: float) -> bool:
        """Return whether it ends within so many seconds."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """Kill what is left of it: its master may be gone before its workers are."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        kill_left_behind(self.pid)  # what left the group is of the session still
        self._process.wait()

    def _read(self, states: int) -> None:
        """Hear what it says, until all that could say something is gone."""
        heard: Mapping[bytes, Callable[[], None]] = {SERVES: self.serves.set, ENDS: self.leaves.set}
        with os.fdopen(states, "rb", buffering=0) as pipe:
            while state := pipe.read(1):
                heard[state]()

    def _wait(self) -> None:
        self._process.wait()
        self.leaves.set()
