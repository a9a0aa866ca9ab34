"""Tests in processes that are forked from the one that has collected them: `--forks 6`.

Collecting takes as long as a thousand tests, and each process would do it for itself. Most tests
wait for others, so more processes run than there are cores. Each takes a file of tests when it is
done with one, in the order of collection: see `FIRST` in tests/conftest.py. Every third one begins
at the end: the first files wait much, the last ones compute, and both at once fill the machine.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, takewhile
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, Final

import pytest

#: Of so many processes, the last one takes the files from the end.
_GROUP: Final = 3

Tests = Sequence[pytest.Item]


@dataclass
class Fork:
    """A process that runs tests, and the one that it runs now."""

    pid: int
    name: str
    test: str = ""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=0, help="run tests in so many forked processes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in forks, where that is asked for; each fork returns from here as well."""
    config = session.config
    if not config.option.forks or config.option.collectonly or session.testsfailed:
        return None
    files = [list(tests) for _, tests in groupby(session.items, key=lambda test: test.path)]
    folder = config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined] # noqa: SLF001
    forks: dict[Connection, Fork] = {}
    wanted, begun = min(config.option.forks, len(files)), 0
    try:
        while wanted or forks:
            for _ in range(wanted):
                name, (reader, writer) = f"gw{begun}", Pipe(duplex=False)
                if not (pid := os.fork()):
                    for other in (reader, *forks):
                        other.close()
                    forks.clear()
                    reporter = _become_a_fork(config, name, folder / f"popen-{name}", writer)
                    is_last = begun % _GROUP == _GROUP - 1
                    _run_files(session, files, range(len(files))[:: -1 if is_last else 1])
                    reporter.pytest_runtest_logstart("")
                    return True
                writer.close()
                forks[reader] = Fork(pid, name)
                begun += 1
            wanted = sum(_hear(session, forks, reader) for reader in wait(list(forks)))
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
    finally:
        for fork in forks.values():
            os.kill(fork.pid, signal.SIGTERM)
            os.waitpid(fork.pid, 0)
    return True


def _hear(session: pytest.Session, forks: dict[Connection, Fork], reader: Any) -> bool:
    """Report what a fork says; return whether another one is to go on in its place."""
    hook, fork = session.config.hook, forks[reader]
    try:
        reports, fork.test = reader.recv()
    except EOFError:
        _, status = os.waitpid(forks.pop(reader).pid, 0)
        reader.close()
        if not status:
            return False
        place = fork.test or fork.name
        words = f"its process ended with {os.waitstatus_to_exitcode(status)}, and so did its file"
        report = pytest.TestReport(place, (place, None, place), {}, "failed", words, "call")
        hook.pytest_runtest_logreport(report=report)
        return bool(fork.test)
    for data in reports:
        report = hook.pytest_report_from_serializable(config=session.config, data=data)
        hook.pytest_runtest_logreport(report=report)
    return False


# -- in a fork -------------------------------------------------------------------------------------


class _Reporter:
    """Tells the first process which test runs, and how the one before it ended.

    In one message a test: most tests take less time than the messages would.
    """

    def __init__(self, config: pytest.Config, writer: Connection) -> None:
        self.config, self.writer = config, writer
        self.reports: list[Any] = []

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Send it; of no test at the end."""
        self.writer.send((self.reports, nodeid))
        self.reports = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        hook = self.config.hook
        self.reports.append(hook.pytest_report_to_serializable(config=self.config, report=report))


def _become_a_fork(config: Any, name: str, folder: Path, writer: Connection) -> _Reporter:
    """Have nothing in common with the other processes: no terminal, output or folder."""
    config.workerinput = {"workerid": name}  # plugins leave to the first process what one does
    folder.mkdir(mode=0o700)
    config._tmp_path_factory._basetemp = folder  # noqa: SLF001
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    config.pluginmanager.unregister(name="terminalreporter")
    config.pluginmanager.register(reporter := _Reporter(config, writer))
    return reporter


def _run_files(session: pytest.Session, files: Sequence[Tests], order: Iterable[int]) -> None:
    """Run a file after the other in this order, but for those that another process has taken."""
    chains = [tests[0].listchain() for tests in files]
    taken = session.config._tmp_path_factory.getbasetemp().parent  # type: ignore[attr-defined] # noqa: SLF001
    for number in filter(partial(_take, taken), order):
        tests, chain = files[number], chains[number]
        others = [other for other in chains if other is not chain]
        # What the file shares with none but its neighbours ends with it, as they may run elsewhere.
        farthest = min(others, key=partial(_shared, chain), default=[None])[-1]
        for test, following in zip(tests, [*tests[1:], farthest], strict=True):
            session.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
    session.testsfailed = 0  # the first process counts them


def _take(taken: Path, number: int) -> bool:
    try:
        (taken / f"taken-{number}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _shared(one: Sequence[object], other: Sequence[object]) -> int:
    """Return how many folders and files two tests are in, by what each is in."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], zip(one, other, strict=False)))
