"""Programs for the children of these tests, and workers that are killed."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

from leasehold.worker.sandbox.forking.children import Children
from tests.worlds.processes import parent_of
from tests.worlds.waiting import until

ENTRY = __name__
ENTRY_OF_NOBODY = "tests.chaos.sandbox.run_as_nobody"
ENTRY_WITH_STOPS = "tests.chaos.sandbox.run_with_stops"
IMPORTED_BY = os.getpid()

_SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def run(call: socket.socket, handler: str) -> None:
    """Import the module of the handler, as a child of the engine does, and call it."""
    sys.of_a_child = True  # type: ignore[attr-defined]
    module, _, name = handler.partition(":")
    __import__(module)
    getattr(sys.modules[module], name)(call)


def load(handlers: list[str]) -> None:
    """Import the module of the handlers, as a zygote of the engine does."""
    __import__(handlers[0].partition(":")[0])


def do_nothing(call: socket.socket) -> None:
    pass


def echo(call: socket.socket) -> None:
    while said := call.recv(1000):
        call.sendall(said)


def wait(call: socket.socket) -> None:
    call.sendall(b"r")
    call.recv(1)


def print_much(call: socket.socket) -> None:
    sys.stdout.write("of the child\n")
    sys.stderr.write("an error\n")
    os.write(1, b"of C\n")
    subprocess.run(["/bin/echo", "of its child"], check=True)


def exit_with_3(call: socket.socket) -> None:
    sys.exit(3)


def end_at_once(call: socket.socket) -> None:
    os._exit(0)


def crash(call: socket.socket) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def raise_an_error(call: socket.socket) -> None:
    raise ValueError("of the handler")


def list_descriptors(call: socket.socket) -> None:
    """Say what is open, and with which signals and session this process lives."""
    names = {}
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            names[int(descriptor.name)] = str(descriptor.readlink())
        except OSError:
            continue  # that of the list itself
    kinds = {number: name.partition(":[")[0] for number, name in names.items()}
    is_own_session = os.getsid(0) == os.getpid()
    score = Path("/proc/self/oom_score_adj").read_text(encoding="ascii")
    call.sendall(repr((kinds, call.fileno(), is_own_session, int(score))).encode())


def say_what_it_sees(call: socket.socket) -> None:
    changed = os.environ.get("ADDED"), os.environ.get("REMOVED"), str(Path.cwd()), sys.path[-1]
    call.sendall(repr(changed).encode())


def say_who_imported_it(call: socket.socket) -> None:
    call.sendall(f"{IMPORTED_BY} {os.getppid()} {os.getpid()}".encode())


def close_everything(call: socket.socket) -> None:
    os.closerange(0, 1000)
    time.sleep(600)


def ignore_all_signals(call: socket.socket) -> None:
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    call.sendall(b"r")
    while True:
        pass


def eat_memory(call: socket.socket) -> None:
    call.sendall(b"r")
    for _ in iter(lambda: call.recv(1), b""):
        eaten = bytearray(50_000_000)
        call.sendall(b"r")
    del eaten


def eat_memory_in_a_fork(call: socket.socket) -> None:
    if os.fork():
        os.wait()
    else:
        eat_memory(call)
        os._exit(0)


def share_memory(call: socket.socket) -> None:
    """Have 50 MB that three forks have too."""
    eaten = bytearray(50_000_000)
    for _ in range(3):
        if os.fork() == 0:
            time.sleep(600)
    call.sendall(b"r")
    call.recv(1)
    del eaten


def leave_20_behind(call: socket.socket) -> None:
    """Start what no process group and no parent leads to, and say the pids; then wait."""
    reads, writes = os.pipe()
    for number in range(20):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                if number % 2:
                    os.setsid()
                os.write(writes, b"%d " % os.getpid())
                if number % 4 == 0:
                    os.execv(sys.executable, _SLEEP)  # noqa: S606 - it is to have no parent
                time.sleep(600)
            os._exit(0)
    pids = b""
    while pids.count(b" ") < 20:
        pids += os.read(reads, 1000)
    call.sendall(pids)
    call.recv(1)


def leave_one_behind(call: socket.socket) -> None:
    """Start a process with its own session, and say its pid; then wait."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        time.sleep(600)
    call.sendall(b"%d" % pid)
    call.recv(1)


def leave_a_family_behind(call: socket.socket) -> None:
    """Start a process that has one of its own, each in a session, and say the pids; then wait.

    None of them ends before this one, so nothing else wakes the fork server.
    """
    reads, writes = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
        os.write(writes, b"%d " % os.getpid())
        time.sleep(600)
    pids = b""
    while pids.count(b" ") < 2:
        pids += os.read(reads, 1000)
    call.sendall(pids)
    call.recv(1)


# -- workers -----------------------------------------------------------------------------------


def never(seconds: float) -> bool:
    """Wait, and never stop."""
    threading.Event().wait(seconds)
    return False


def worker_with_leftovers(call: socket.socket) -> None:
    """Say who the fork server is, and whom a child has left behind; then wait."""
    children = Children(ENTRY)
    children.note_fit(__name__)
    child = children.open(f"{__name__}:leave_20_behind", wait=never, within=60)
    pids = child.call.recv(1000).split()
    call.sendall(b" ".join([b"%d" % parent_of(child.pid), b"%d" % child.pid, *pids]))
    call.recv(1)


def worker_whose_library_forks(call: socket.socket) -> None:
    """Say who the fork server is, and who has all descriptors of this process; then wait."""
    children = Children(ENTRY)
    with closing(children.open(f"{__name__}:wait", wait=never, within=60)) as child:
        server = parent_of(child.pid)
    copy = ctypes.CDLL(None).fork()  # as a library of C does: Python hears nothing of it
    if copy == 0:
        time.sleep(600)
    call.sendall(b"%d %d" % (server, copy))
    call.recv(1)


def worker_with_one_that_waits(call: socket.socket) -> None:
    """Say which process waits for a further attempt; then wait."""
    from leasehold.worker.sandbox.sandbox import Sandbox  # noqa: PLC0415 - of this worker alone
    from tests.worlds.attempts import Attempts  # noqa: PLC0415 - as above

    attempts = Attempts(Sandbox(), Path("/nonexistent"), reuse=10)
    for_two = [attempts.run("tests.chaos.sandbox.reused:leaves", "") for _ in range(2)]
    call.sendall(" ".join({getattr(result, "output", "") for result in for_two}).encode())
    call.recv(1)


def worker_that_just_ends(call: socket.socket) -> None:
    """Say who the fork server is, and end without a word to it."""
    children = Children(ENTRY)
    call.sendall(b" ".join(_asked(children, "say_who_imported_it").split()[:1]))


def worker_that_forks(call: socket.socket) -> None:
    """Use a fork server, fork, and use it again on both sides; say what each of them had."""
    children = Children(ENTRY)
    until(lambda: _is_from_a_zygote(children), 60)
    first = _asked(children, "say_who_imported_it")
    open_child = children.open(f"{__name__}:wait", wait=never, within=60)
    copy = os.fork()
    if copy == 0:
        call.sendall(b"copy %s\n" % _asked(children, "say_who_imported_it"))
        open_child.close()
        children.close()
        os._exit(0)
    os.waitpid(copy, 0)
    lives = open_child.ending() is None
    call.sendall(b"first %s\nagain %s\n" % (first, _asked(children, "say_who_imported_it")))
    call.sendall(b"lives %d\n" % lives)
    open_child.close()
    children.close()


def _is_from_a_zygote(children: Children) -> bool:
    children.note_fit(__name__)
    fork_server, parent, _ = _asked(children, "say_who_imported_it").split()
    return fork_server != parent


def _asked(children: Children, name: str) -> bytes:
    child = children.open(f"{__name__}:{name}", wait=never, within=60)
    try:
        return child.call.recv(1000)
    finally:
        child.close()
