"""One server process of a function: started, watched, and killed with all that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from leasehold.devserver.orphan_processes import kill_orphans

#: How long requests may run on once a server is to stop: Cloud Run, too, kills an instance 10 s
#: after SIGTERM.
DRAIN_S: Final = 10

#: What a server writes to its pipe: that it accepts requests, and that it accepts no more.
READY: Final = b"+"
STOPPING: Final = b"-"

_PROGRAM: Final = "leasehold.devserver.server_main"


class ServerProcess:
    """A server that reports when it accepts requests, and when it accepts no more.

    Args:
        options: of functions-framework.
        environ: its environment.
        listener: the socket that it accepts requests from; it stays the caller's.

    Attributes:
        pid: of the master, which leads the session.
        ready: set once it accepts requests.
        stopping: set once it accepts no more: it drains, or it ended.
    """

    def __init__(self, options: Sequence[str], environ: Mapping[str, str], listener: int) -> None:
        states, reports = os.pipe()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-m", _PROGRAM, f"{os.getpid()},{listener},{reports}", *options],
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(listener, reports),
            )
        except BaseException:
            os.close(states)
            raise
        finally:
            os.close(reports)
        self.pid = self._process.pid
        self.ready, self.stopping = threading.Event(), threading.Event()
        try:
            threading.Thread(target=self._wait_for_end, daemon=True).start()
            threading.Thread(target=self._read_states, args=(states,), daemon=True).start()
        except BaseException:  # no thread to watch it: nobody would know of it
            os.close(states)
            self.kill()
            raise

    def exit_code(self) -> int | None:
        """Return its exit code; None while it runs."""
        return self._process.poll()

    def request_stop(self) -> None:
        """Have it finish what it does, and end."""
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
        kill_orphans(self.pid)  # what left the group is still of the session
        self._process.wait()

    def _read_states(self, states: int) -> None:
        """Read what it reports, until every process that could write is gone."""
        events = {READY: self.ready, STOPPING: self.stopping}
        with os.fdopen(states, "rb", buffering=0) as pipe:
            while state := pipe.read(1):
                events[state].set()

    def _wait_for_end(self) -> None:
        self._process.wait()
        self.stopping.set()
