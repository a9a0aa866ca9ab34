"""Log lines and prints of a handler in a child become log lines of its worker."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from leasehold.logs.attempt import EVENT_FACTS, EVENTS_LOG, attempt_of
from leasehold.worker.sandbox import output_lines
from leasehold.worker.sandbox.output_lines import MAX_LINE_BYTES, MAX_PRINTED_BYTES, Prints, relay
from leasehold.worker.sandbox.wire.messages import LogLine
from tests.worlds.attempts import Attempts


@contextmanager
def pipe() -> Iterator[tuple[Prints, int]]:
    near, far = os.pipe()
    try:
        yield Prints(near), far
    finally:
        os.close(near)
        os.close(far)


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, str]]:
    return [(record.name, record.levelname, record.getMessage()) for record in caplog.records]


def test_log_records_keep_logger_level_facts_and_error(
    attempts: Attempts, caplog: pytest.LogCaptureFixture
) -> None:
    attempts.run("logs")

    assert lines(caplog) == [
        ("leasehold.step", "WARNING", "of the context"),
        ("shop.cart", "ERROR", "of a logger"),
        ("shop.cart", "ERROR", "with an error"),
    ]
    of_context, of_logger, with_error = (vars(record) for record in caplog.records)
    assert (of_context["run_id"], of_context["attempt"]) == ("r-1", 1)
    assert (of_logger["order"], of_logger["funcName"]) == (7, "logs")
    assert with_error["exc_text"].endswith("base 10: 'inner'")


def test_levels_of_the_worker_are_those_of_the_child(
    attempts: Attempts, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="shop.cart")

    attempts.run("logs")

    assert ("shop.cart", "INFO", "too low") in lines(caplog)


def test_prints_become_lines_of_the_log(
    attempts: Attempts, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    attempts.run("prints")

    assert sorted(lines(caplog)) == [
        ("leasehold.step", "INFO", "no text: �"),
        ("leasehold.step", "INFO", "partial"),
        ("leasehold.step", "INFO", "to stderr"),
        ("leasehold.step", "INFO", "to stdout"),
    ]
    assert {vars(record)["stream"] for record in caplog.records} == {"output"}


def test_a_long_line_and_a_long_output_are_cut(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    count = MAX_PRINTED_BYTES // MAX_LINE_BYTES + 10

    with pipe() as (prints, far):
        for _ in range(count):
            os.write(far, b"x" * (MAX_LINE_BYTES + 1) + b"\n")
            prints.read()
        prints.end()

    *kept, dropped = caplog.records
    assert {record.getMessage() for record in kept} == {"x" * MAX_LINE_BYTES}
    assert len(kept) == MAX_PRINTED_BYTES // MAX_LINE_BYTES
    assert dropped.getMessage().startswith(f"dropped {count + 10 * MAX_LINE_BYTES:,} more bytes")


def test_many_short_lines_are_too_much_as_well(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each costs its worker as much as a long one, and the worker has a clock to keep."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(output_lines, "MAX_PRINTED_LINES", 2000)

    with pipe() as (prints, far):
        for number in range(5):
            os.write(far, b"%d\n" % (1000 + number) * 1000)
            prints.read()
        prints.end()

    *kept, dropped = caplog.records
    assert len(kept) == 2000
    assert dropped.getMessage().startswith("dropped 12,000 more bytes")
    assert set(prints.last_lines.split("\n")) == {"1004"}


def test_prints_are_read_until_the_clock_is_looked_at(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    with pipe() as (prints, far):
        os.write(far, b"x\n")
        prints.read(until=time.monotonic() - 1)
        assert lines(caplog) == []

        prints.read()
    assert lines(caplog) == [("leasehold.step", "INFO", "x")]


def test_a_fact_does_not_change_what_a_record_is_made_of(caplog: pytest.LogCaptureFixture) -> None:
    """A record with a call or a false exception would fail in the worker's formatter."""
    facts = {"getMessage": "x", "exc_info": "x", "stack_info": 7, "_attempt": "x", "order": 7}

    relay(LogLine(logger="shop", level=30, message="said", created=1.0, facts=facts))

    (record,) = caplog.records
    assert logging.Formatter().format(record) == "said"
    assert (vars(record)["order"], attempt_of(record)) == (7, None)


def test_a_child_logs_no_events_of_leasehold(caplog: pytest.LogCaptureFixture) -> None:
    """They are written out as they are, so it could forge those of another run."""
    said = '{"event": "x"}'
    facts = {EVENT_FACTS: said}

    relay(LogLine(logger=EVENTS_LOG, level=20, message=said, created=1.0, facts=facts))

    (record,) = caplog.records
    assert record.name == "leasehold.step"
    assert not hasattr(record, EVENT_FACTS)


def test_a_logger_that_is_not_known_here_is_not_made(caplog: pytest.LogCaptureFixture) -> None:
    """Loggers stay forever, and a child may name as many as it wants."""
    relay(LogLine(logger="nobody.knows.this", level=30, message="said %s", created=1.0))

    assert lines(caplog) == [("nobody.knows.this", "WARNING", "said %s")]
    assert "nobody.knows.this" not in logging.root.manager.loggerDict
