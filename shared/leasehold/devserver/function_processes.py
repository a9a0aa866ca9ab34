"""The processes of the functions: started, supervised, restarted, and ended with this one."""

from __future__ import annotations

import contextlib
import errno
import itertools
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from datetime import timedelta
from pathlib import Path
from typing import Final

from leasehold.devserver.loopback_server import LoopbackServer
from leasehold.devserver.server_process import DRAIN_S, ServerProcess, kill_orphans
from leasehold.domain.retry import doubling
from leasehold.errors import SettingError, StoreUnavailableError
from leasehold.frozen import dataclass
from leasehold.registry.dispatch import REMOTE
from leasehold.registry.functions import FunctionEntry, FunctionTable, Trigger
from leasehold.registry.pipelines import Catalog

#: A server that accepts no request within this time failed to start.
START_TIMEOUT_S: Final = 30.0
#: A server that ran for longer than this did not die of its start.
MAX_RESTART_WAIT_S: Final = 10.0
#: The waits before a server that died is started again, while it keeps dying.
RESTARTS: Final = doubling(timedelta(seconds=0.2), timedelta(seconds=MAX_RESTART_WAIT_S))

_HOST: Final = "127.0.0.1"
_BACKLOG: Final = 2048  # as gunicorn has it
#: Below those that Linux, macOS and Windows give to connections, and to who asks for any port.
_NOT_GIVEN: Final = range(20_000, 32_768)
_SERVER_POLL_S: Final = 0.05
#: A server that drained ends its own workers; this much longer for one that cannot.
_KILL_AFTER_DRAIN_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Function:
    """A function that is to be served.

    Args:
        name: its entry file is `functions/{name}.py`, see `entry_folder`.
        port: where it listens, on the loopback interface only.
        workers: processes that answer.
        threads: requests at once in each.
    """

    name: str
    port: int
    workers: int = 1
    threads: int = 8

    @property
    def url(self) -> str:
        """Where it is called."""
        return f"http://{_HOST}:{self.port}"


@dataclass(slots=True)
class FunctionProcesses:
    """The server processes of one function, which keep it served until they are to stop.

    The socket is this process's: while no server is there, a caller waits and is not refused. A
    server that another process stops is replaced while it drains, as under Cloud Run.

    Args:
        function: what to serve.
        folder: where its entry file is.
        environ: its environment.
        report: called with a line for people on what happens to them.
        until_then: answers on the port until `take_over`; None: nothing does, and this serves from
            the start.
    """

    function: Function
    folder: Path
    environ: Mapping[str, str] = field(repr=False)
    report: Callable[[str], None]
    until_then: LoopbackServer | None = None
    _listener: socket.socket | None = None
    _servers: list[ServerProcess] = field(default_factory=list)  # the last one serves
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Start the server and keep it running.

        Raises:
            StoreUnavailableError: the port is in use.
        """
        try:
            self._listener = self._listen()
        except OSError as error:
            raise self._unavailable(f"port {self.function.port}: {error.strerror}") from error
        server = self._spawn()
        if server is not None:
            self._in_thread(self._supervise, server)

    def wait_until_ready(self, deadline: float) -> None:
        """Wait until a server takes requests, or would; `deadline` is monotonic seconds.

        Raises:
            StoreUnavailableError: none does.
        """
        while time.monotonic() < deadline:
            servers = list(self._servers)
            if servers and self._awaited(servers[-1]).wait(_SERVER_POLL_S):
                return
            if self._stopping.wait(0 if servers else _SERVER_POLL_S):
                return
        raise self._unavailable(f"it does not answer within {START_TIMEOUT_S:g} s")

    def take_over(self, deadline: float) -> None:
        """Have a server answer in place of what did until now; `deadline` is monotonic seconds.

        A call meanwhile waits until it accepts, and is not refused.

        Raises:
            StoreUnavailableError: none does.
        """
        if self.until_then is None:
            return
        self.until_then.stop()
        with self._lock:
            self.until_then = None
            for server in self._servers[-1:]:
                server.let_accept()
        self.wait_until_ready(deadline)

    def restart(self) -> None:
        """Have a new server serve, while this one finishes what it does."""
        with self._lock:
            for server in self._servers[-1:]:
                server.request_stop()

    def request_stop(self) -> None:
        """Have the server finish what it does, and start it no more."""
        self._stopping.set()
        with self._lock:  # whatever is spawned after this sees that it is not to be
            if self._listener is not None:
                self._listener.close()
            for server in self._servers:
                server.request_stop()

    def wait_or_kill(self, deadline: float, at_once: Callable[[], bool]) -> None:
        """Wait for the server to end; kill what is left of it at `deadline`, or sooner.

        Args:
            deadline: in monotonic seconds.
            at_once: whether to stop waiting; called again and again.
        """
        for server in list(self._servers):
            while not server.wait(_SERVER_POLL_S) and not at_once():
                if time.monotonic() > deadline:
                    self.report(f"{self.function.name} did not end in time and is killed")
                    break
            server.kill()
        for thread in self._threads:
            thread.join()

    def kill_orphans(self, holder: str) -> None:
        """Kill the orphans of a dead worker of these servers."""
        for server in list(self._servers):
            if killed := kill_orphans(server.pid, holder):
                self.report(f"orphan processes of a dead worker are killed: {killed}")

    def _listen(self) -> socket.socket:
        if self.until_then is None:
            return socket.create_server((_HOST, self.function.port), backlog=_BACKLOG)
        listener = self.until_then.listener.dup()
        listener.listen(_BACKLOG)
        return listener

    def _awaited(self, server: ServerProcess) -> threading.Event:
        return server.ready if self.until_then is None else server.loaded

    def _supervise(self, server: ServerProcess | None) -> None:
        deaths = 0
        while server is not None:
            began = time.monotonic()
            server.stopping.wait()
            if self._stopping.is_set():
                return
            if time.monotonic() - began > MAX_RESTART_WAIT_S:
                deaths = 0
            deaths += 1
            wait = RESTARTS.wait_s(deaths)
            code = server.exit_code()
            if code is None:
                self._drain_beside(server)
            else:
                self._kill(server)  # before its runs begin again
            reason = "was asked to stop" if code is None else f"ended with {code}"
            self.report(f"{self.function.name} {reason}; it starts again in {wait:g} s")
            if self._stopping.wait(wait):
                return
            server = self._spawn_with_retries()

    def _drain_beside(self, server: ServerProcess) -> None:
        """Drain a server while the next one starts, or before it, where no thread is to be had."""
        try:
            self._in_thread(self._drain, server)
        except RuntimeError:
            self._drain(server)

    def _drain(self, server: ServerProcess) -> None:
        """Wait until a server that was replaced ended; kill what is left of it then."""
        if not server.wait(DRAIN_S + _KILL_AFTER_DRAIN_S):
            self.report(f"{self.function.name} did not end in time and is killed")
        self._kill(server)

    def _kill(self, server: ServerProcess) -> None:
        server.kill()
        with self._lock:
            self._servers.remove(server)

    def _spawn_with_retries(self) -> ServerProcess | None:
        """Start a server as soon as the system has a process and threads to spare."""
        for failures in itertools.count(1):
            try:
                return self._spawn()
            except (OSError, RuntimeError) as error:
                self.report(f"{self.function.name} cannot be started: {error}")
                if self._stopping.wait(RESTARTS.wait_s(failures)):
                    break
        return None

    def _spawn(self) -> ServerProcess | None:
        """Start a server, unless this is to stop."""
        function = self.function
        options = {
            "--target": function.name,
            "--source": str(self.folder / f"{function.name}.py"),
            "--host": _HOST,
            "--port": str(function.port),
        }
        pairs = [text for option in options.items() for text in option]
        sizes = {"WORKERS": str(function.workers), "THREADS": str(function.threads)}
        with self._lock:
            if self._stopping.is_set() or self._listener is None:
                return None
            server = ServerProcess(pairs, {**self.environ, **sizes}, self._listener.fileno())
            if self.until_then is None:
                server.let_accept()
            self._servers.append(server)
        return server

    def _in_thread(self, call: Callable[[ServerProcess], None], server: ServerProcess) -> None:
        thread = threading.Thread(target=call, args=(server,), daemon=True)
        thread.start()
        self._threads.append(thread)

    def _unavailable(self, problem: str) -> StoreUnavailableError:
        return StoreUnavailableError(store=f"function {self.function.name}", problem=problem)


def entry_folder(name: str) -> Path:
    """Return the folder of a function's entry file: the project's own, or else the package's.

    Raises:
        SettingError: neither has it.
    """
    package = Path(__file__).parents[1]
    for folder in (Path.cwd() / "functions", package / "functions"):
        if (folder / f"{name}.py").is_file():
            return folder
    raise SettingError(
        name="the working folder",
        value=str(Path.cwd()),
        allowed=f"a project: a folder with functions/{name}.py",
    )


def free_port() -> int:
    """Return a free port of the loopback interface.

    If possible, one that the system gives only on request: until a server is
    there, any connection may be given another one.
    """
    for port in (*random.SystemRandom().sample(_NOT_GIVEN, 50), 0):
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind((_HOST, port))
            return int(listener.getsockname()[1])
    raise OSError(errno.EADDRNOTAVAIL, "no port of the loopback interface is free")


def own_port() -> int:
    """Return a port that is given to no other caller until this process ends.

    A socket of this process has it and never listens: a connection is refused until a server that
    sets SO_REUSEADDR listens there. So that server may end, and come back. Only Linux lets two have
    a port so; elsewhere it is a free port, as it was found.
    """
    if sys.platform != "linux":
        return free_port()
    with socket.socket() as keeper:
        while True:
            found = free_port()
            with contextlib.suppress(OSError):  # another process was given it meanwhile
                keeper.bind((_HOST, found))
                keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # then it is shared
                keeper.detach()  # open until this process ends
                return found


# The functions that `leasehold dev` serves: those of the table that something here calls.


#: Requests at once: far more than callers need, so that requests which never arrive completely, and
#: hold a thread each until their time is over, keep no caller out.
API_THREADS: Final = 64

#: Requests at once in each process. One machine has no further instance that would answer, so these
#: are no less than in the table.
_THREADS: Final[Mapping[Trigger, int]] = {
    Trigger.TASKS: 8,
    Trigger.SCHEDULE: 2,
    Trigger.EVENTS: 8,
    Trigger.REQUESTS: API_THREADS,
    Trigger.WORKERS: API_THREADS,
}


def served_functions(
    table: FunctionTable, catalog: Catalog, ports: Mapping[str, int | None], workers: int
) -> tuple[Function, ...]:
    """Return the functions that are served.

    Args:
        table: those there are.
        catalog: what they run.
        ports: by the name of a function, where it listens; the others get free ports.
        workers: server processes of the function that tasks call.
    """
    return tuple(
        Function(
            entry.name,
            ports.get(entry.name) or own_port(),
            workers=workers if entry.trigger is Trigger.TASKS else 1,
            threads=_THREADS[entry.trigger],
        )
        for entry in table
        if _is_called(entry, catalog)
    )


def among(functions: Sequence[Function], entries: Sequence[FunctionEntry]) -> list[Function]:
    """Return those functions that are in these rows of the table."""
    names = {entry.name for entry in entries}
    return [function for function in functions if function.name in names]


def _is_called(entry: FunctionEntry, catalog: Catalog) -> bool:
    """Return whether anything calls the function while this catalog runs."""
    if entry.trigger is Trigger.EVENTS:
        return bool(len(catalog.channels))
    if entry.trigger is Trigger.WORKERS:
        return any(step.handler == REMOTE for step in catalog.steps)
    return True
