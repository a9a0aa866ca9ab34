"""A forked process of a test is the process that a start would have made."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tests.worlds.warm_starts import cold_starts

#: A catalog that is imported by the command, and says what process that is.
_SAYS = """
import json, os, signal, sys, threading
print(json.dumps({
    "pid": os.getpid(), "parent": os.getppid(), "session": os.getsid(0) == os.getpid(),
    "cwd": os.getcwd(), "own": os.environ.get("OWN"), "home": "HOME" in os.environ,
    "argv": sys.argv[1:], "path": sys.path[0], "modules": "tests" in sys.modules,
    "is_main": threading.current_thread() is threading.main_thread(),
    "interrupts": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "descriptors": sorted(int(one) for one in os.listdir("/proc/self/fd"))[:3],
    "forked": "waitress" in sys.modules,
}), file=sys.__stdout__, flush=True)
if "OWN" in os.environ:
    threading.Timer(60, os._exit, (3,)).start()
    signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
"""

#: One that forks, and says which of its descriptors are open there.
_FORKS = """
import os, sys
if not os.fork():
    print(*os.listdir("/proc/self/fd"), file=sys.__stdout__, flush=True)
    os._exit(0)
os.wait()
"""

#: A forked child of the caller needs `clone` with CLONE_PARENT; elsewhere each process is started.
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no process is forked here")


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    (tmp_path / "says.py").write_text(_SAYS)
    (tmp_path / "time.txt").touch()  # not a module, whatever its name
    environ = {name: value for name, value in os.environ.items() if name != "HOME"}
    with subprocess.Popen(
        [sys.executable, "-m", "leasehold", "check", "--json"],
        cwd=tmp_path,
        env=environ | {"LEASEHOLD_CATALOG": "says"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        yield process
        process.kill()


def test_it_is_a_separate_child(begun: subprocess.Popen[str], tmp_path: Path) -> None:
    output, _ = begun.communicate()

    said = json.loads(output.splitlines()[0])
    assert said == {
        "pid": begun.pid,
        "parent": os.getpid(),
        "session": True,
        "cwd": str(tmp_path),
        "own": None,
        "home": False,
        "argv": ["check", "--json"],
        "path": str(tmp_path),
        "modules": False,
        "is_main": True,
        "interrupts": signal.getsignal(signal.SIGINT) is not signal.SIG_IGN,
        "descriptors": [0, 1, 2],
        "forked": True,
    }
    assert begun.returncode == 2  # a catalog without tables


def test_a_signal_ends_it_as_it_ends_any_process(tmp_path: Path) -> None:
    """The C library knows the thread by its new id: it is signalled, and not the zygote's."""
    (tmp_path / "says.py").write_text(_SAYS)

    done = subprocess.run(
        [sys.executable, "-m", "leasehold", "check"],
        cwd=tmp_path,
        env=os.environ | {"LEASEHOLD_CATALOG": "says", "OWN": "1"},
        capture_output=True,
        check=False,
    )

    assert done.returncode == -signal.SIGUSR1


def test_a_fork_of_it_has_all_that_it_was_given(tmp_path: Path) -> None:
    """The process that it is forked from has a pipe, which each fork closes."""
    (tmp_path / "forks.py").write_text(_FORKS)
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]  # each low number is taken then
    given = range(11, 18)  # so many that the pipe gets one of these, wherever the numbers begin

    done = subprocess.run(
        [sys.executable, "-m", "leasehold", "check"],
        cwd=tmp_path,
        env=os.environ | {"LEASEHOLD_CATALOG": "forks"},
        pass_fds=given,
        capture_output=True,
        text=True,
        check=False,
    )

    for descriptor in opened:
        os.close(descriptor)
    assert {str(number) for number in given} <= set(done.stdout.split("\n")[0].split())


@pytest.mark.parametrize("case", ["cold", "shadowed", "variable"])
def test_what_python_reads_when_it_starts_has_it_started(tmp_path: Path, case: str) -> None:
    (tmp_path / "says.py").write_text(_SAYS)
    environ = os.environ | {"LEASEHOLD_CATALOG": "says"}
    if case == "shadowed":
        (tmp_path / "waitress.py").touch()
    elif case == "variable":
        environ["PYTHONHASHSEED"] = "7"

    with cold_starts() if case == "cold" else contextlib.nullcontext():
        done = subprocess.run(
            [sys.executable, "-m", "leasehold", "check"],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            check=False,
        )

    assert json.loads(done.stdout.splitlines()[0])["forked"] is False


@pytest.mark.parametrize("is_cold", [False, True])
def test_a_spawned_process_shares_nothing_with_the_test(is_cold: bool) -> None:
    spawned = multiprocessing.get_context("spawn")
    reader, writer = spawned.Pipe(duplex=False)
    process = spawned.Process(target=_report, args=(writer,))

    with cold_starts() if is_cold else contextlib.nullcontext():
        process.start()
    writer.close()
    report = reader.recv()
    process.join()

    assert report == [process.pid, os.getpid(), not is_cold, False]
    assert process.exitcode == 7


def _report(writer: Connection) -> None:
    names = ("waitress", "tests.conftest")
    writer.send([os.getpid(), os.getppid(), *(name in sys.modules for name in names)])
    sys.exit(7)
