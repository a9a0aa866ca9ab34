"""What a handler in a child logs and prints becomes log lines of its worker."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from leasehold.worker.sandbox.messages import LogLine
from leasehold.worker.sandbox.prints import MAX_LINE, MAX_PRINTED, Prints
from leasehold.worker.sandbox.relayed_logs import relay
from tests.sandbox.attempts import Attempts


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
    count = MAX_PRINTED // MAX_LINE + 10

    with pipe() as (prints, far):
        for _ in range(count):
            os.write(far, b"x" * (MAX_LINE + 1) + b"\n")
            prints.read()
        prints.end()

    *kept, dropped = caplog.records
    assert {record.getMessage() for record in kept} == {"x" * MAX_LINE}
    assert len(kept) == MAX_PRINTED // MAX_LINE
    assert dropped.getMessage().startswith(f"{count + 10 * MAX_LINE} more bytes")


def test_a_logger_that_is_not_known_here_is_not_made(caplog: pytest.LogCaptureFixture) -> None:
    """Loggers stay for ever, and a child may name as many as it wants."""
    relay(LogLine(logger="nobody.knows.this", level=30, message="said %s", created=1.0))

    assert lines(caplog) == [("nobody.knows.this", "WARNING", "said %s")]
    assert "nobody.knows.this" not in logging.root.manager.loggerDict
