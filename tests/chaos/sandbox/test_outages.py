"""No process to be had: that is an outage, known in time, and over when it is over."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from leasehold.adapters.folder import FolderArtifacts
from leasehold.domain.result import Deferred, Failed, Finished
from leasehold.domain.status import Termination
from leasehold.errors import ForkServerError, StoreUnavailableError
from leasehold.testing.contexts import MemoryEngine
from leasehold.worker.sandbox.forking.child import Child
from leasehold.worker.sandbox.forking.children import Children, Purpose
from leasehold.worker.sandbox.sandbox import Sandbox
from tests.chaos.sandbox import programs
from tests.chaos.sandbox.conftest import descriptors, is_gone
from tests.worlds.attempts import Attempts, Step
from tests.worlds.processes import parent_of
from tests.worlds.waiting import until

#: Nobody else on the machine is to be one of these users, from here to 10,000 further on.
_FIRST_USER = 1_700_000

as_root = pytest.mark.skipif(os.getuid() != 0, reason="root alone may become another user")


def test_a_frozen_fork_server_is_given_up_in_time(children: Children) -> None:
    server = _server_of(children)
    os.kill(server, signal.SIGSTOP)

    with pytest.raises(ForkServerError, match="does not answer"):
        _opened(children, within=0.3)

    os.kill(server, signal.SIGCONT)
    assert _server_of(children) == server


def test_a_fork_server_that_stays_frozen_is_replaced_and_its_children_end_their_work(
    impatient_children: Children,
) -> None:
    children = impatient_children
    child = _opened(children)
    server = parent_of(child.pid)
    os.kill(server, signal.SIGSTOP)

    assert _server_of(children) != server
    assert child.ending() is None
    child.kill()
    child.close()
    until(lambda: is_gone(server))


@pytest.mark.cold  # the first start of a process begins a zygote, with a descriptor
def test_an_entry_that_cannot_be_imported_is_an_outage() -> None:
    before = descriptors()
    children = Children("leasehold.nowhere")

    with pytest.raises(ForkServerError, match=r"\[no_process\].* handler a:b: "):
        children.open("a:b", wait=programs.never, within=1)

    children.close()
    assert descriptors() == before


def test_a_fork_server_without_room_for_processes_is_an_outage_that_passes() -> None:
    with closing(Children(programs.ENTRY_OF_NOBODY)) as children:
        server = _server_of(children)
        waiting = _opened(children)
        children.idle.keep(Purpose.of(Step("steps:another")), waiting)

        os.kill(server, signal.SIGUSR1)
        until(lambda: _most_processes(server) == "0")
        with pytest.raises(ForkServerError, match="Resource temporarily unavailable"):
            _opened(children, within=0.3)
        until(lambda: is_gone(waiting.pid))  # it makes room

        os.kill(server, signal.SIGUSR2)
        assert _server_of(children) == server


def _limits_of(pid: int) -> str:
    return Path(f"/proc/{pid}/limits").read_text(encoding="ascii")


def _most_processes(pid: int) -> str:
    limits = _limits_of(pid).splitlines()
    (line,) = (line for line in limits if line.startswith("Max processes"))
    return line.split()[2]


@pytest.mark.parametrize("room", [0, 1, 2])
def test_a_fork_server_without_room_for_descriptors_is_an_outage_that_passes(
    children: Children, room: int
) -> None:
    server = _server_of(children)
    taken = {int(entry.name) for entry in Path(f"/proc/{server}/fd").iterdir()}
    free = [number for number in range(100) if number not in taken]

    with (
        _limited(server, resource.RLIMIT_NOFILE, free[room]),
        pytest.raises(ForkServerError),
    ):
        _opened(children, within=0.3)

    assert _server_of(children) == server


def test_a_worker_without_room_for_descriptors_has_an_outage_that_passes(
    children: Children,
) -> None:
    before = descriptors()

    with (
        _limited(os.getpid(), resource.RLIMIT_NOFILE, 3),
        pytest.raises(ForkServerError, match="Too many open files"),
    ):
        _opened(children, within=0.1)

    _opened(children).close()
    children.close()
    assert descriptors() == before


def test_a_handler_that_ends_its_fork_server_has_failed_in_the_end(tmp_path: Path) -> None:
    """Whom it takes with it has not: who is alone with its fork server then tells them apart."""
    before = descriptors()
    with closing(Sandbox()) as sandbox:
        attempts = Attempts(sandbox, tmp_path)

        results = [attempts.run("kills_its_parent") for _ in range(3)]

        reasons = [one.reason for one in results if isinstance(one, Deferred)]
        assert reasons == [Termination.PROCESS_UNAVAILABLE] * 2
        failed = results[2]
        assert isinstance(failed, Failed)
        assert failed.error.code == "handler_died"
        assert "does the handler kill its parent?" in failed.error.message
        assert isinstance(attempts.run("who_runs"), Finished)

        for _ in range(2):
            attempts.run("kills_its_parent")
        assert isinstance(attempts.run("who_runs"), Finished)  # it was not to blame
    assert descriptors() == before


@pytest.mark.parametrize(
    ("store", "write", "given"),
    [(FolderArtifacts, "put", "x" * 40_000), (MemoryEngine, "commit", "x")],
    ids=["store", "record"],
)
def test_the_time_that_a_handler_waits_for_a_store_is_no_failure(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch, store: type, write: str, given: str
) -> None:
    """Else an outage of an hour uses all retries up of a step whose limit is ten minutes."""

    def away(*_: object, **_named: object) -> None:
        raise StoreUnavailableError(store="here", problem="it is not mounted")

    monkeypatch.setattr(store, write, away)

    result = attempts.run("keeps_once", given, attempts.held(timeout=4, cleanup=1))

    assert isinstance(result, Deferred)
    assert result.reason is Termination.STORE_UNAVAILABLE
    assert "it is not mounted" in result.detail


@as_root
@pytest.mark.parametrize(
    "short_of",
    [
        *("nproc 3", "as 9000"),  # some of its threads are had; too little memory
        *(
            pytest.param(it, marks=pytest.mark.nightly)
            for it in ("nproc 2", "nproc 5", "as 0", "as 15000")
        ),
    ],
)
def test_an_attempt_that_is_short_of_threads_or_memory_uses_up_no_retry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short_of: str
) -> None:
    """With one free slot, its process has that, and there is none for its threads."""
    monkeypatch.setenv("SHORT_OF", short_of)
    monkeypatch.setenv("SHORT_USER", str(_FIRST_USER + os.getpid() % 10_000))
    with closing(Sandbox(entry="tests.chaos.sandbox.run_short")) as sandbox:
        attempts = Attempts(sandbox, tmp_path)
        first = attempts.run("parent")
        assert isinstance(first, Finished)
        server = int(first.output)
        before = _limits_of(server)

        os.kill(server, signal.SIGUSR1)
        until(lambda: _limits_of(server) != before)
        with ThreadPoolExecutor(5) as threads:
            results = list(threads.map(lambda _: _tried(attempts), range(25)))

        os.kill(server, signal.SIGUSR2)
        until(lambda: _limits_of(server) == before)
        after = attempts.run("who_runs")

    assert {type(one) for one in results} <= {Finished, Deferred, ForkServerError}
    assert any(isinstance(one, Deferred) for one in results)
    assert isinstance(after, Finished)


def _tried(attempts: Attempts) -> object:
    try:
        return attempts.run("who_runs")
    except ForkServerError as error:
        return error


@as_root
def test_a_process_that_ends_before_its_handler_is_imported_is_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the engine's own code dies of there: here it may not enter the worker's folder."""
    monkeypatch.setenv("SHORT_OF", "nproc 100")
    monkeypatch.setenv("SHORT_USER", str(_FIRST_USER))
    with closing(Sandbox(entry="tests.chaos.sandbox.run_short")) as sandbox:
        attempts = Attempts(sandbox, tmp_path)
        attempts.run("who_runs")
        (tmp_path / "private").mkdir(mode=0o700)
        monkeypatch.chdir(tmp_path / "private")

        result = attempts.run("who_runs")

    assert isinstance(result, Deferred)
    assert result.reason is Termination.PROCESS_UNAVAILABLE
    begun, _, said = result.detail.partition(": ")
    assert begun == "The process ended before the handler was called"
    assert said.startswith("PermissionError: ")


def test_a_handler_that_ends_its_process_as_the_engine_would_has_failed(
    attempts: Attempts,
) -> None:
    """Else it would be put off forever."""
    failed = attempts.run("exits_as_the_engine")

    assert isinstance(failed, Failed)
    assert failed.error.code == "handler_died"


@pytest.mark.parametrize("runs", ["run", "run_inline"])
@pytest.mark.parametrize(
    ("lacks", "reason"),
    [
        ("memory", Termination.PROCESS_UNAVAILABLE),
        ("descriptors", Termination.PROCESS_UNAVAILABLE),
        ("threads", Termination.THREAD_UNAVAILABLE),
    ],
)
def test_a_handler_whose_import_met_an_outage_is_deferred(
    attempts: Attempts, runs: str, lacks: str, reason: Termination
) -> None:
    path = f"tests.chaos.sandbox.hostile_imports.lacks_{lacks}:handle"

    result = getattr(attempts, runs)(path)

    assert isinstance(result, Deferred)
    assert result.reason is reason


def _opened(children: Children, within: float = 60) -> Child:
    return children.open(f"{programs.__name__}:echo", wait=programs.never, within=within)


def _server_of(children: Children) -> int:
    """Return the pid of the fork server, which works."""
    with closing(_opened(children)) as child:
        server = parent_of(child.pid)
    until(lambda: is_gone(child.pid))  # the fork server has closed its descriptors then
    return server


@contextmanager
def _limited(pid: int, limit: int, least: int) -> Iterator[None]:
    before = resource.prlimit(pid, limit)
    resource.prlimit(pid, limit, (least, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, limit, before)
