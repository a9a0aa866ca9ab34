"""Starting the fork server, and ending what it left when it has ended."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from leasehold.worker.sandbox.forker import Forker
from leasehold.worker.sandbox.process_handle import ProcessHandle
from leasehold.worker.sandbox.source_finder import SourceText, dump

#: Set for the fork server, and inherited by all below it.
MARK: Final = "LEASEHOLD_FORK_SERVER"

#: What is killed may have just started something more: it is looked for again, this often.
_LOOKS: Final = 20
_GONE_S: Final = 1.0


def kill_marked(mark: str) -> None:
    """Kill all processes with that mark. Does nothing on a system without /proc."""
    wanted = f"{MARK}={mark}".encode()
    for _ in range(_LOOKS):
        if not _kill_all(wanted):
            return


def _kill_all(variable: bytes) -> bool:
    """Kill all that have the variable; return whether there was one."""
    killed = []
    for pid in _pids():
        process = ProcessHandle(pid)  # before the look: so it is the same process
        if variable in _environment(pid):
            process.kill()
            killed.append(process)
        else:
            process.close()
    for process in killed:
        process.wait(_GONE_S)
        process.close()
    return bool(killed)


def _pids() -> list[int]:
    try:
        names = os.listdir("/proc")  # noqa: PTH208 - as cheap as can be
    except OSError:
        return []
    return [int(name) for name in names if name.isdecimal() and int(name) != os.getpid()]


def _environment(pid: int) -> list[bytes]:
    """Return the variables that a process was started with; none: it ended, or is not ours."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


#: It ends within a moment when its socket is closed; longer, and it is frozen.
_END_S: Final = 5.0

_PROGRAM: Final = (
    "import sys; sys.path[:] = {path!a}; "
    "from leasehold.worker.sandbox.fork_server import main; "
    "main({control}, {worker}, {entry!a}, {sources})"
)


class ForkServer(Forker):
    """The fork server: a new program, so nothing of the worker is in it, and no thread.

    Args:
        entry: the module that children run.
        sources: the project's own, as the worker read them: children import these.

    Raises:
        OSError: there is no process, or no descriptor, to be had.
    """

    def __init__(self, entry: str, sources: Mapping[str, SourceText]) -> None:
        control, far = socket.socketpair()
        super().__init__(control, self._stop)
        self._mark = secrets.token_hex(8)
        self._clean_up = threading.Lock()
        self._is_cleaned_up = False
        try:
            with tempfile.TemporaryFile() as file:
                file.write(dump(sources))
                file.flush()
                self._process = _started(far, self._mark, entry, file)
        except BaseException:
            control.close()
            raise
        finally:
            far.close()

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, by whatever; what it left behind is killed then."""
        if self._process.poll() is None:
            return False
        self._kill_left_behind()
        return True

    def note_lost(self) -> None:
        """Kill what is left of a process that nobody saw end, if this is why."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
            self._kill_left_behind()

    def let_go(self) -> None:
        """Close the descriptors: this is a fork of the worker, and nothing here is its own."""
        super().let_go()
        self._process.returncode = 0  # as far as this process is concerned

    def _stop(self) -> None:
        self._control.close()
        self._process.send_signal(signal.SIGCONT)  # stopped by whoever, it would not hear of it
        try:
            self._process.wait(0 if self.is_retired else _END_S)  # it was retired as it is frozen
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._kill_left_behind()

    def _kill_left_behind(self) -> None:
        """Kill what it forked and could not kill itself, once."""
        with self._clean_up:
            if not self._is_cleaned_up and self._process.returncode != 0:
                kill_marked(self._mark)
            self._is_cleaned_up = True


def _started(
    control: socket.socket, mark: str, entry: str, sources: IO[bytes]
) -> subprocess.Popen[bytes]:
    if not sys.executable:
        raise FileNotFoundError("this program does not know its Python interpreter")
    path = [part for part in sys.path if isinstance(part, str)]
    program = _PROGRAM.format(
        path=path,
        control=control.fileno(),
        worker=os.getpid(),
        entry=entry,
        sources=sources.fileno(),
    )
    return subprocess.Popen(  # noqa: S603 - this interpreter, and a text of our own
        [sys.executable, "-P", "-c", program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={**os.environ, MARK: mark},
        pass_fds=[control.fileno(), sources.fileno()],
        start_new_session=True,
    )
