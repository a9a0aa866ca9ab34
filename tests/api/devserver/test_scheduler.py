"""The double of Cloud Scheduler: it calls each scheduled function of the table when it is due."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from leasehold.devserver.function_processes import served_functions
from leasehold.devserver.scheduler import Scheduler
from leasehold.devserver.server import DevOptions, DevServer
from leasehold.errors import InvalidEntryError, SettingError
from leasehold.registry.function_table import FUNCTIONS
from leasehold.registry.functions import FunctionEntry, FunctionTable, Trigger
from leasehold.registry.pipelines import NO_CATALOG
from leasehold.testing import FrozenClock
from tests.worlds.bundles import ROOT, settings
from tests.worlds.loopback_http import LoopbackHttp
from tests.worlds.ports import own_port
from tests.worlds.waiting import until

NEARLY_NOON = datetime(2026, 2, 27, 11, 59, 59, 990_000, tzinfo=UTC)
MOMENT = timedelta(milliseconds=10)


def _scheduled(schedule: str = "0 12 * * *") -> FunctionEntry:
    return FunctionEntry(
        "send_digest",
        "tells what happened today",
        Trigger.SCHEDULE,
        (),
        timeout=timedelta(minutes=1),
        memory_mib=512,
        concurrency=1,
        max_instances=1,
        schedule=schedule,
    )


class Called(LoopbackHttp):
    """Answers calls with these bodies, one after the other, and then with none; notes when."""

    def __init__(self, clock: FrozenClock) -> None:
        self.bodies: list[bytes] = []
        self.at: list[datetime] = []
        self.missing = 0  # so many bytes of each body
        self._clock = clock
        super().__init__(self._call)

    def _call(self, request: BaseHTTPRequestHandler) -> None:
        self.at.append(self._clock.now())
        body = self.bodies.pop(0) if self.bodies else b""
        request.send_response(200)
        request.send_header("Content-Length", str(len(body) + self.missing))
        request.end_headers()
        request.wfile.write(body)


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock(NEARLY_NOON)


@pytest.fixture
def called(clock: FrozenClock) -> Iterator[Called]:
    called = Called(clock)
    yield called
    called.close()


def test_a_function_is_called_when_its_schedule_comes_round(
    clock: FrozenClock, called: Called
) -> None:
    scheduler = Scheduler(_scheduled(), called.url, print, clock=clock)
    scheduler.start()
    try:
        clock.advance(MOMENT)
        until(lambda: len(called.at) == 1)
        clock.advance(timedelta(days=1) - MOMENT)
        clock.advance(MOMENT)
        until(lambda: len(called.at) == 2)
    finally:
        scheduler.stop()

    noon = NEARLY_NOON + MOMENT
    assert called.at == [noon, noon + timedelta(days=1)]


def test_a_function_that_says_that_more_is_due_is_called_at_once(
    clock: FrozenClock, called: Called
) -> None:
    called.bodies = [b'{"more": true}', b'{"more": true}', b"not JSON"]
    scheduler = Scheduler(_scheduled(), called.url, print, clock=clock)
    scheduler.start()
    try:
        clock.advance(MOMENT)
        until(lambda: len(called.at) == 3)
    finally:
        scheduler.stop()


def test_a_function_that_does_not_answer_is_told_and_called_again(clock: FrozenClock) -> None:
    lines: list[str] = []
    url = f"http://127.0.0.1:{own_port()}"
    scheduler = Scheduler(_scheduled(), url, lines.append, every=0.01, clock=clock)
    scheduler.start()
    try:
        until(lambda: len(lines) > 1)
    finally:
        scheduler.stop()

    assert lines[0].startswith("send_digest does not answer: ")


def test_a_function_whose_process_ends_while_it_answers_is_called_again(
    clock: FrozenClock, called: Called
) -> None:
    called.missing = 1
    lines: list[str] = []
    scheduler = Scheduler(_scheduled(), called.url, lines.append, every=0.01, clock=clock)
    scheduler.start()
    try:
        until(lambda: len(lines) > 1)
    finally:
        scheduler.stop()

    assert lines[0].startswith("send_digest does not answer: ")


@pytest.mark.parametrize("schedule", ["61 * * * *", "0 0 30 2 *"])
def test_a_schedule_that_never_comes_round_is_refused(schedule: str) -> None:
    with pytest.raises(InvalidEntryError, match=rf"is '{schedule}'; ".replace("*", r"\*")):
        Scheduler(_scheduled(schedule), "http://127.0.0.1:9", print)


def test_a_new_row_is_served_without_another_edit() -> None:
    table = FunctionTable([*FUNCTIONS, _scheduled()])

    served = served_functions(table, NO_CATALOG, ports={}, workers=1)

    before = served_functions(FUNCTIONS, NO_CATALOG, ports={}, workers=1)
    names = [function.name for function in served]
    assert names == [*(function.name for function in before), "send_digest"]


def test_a_new_row_needs_its_entry_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "functions").symlink_to(ROOT / "shared/leasehold/functions")
    monkeypatch.chdir(tmp_path)
    options = DevOptions(port=own_port(), environ=settings(tmp_path))

    with pytest.raises(SettingError, match=r"functions/send_digest\.py"):
        DevServer(options, print, table=FunctionTable([*FUNCTIONS, _scheduled()]))
