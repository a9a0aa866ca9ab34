"""One server process of a function: started, watched, and killed with all that it started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from leasehold.worker.stopping.holder import HOLDER

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
        except BaseException:  # no thread to watch it: it would stay unknown
            self._states.close()
            self.kill()
            raise

    def let_accept(self) -> None:
        """Have it accept requests once it has loaded its function."""
        self._may_accept = True
        with suppress(OSError):  # it ended, or does not listen any more
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


# The orphans of a dead worker: processes that it started, and that outlived it.
#
# A worker names itself in the environment of what it starts, so its processes are known wherever
# they went. Those that it only forked have no such name. But a server leads its own session, and
# what is started below it stays in that session, unless it asks for another one: when a worker
# dies, the kernel gives its children to a process outside, and they do not descend from the
# server any more.


#: What is killed may have just started something more: it is looked for again, this often.
_KILL_ROUNDS: Final = 20
_BETWEEN_ROUNDS_S: Final = 0.005
_VARIABLE: Final = f"{HOLDER}=".encode()


class Process(NamedTuple):
    """A process that runs.

    Args:
        started: ticks since boot: a pid alone may be given to another process later.
        holder: the worker that started it, or whose processes did; None: it is not known.
    """

    pid: int
    parent: int
    session: int
    started: str
    holder: str | None = None


def kill_orphans(server: int, holder: str | None = None) -> int:
    """Kill the orphans of a dead worker; return how many there were.

    Does nothing on a system without /proc.

    Args:
        server: the pid of the master, which leads the session.
        holder: the worker; None: the server itself is gone, and all of its session is meant.
    """
    killed: set[tuple[int, str]] = set()
    for _ in range(_KILL_ROUNDS):
        orphans = orphans_of(running_processes(), server, holder)
        if not orphans:
            break
        # /proc is not a snapshot: only what is seen twice is killed, right after the second look
        for process in orphans & orphans_of(running_processes(), server, holder):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGKILL)
                killed.add((process.pid, process.started))
        time.sleep(_BETWEEN_ROUNDS_S)
    return len(killed)


def orphans_of(
    running: Mapping[int, Process], server: int, holder: str | None = None
) -> set[Process]:
    """Return the orphans of a worker: those that name it, and those of its server without a name.

    Without a worker: all processes of the server's session that do not descend from it.
    """
    outside = {
        process
        for process in running.values()
        if process.session == server and not _descends(running, process, server)
    }
    if holder is None:
        return outside
    named = {process for process in running.values() if process.holder == holder}
    return named | {process for process in outside if process.holder is None}


def running_processes() -> dict[int, Process]:
    """Return what runs on this machine, by pid; a zombie does not, and has no children."""
    try:
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    except OSError:
        return {}
    return {process.pid: process for process in map(_process, pids) if process is not None}


def _descends(running: Mapping[int, Process], process: Process, server: int) -> bool:
    """Return whether the server is the process, or above it."""
    passed = set()
    above: Process | None = process
    while above is not None and above.pid not in passed:
        if above.pid == server:
            return True
        passed.add(above.pid)
        above = running.get(above.parent)
    return False


def _process(pid: int) -> Process | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    state, parent, _group, session, *others = stat.rpartition(")")[2].split()
    if state in "ZX":
        return None
    return Process(pid, int(parent), int(session), others[15], _holder_of(pid))


def _holder_of(pid: int) -> str | None:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # it is another user's
        return None
    holders = (it[len(_VARIABLE) :] for it in variables if it.startswith(_VARIABLE))
    return next((it.decode(errors="replace") for it in holders), None)
