"""The function servers: real processes, started, watched, restarted, and ended with this one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from leasehold.errors import SettingError, StoreUnavailableError

#: A server that needs longer than this to answer at all is not coming.
START_S: Final = 30.0
#: The wait before a server that died is started again; it doubles while it keeps dying.
RESTART_S: Final = 0.2
LONGEST_RESTART_S: Final = 10.0

_HOST: Final = "127.0.0.1"


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
    environ: Mapping[str, str]
    tell: Callable[[str], None]
    _process: subprocess.Popen[bytes] | None = None
    _stopping: threading.Event = field(default_factory=threading.Event)
    _keeper: threading.Thread | None = None

    def start(self) -> None:
        """Start the server and keep it running."""
        self._process = self._spawn()
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
        if self._process is not None:
            self._process.terminate()

    def kill_at(self, deadline: float) -> None:
        """Wait for the server to end; kill what is left of it at `deadline`."""
        if self._process is None:
            return
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.tell(f"{self.function.name} did not end in time and is killed")
        kill_group(self._process.pid)
        self._process.wait()
        if self._keeper is not None:
            self._keeper.join()

    def _keep(self) -> None:
        wait = RESTART_S
        while self._process is not None:
            began = time.monotonic()
            code = self._process.wait()
            if self._stopping.is_set():
                return
            kill_group(self._process.pid)
            wait = RESTART_S if time.monotonic() - began > LONGEST_RESTART_S else wait * 2
            wait = min(wait, LONGEST_RESTART_S)
            self.tell(f"{self.function.name} ended with {code}; it starts again in {wait:g} s")
            if self._stopping.wait(wait):
                return
            self._process = self._spawn()

    def _spawn(self) -> subprocess.Popen[bytes]:
        function = self.function
        source = self.folder / f"{function.name}.py"
        server = "leasehold.devserver.function_server"
        command = [sys.executable, "-m", server, str(os.getpid())]
        command += [
            "--target",
            function.name,
            "--source",
            str(source),
            "--host",
            _HOST,
            "--port",
            str(function.port),
        ]
        sizes = {"WORKERS": str(function.workers), "THREADS": str(function.threads)}
        return subprocess.Popen(  # noqa: S603 - our own program
            command,
            env={**self.environ, **sizes},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def kill_group(leader: int) -> None:
    """Kill what is left of a server: its master may be gone before its workers are."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


def entry_folder() -> Path:
    """Return the folder of the entry files: of the working folder, or of this checkout.

    Raises:
        SettingError: there is none.
    """
    checkout = Path(__file__).parents[3]
    for folder in (Path.cwd() / "functions", checkout / "functions"):
        if (folder / "execute_step.py").is_file():
            return folder
    raise SettingError(
        name="the working folder",
        value=str(Path.cwd()),
        allowed="a bundle: a folder with functions/execute_step.py",
    )


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on."""
    with socket.socket() as listener:
        listener.bind((_HOST, 0))
        port: int = listener.getsockname()[1]
        return port


def check_free(port: int) -> None:
    """Raise SettingError where somebody listens on the port already."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((_HOST, port))
        except OSError as error:
            allowed = f"a free port ({error.strerror})"
            raise SettingError(name="--port", value=port, allowed=allowed) from None
