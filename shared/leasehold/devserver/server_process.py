"""One server process of a function: started, watched, and killed with all that it started."""

from __future__ import annotations

import os
import signal
import socket
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

#: The messages of a server to its parent: it has loaded its function, it accepts requests, it
#: accepts no more.
LOADED: Final = b"="
READY: Final = b"+"
STOPPING: Final = b"-"
#: The message to it once it has loaded its function: it may accept requests.
ACCEPT: Final = b"!"

_PROGRAM: Final = "leasehold.devserver.server_main"


class ServerProcess:
    """A server that reports when it accepts requests, and when it accepts no more.

    Args:
        options: of functions-framework.
        environ: its environment.
        listener: the socket that it accepts requests from; it stays the caller's.

    Attributes:
        pid: of the master, which leads the session.
        loaded: set once it has loaded its function, and waits until it may accept requests.
        ready: set once it accepts requests.
        stopping: set once it accepts no more: it drains, or it ended.
    """

    def __init__(self, options: Sequence[str], environ: Mapping[str, str], listener: int) -> None:
        self._states, reports = socket.socketpair()
        try:
            here, there = os.getpid(), reports.fileno()
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-m", _PROGRAM, f"{here},{listener},{there}", *options],
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(listener, there),
            )
        except BaseException:
            self._states.close()
            raise
        finally:
            reports.close()
        self.pid = self._process.pid
        self.loaded, self.ready, self.stopping = (threading.Event() for _ in range(3))
        self._may_accept = False
        try:
            threading.Thread(target=self._wait_for_end, daemon=True).start()
            threading.Thread(target=self._read_states, daemon=True).start()
        except BaseException:  # no thread to watch it: no one would know of it
            self._states.close()
            self.kill()
            raise

    def let_accept(self) -> None:
        """Have it accept requests once it has loaded its function."""
        self._may_accept = True
        with suppress(OSError):  # it ended, or no one hears it any more
            self._states.send(ACCEPT)

    def exit_code(self) -> int | None:
        """Return its exit code; None while it runs."""
        return self._process.poll()

    def request_stop(self) -> None:
        """Have it finish what it does, and end; one that does nothing yet is killed."""
        if self._may_accept:
            self._process.terminate()
        else:
            self._process.kill()

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

    def _read_states(self) -> None:
        """Read what it reports, until every process that could write is gone."""
        events = {LOADED: self.loaded, READY: self.ready, STOPPING: self.stopping}
        with self._states, suppress(ConnectionResetError):  # it ended before it read
            while state := self._states.recv(1):
                events[state].set()

    def _wait_for_end(self) -> None:
        self._process.wait()
        self.stopping.set()
