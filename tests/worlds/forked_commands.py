"""The program `leasehold` of an environment, forked from one process that has imported its package.

A page of the docs types thirty commands into a shell, and most of the time of each is its imports.
Here a program of that name comes first on the PATH. It sends its words, its folder, its variables
and its streams to a process of the same Python and package, which forks, and exits with what came
of that. `leasehold serve` is forked as well: its program hands on a signal that ends it, and takes
it along when it is killed. So is `leasehold dev`, with the servers of its functions, where what
these need is imported (`DEVELOPED`); else it is started as ever.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import importlib
import marshal
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

#: Modules that commands import when they are called, and stored values whose models they make.
_IMPORTED: Final = (
    *("leasehold.adapters.sqlite", "leasehold.client.http_calls", "leasehold.in_process.engine"),
    *("leasehold.worker.sandbox.sandbox", "rich.live", "rich.table"),
)
_READ: Final = (("manifest", "Manifest"), ("summary", "RunHead"), ("delivery", "Delivery"))

#: A command that has not ended by then says on its stderr where each of its threads is. Who waits
#: for a command waits longer.
_HANGS_S: Final = 90.0

#: What `leasehold serve` imports when it is called: whoever types it has these imported.
SERVED: Final = (
    *("leasehold.adapters.folder", "leasehold.doctor.variables", "leasehold.server.server"),
    *("leasehold.server.startup", "leasehold.static_check"),
)
#: What `leasehold dev` and its functions import: whoever types it has these imported.
DEVELOPED: Final = (
    *("leasehold.devserver.server", "leasehold.devserver.gunicorn_worker"),
    *("leasehold.server.startup", "functions_framework._cli", "gunicorn.arbiter"),
    *("leasehold.web.deliver_notification", "leasehold.web.derive_budgets"),
    *("leasehold.web.execute_step", "leasehold.web.manage_lease", "leasehold.web.serve_api"),
    "leasehold.web.sweep_dead_letters",
)
#: Whether this system can wait for many processes at once; elsewhere commands come one at a time.
_HAS_PIDFD: Final = hasattr(os, "pidfd_open")
#: Of what `python` is asked to do, this alone is forked.
_PYTEST: Final = ["-m", "pytest"]
#: It imports next to nothing, not even `site`.
_PROGRAM: Final = """#!{python} -IS
import _signal, _socket, marshal, os, sys
if {is_started}:
    os.execv({program!r}, [{program!r}, *sys.argv[1:]])
asked = _socket.socket(_socket.AF_UNIX)
asked.connect({place!r})
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
asked.sendmsg([b"."], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
asked.sendall(marshal.dumps((sys.argv, os.getcwd(), dict(os.environ))))
pid = int.from_bytes(asked.recv(4), sys.byteorder)
_signal.signal(_signal.SIGTERM, lambda number, _: os.kill(pid, number))
os._exit(asked.recv(1)[0])
"""


@contextlib.contextmanager
def forked_commands(environ: Mapping[str, str], *imported: str) -> Iterator[dict[str, str]]:
    """Yield the variables of a shell in which commands are forked.

    Args:
        environ: the variables of a shell that finds an environment on its PATH.
        imported: further modules that are imported once; with `pytest`, `python -m pytest` is
            forked as well.
    """
    python, program = (shutil.which(name, path=environ["PATH"]) for name in ("python", "leasehold"))
    with tempfile.TemporaryDirectory() as folder:
        place = str(Path(folder, "asked"))
        is_forked = {"serve": _HAS_PIDFD, "dev": _HAS_PIDFD and {*DEVELOPED} <= {*imported}}
        started = [
            name for name, is_it in is_forked.items() if not is_it
        ]  # commands come beside it
        first = {program: f"sys.argv[1:2] in {[[name] for name in started]}"}
        if "pytest" in imported:
            first[python] = f"sys.argv[1:3] != {_PYTEST}"
        for real, is_started in first.items():
            forking = Path(folder, Path(str(real)).name)
            forking.write_text(
                _PROGRAM.format(python=python, program=real, place=place, is_started=is_started)
            )
            forking.chmod(0o755)
        forks = [str(python), "-P", __file__, place, *imported]
        with subprocess.Popen(
            forks, cwd=folder, env=environ, stdout=subprocess.PIPE, start_new_session=True
        ) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == b"ready\n"
                yield {**environ, "PATH": f"{folder}{os.pathsep}{environ['PATH']}"}
            finally:
                os.killpg(process.pid, signal.SIGKILL)


def main(place: str, *imported: str) -> None:
    """Fork for each command; in what is forked, become it, and return."""
    _import(imported)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(place)
        server.listen()
        os.write(1, b"ready\n")
        forked: dict[int, tuple[socket.socket, int]] = {}
        while True:
            _end_some(forked, until=server)
            asker, _ = server.accept()
            with asker.makefile("rb") as sent:
                _, streams, _, _ = socket.recv_fds(asker, 1, 3)
                words, folder, environ = marshal.load(sent)  # noqa: S302 - of the program above
            if (pid := os.fork()) == 0:
                break
            for stream in streams:
                os.close(stream)
            asker.sendall(pid.to_bytes(4, sys.byteorder))
            if _HAS_PIDFD:
                forked[os.pidfd_open(pid)] = asker, pid
            else:
                _tell_end(asker, pid)
        for one in (asker, *(one for one, _ in forked.values())):
            one.close()
        for descriptor in forked:
            os.close(descriptor)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if words[1:2] not in (["serve"], ["dev"]):
        faulthandler.dump_traceback_later(_HANGS_S, file=os.dup(2))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv[:] = words
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc] # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # type: ignore[misc] # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", errors="backslashreplace", closefd=False)  # type: ignore[misc] # noqa: SIM115


def _end_some(forked: dict[int, tuple[socket.socket, int]], until: socket.socket) -> None:
    """Tell of each process that ends, and end each whose program is gone, until a command comes."""
    while True:
        askers = [asker for asker, _ in forked.values()]
        ready, _, _ = select.select([until, *forked, *askers], [], [])
        for ended, (asker, pid) in [*forked.items()]:
            if asker in ready:  # it was killed: it writes nothing more
                os.kill(pid, signal.SIGKILL)
            if ended in ready or asker in ready:
                del forked[ended]
                os.close(ended)
                _tell_end(asker, pid)
        if until in ready:
            return


def _tell_end(asker: socket.socket, pid: int) -> None:
    """Wait for the end of a process, and have its program end with the same code."""
    _, status = os.waitpid(pid, 0)
    with asker, contextlib.suppress(BrokenPipeError):
        asker.sendall(bytes([os.waitstatus_to_exitcode(status) % 256]))


def _import(further: Sequence[str]) -> None:
    gc.disable()
    commands = importlib.import_module("leasehold.cli.commands")
    for name in commands.COMMANDS:
        commands.program.get_command(None, name)
    for name in (*_IMPORTED, *further):
        importlib.import_module(name)
    stored = importlib.import_module("leasehold.domain.stored")
    for module, kind in _READ:
        stored._adapter(getattr(importlib.import_module(f"leasehold.domain.{module}"), kind))  # noqa: SLF001
    gc.freeze()
    gc.enable()


def _run() -> int:
    """Do what the words say; return the exit code."""
    if sys.argv[1:3] == _PYTEST:
        del sys.argv[:2]
        sys.path.insert(0, str(Path.cwd()))
        return int(importlib.import_module("pytest").main())
    if sys.argv[1:2] == ["dev"]:
        _fork_servers()
    try:
        importlib.import_module("leasehold.cli").main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def _fork_servers() -> None:
    """Have this process fork the servers that it starts, as it has imported what they need."""
    sys.path.append(root := str(Path(__file__).parents[2]))
    warm_starts = importlib.import_module("tests.worlds.warm_starts")
    sys.path.remove(root)
    subprocess.Popen._execute_child = warm_starts._fork_or_execute  # type: ignore[attr-defined] # noqa: SLF001
    warm_starts.fork_from_here()


def _end(code: int) -> NoReturn:
    """End as Python does, but leave its memory to the system: to take it apart copies it first."""
    threading._shutdown()  # type: ignore[attr-defined] # noqa: SLF001
    atexit._run_exitfuncs()  # noqa: SLF001
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
    _end(_run())
