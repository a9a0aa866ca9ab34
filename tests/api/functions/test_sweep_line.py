"""The line of the log that a sweep is: metrics and alerts are made of it."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from leasehold.bootstrap import Bundle, boot
from leasehold.domain.effect import Task
from leasehold.errors import StoreUnavailableError
from leasehold.ports.documents import Query
from leasehold.services.sweep import Report, SweepResult, line_of, sweep
from leasehold.testing import FrozenClock, InProcessEngine
from tests.worlds.catalogs.sample import PIPELINES, STEPS
from tests.worlds.functions import Function

DOCS = Path(__file__).parents[3] / "docs" / "monitoring.md"


class HasAll:
    """A queue that has every task it is asked for."""

    def create(self, _: Task) -> None:
        raise AssertionError("nothing is lost")

    def exists(self, _: Task) -> bool:
        return True


class Away(HasAll):
    """A queue that does not answer."""

    def exists(self, _: Task) -> bool:
        raise StoreUnavailableError(store="the test", problem="no such queue")


@pytest.fixture
def starter(environ: dict[str, str], clock: FrozenClock) -> Iterator[InProcessEngine]:
    with InProcessEngine(STEPS, PIPELINES, environ=environ, clock=clock, workers=0) as engine:
        yield engine


@pytest.fixture
def sweep_with(
    environ: dict[str, str], clock: FrozenClock
) -> Iterator[Callable[..., Mapping[str, Any] | None]]:
    """Sweep with this queue, and return the line that was logged."""
    opened: list[Bundle] = []

    def swept(tasks: Any, report: Report = Report.ALWAYS) -> Mapping[str, Any] | None:
        opened.append(boot(environ, tasks=tasks, clock=clock))
        lines: list[Mapping[str, Any]] = []
        engine = replace(
            opened[-1].engine, listeners=replace(opened[-1].engine.listeners, report=lines.append)
        )
        with contextlib.suppress(StoreUnavailableError):
            sweep(engine, report=report)
        return lines[-1] if lines else None

    yield swept
    for bundle in opened:
        bundle.close()


def test_the_line_says_how_long_the_run_waits_that_waits_longest(
    starter: InProcessEngine, clock: FrozenClock, sweep_with: Callable[..., Any]
) -> None:
    """Not since it was created, nor since the last sweep: since its attempt was to begin."""
    starter.start("three", {"n": 1})
    clock.advance(600)
    starter.start("three", {"n": 2})
    clock.advance(134)

    line, again = sweep_with(HasAll()), sweep_with(HasAll())
    clock.advance(timedelta(hours=1))
    later = sweep_with(HasAll())

    assert (line["stillQueued"], line["oldestPendingS"]) == (2, 734)
    assert line["message"].endswith("0 unattended, the oldest pending waits for 734 s")
    assert (again["stillQueued"], again["oldestPendingS"]) == (0, 0)
    assert later["oldestPendingS"] == 734 + 3600


def test_runs_whose_queue_does_not_answer_wait_too(
    starter: InProcessEngine, clock: FrozenClock, sweep_with: Callable[..., Any]
) -> None:
    starter.start("three", {"n": 1})
    clock.advance(300)
    starter.start("three", {"n": 2})
    clock.advance(100)

    line = sweep_with(Away())

    assert (line["unattended"], line["oldestPendingS"]) == (2, 400)
    assert line["severity"] == "WARNING"
    assert "no such queue" in line["detail"]


def test_a_parked_run_waits_for_no_queue(
    starter: InProcessEngine, clock: FrozenClock, sweep_with: Callable[..., Any]
) -> None:
    starter.start("away", {"n": 1})
    starter.run_until_idle()  # remote workers claim the step now: it is in no queue
    starter.pause(starter.start("three", {"n": 1}).run_id)
    clock.advance(timedelta(days=1))

    assert sweep_with(HasAll())["oldestPendingS"] == 0


def test_where_nothing_is_due_only_the_deployed_function_writes_a_line(
    sweep_with: Callable[..., Any],
) -> None:
    """Cloud Scheduler calls that once a minute: a metric of the lines comes back to zero."""
    assert sweep_with(HasAll(), Report.IF_DUE) is None
    assert sweep_with(HasAll(), Report.NEVER) is None
    line = sweep_with(HasAll())
    assert (line["severity"], line["documentsRead"], line["oldestPendingS"]) == ("INFO", 0, 0)


def test_the_function_knows_by_its_environment_that_it_is_deployed(
    sweep_dead_letters: Function, caplog: pytest.LogCaptureFixture, environ: dict[str, str]
) -> None:
    provider = sweep_dead_letters.provider

    sweep_dead_letters.post()
    quiet = [record for record in caplog.records if "SWEEP_FINISHED" in record.message]
    provider.environ = environ | {"K_SERVICE": "sweep-dead-letters"}
    sweep_dead_letters.post()

    assert quiet == []
    (line,) = [record for record in caplog.records if "SWEEP_FINISHED" in record.message]
    assert json.loads(line.message)["oldestPendingS"] == 0


def test_a_store_that_is_away_is_a_line_too(environ: dict[str, str]) -> None:
    bundle = boot(environ)
    lines: list[Any] = []

    class Gone:
        def query(self, _: Query) -> Any:
            raise StoreUnavailableError(store="the test", problem="x" * 5000)

    gone: Any = Gone()
    try:
        with pytest.raises(StoreUnavailableError):
            sweep(
                replace(
                    bundle.engine,
                    documents=gone,
                    listeners=replace(bundle.engine.listeners, report=lines.append),
                ),
                report=Report.IF_DUE,
            )
    finally:
        bundle.close()

    (line,) = lines
    assert (line["severity"], line["documentsRead"]) == ("WARNING", 0)
    assert len(line["detail"]) == 2000


@pytest.mark.parametrize(
    ("left", "severity"),
    [
        ({}, "INFO"),
        ({"unattended": 1}, "WARNING"),
        ({"more": True}, "WARNING"),
        ({"failure": "it is away"}, "WARNING"),
    ],
)
def test_a_sweep_that_left_something_is_a_warning(left: dict[str, Any], severity: str) -> None:
    assert line_of(SweepResult("0f5c1a9e7d3b", **left))["severity"] == severity


def test_the_line_of_the_docs_is_what_is_written() -> None:
    """Alerts are made of its fields."""
    (written,) = re.findall(
        r"<!-- the line of a sweep.*?```json\n(.*?)\n```", DOCS.read_text(), re.DOTALL
    )
    result = SweepResult("0f5c1a9e7d3b", recovered=1, still_queued=2, documents_read=3)
    result.note_pending(734.6)

    assert json.loads(written) == line_of(result)
