"""The function servers: real processes, started, watched, restarted, and ended with this one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from leasehold.devserver.left_behind import kill_left_behind
from leasehold.errors import SettingError, StoreUnavailableError

#: A server that needs longer than this to answer at all is not coming.
START_S: Final = 30.0
#: The wait before a server that died is started again; it doubles while it keeps dying.
RESTART_S: Final = 0.2
LONGEST_RESTART_S: Final = 10.0

_HOST: Final = "127.0.0.1"
_LOOK_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Function:
    """One function server.

    Args:
        name: the function; its entry file is `functions/{name}.py`.
        port: where it listens, on the loopback interface only.
        workers: server processes.
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
class Child:
    """Keeps the server of one function running until it is told to stop.

    Args:
        function: what to serve.
        folder: where the entry files are.
        environ: its environment.
        tell: told in a line what happens to it.
    """

    function: Function
    folder: Path
    environ: Mapping[str, str] = field(repr=False)
    tell: Callable[[str], None]
    _process: subprocess.Popen[bytes] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _keeper: threading.Thread | None = None

    def start(self) -> None:
        """Start the server and keep it running."""
        self._spawn()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    def wait_until_ready(self, deadline: float) -> None:
        """Wait until the server accepts connections; `deadline` is monotonic seconds.

        Raises:
            StoreUnavailableError: it does not.
        """
        while time.monotonic() < deadline:
            try:
                socket.create_connection((_HOST, self.function.port), timeout=1).close()
            except OSError:
                if self._stopping.wait(0.02):
                    return
            else:
                return
        problem = f"it does not answer within {START_S:g} s"
        raise StoreUnavailableError(store=f"function {self.function.name}", problem=problem)

    def ask_to_stop(self) -> None:
        """Let the server finish what it does, and start it no more."""
        self._stopping.set()
        with self._lock:  # whatever is spawned after this sees that it is not to be
            if self._process is not None:
                self._process.terminate()

    def wait_or_kill(self, deadline: float, at_once: Callable[[], bool]) -> None:
        """Wait for the server to end; kill what is left of it at `deadline`, or sooner.

        Args:
            deadline: in monotonic seconds.
            at_once: whether to wait no more; asked again and again.
        """
        if self._process is None:
            return
        while self._process.poll() is None and not at_once():
            if time.monotonic() > deadline:
                self.tell(f"{self.function.name} did not end in time and is killed")
                break
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_LOOK_S)
        kill_server(self._process.pid)
        self._process.wait()
        if self._keeper is not None:
            self._keeper.join()

    def kill_left_behind(self, holder: str) -> None:
        """Kill what a dead worker of this server left behind."""
        if self._process is not None and (killed := kill_left_behind(self._process.pid, holder)):
            self.tell(f"{killed} processes that a dead worker left behind are killed")

    def _keep(self) -> None:
        wait = RESTART_S
        while self._process is not None:
            began = time.monotonic()
            code = self._process.wait()
            if self._stopping.is_set():
                return
            kill_server(self._process.pid)
            if time.monotonic() - began > LONGEST_RESTART_S:
                wait = RESTART_S
            self.tell(f"{self.function.name} ended with {code}; it starts again in {wait:g} s")
            if self._stopping.wait(wait):
                return
            wait = min(wait * 2, LONGEST_RESTART_S)
            self._spawn()

    def _spawn(self) -> None:
        function = self.function
        server = "leasehold.devserver.function_server"
        options = {
            "--target": function.name,
            "--source": str(self.folder / f"{function.name}.py"),
            "--host": _HOST,
            "--port": str(function.port),
        }
        words = [word for option in options.items() for word in option]
        sizes = {"WORKERS": str(function.workers), "THREADS": str(function.threads)}
        with self._lock:
            if self._stopping.is_set():
                return
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-m", server, str(os.getpid()), *words],
                env={**self.environ, **sizes},
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )


def kill_server(master: int) -> None:
    """Kill what is left of a server: its master may be gone before its workers are."""
    with suppress(ProcessLookupError):
        os.killpg(master, signal.SIGKILL)
    kill_left_behind(master)  # what left the group is of the session still


def entry_folder(functions: Iterable[str]) -> Path:
    """Return the folder of the entry files: of the working folder, or of this checkout.

    Args:
        functions: the names of those that are to be served.

    Raises:
        SettingError: there is none, or an entry file is missing in it.
    """
    checkout = Path(__file__).parents[3]
    folders = (Path.cwd() / "functions", checkout / "functions")
    folder = next((it for it in folders if (it / "execute_step.py").is_file()), folders[0])
    for name in functions:
        if not (folder / f"{name}.py").is_file():
            raise SettingError(
                name="the working folder",
                value=str(Path.cwd()),
                allowed=f"a bundle: a folder with functions/{name}.py",
            )
    return folder


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on."""
    with socket.socket() as listener:
        listener.bind((_HOST, 0))
        port: int = listener.getsockname()[1]
        return port


def check_free(port: int, option: str) -> None:
    """Raise SettingError, which names the option, where somebody listens on the port already."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((_HOST, port))
        except OSError as error:
            allowed = f"a free port ({error.strerror})"
            raise SettingError(name=option, value=port, allowed=allowed) from None
