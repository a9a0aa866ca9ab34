"""Logs, prints and progress reports of a handler have no secret where they come out."""

from __future__ import annotations

import io
import json
import logging
import os
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from leasehold.attempt.stop import StopSignal
from leasehold.bootstrap.boot import log_report
from leasehold.domain.json_text import check_json
from leasehold.domain.manifest_parts import Progress
from leasehold.domain.notes import progress_without_secrets
from leasehold.domain.status import Termination
from leasehold.logs.attempt import (
    EVENT_FACTS,
    EVENTS_LOG,
    AttemptLogRecord,
    AttemptName,
    LinesOf,
)
from leasehold.logs.stderr_log import JsonFormatter, LineFormatter
from leasehold.worker.sandbox.output_lines import Prints, relay
from leasehold.worker.sandbox.wire.messages import LogLine
from tests.worlds.waiting import until

SECRET = "hunter2" + "-Zq8"


@pytest.fixture(params=[JsonFormatter(), LineFormatter(), LineFormatter(is_uniform=True)])
def written(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """The log of a process of Leasehold, in each of its forms."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(request.param)
    factory, level = logging.getLogRecordFactory(), logging.root.level
    logging.setLogRecordFactory(AttemptLogRecord)
    logging.root.addHandler(handler)
    logging.root.setLevel(logging.DEBUG)
    yield out
    logging.root.removeHandler(handler)
    logging.root.setLevel(level)
    logging.setLogRecordFactory(factory)


@pytest.fixture
def out(written: io.StringIO) -> Iterator[io.StringIO]:
    """Its lines while it has an attempt."""
    with LinesOf(AttemptName("r-1", "ask", 1)):
        yield written


def line(message: str = "said", **fields: object) -> LogLine:
    return LogLine.model_validate(
        {"logger": "shop", "level": 30, "message": message, "created": 1.0, **fields}
    )


def test_what_is_logged_in_an_attempt(out: io.StringIO) -> None:
    log = logging.getLogger("shop")

    log.warning("password=%s for %s", SECRET, "ada")
    log.info("postgres://ada:%s@db", SECRET)
    log.warning({"api_key": SECRET})
    log.warning("said", stack_info=True)  # whose frames show: password=hunter2-Zq8

    assert SECRET not in out.getvalue()
    assert "for ada" in out.getvalue()


def test_the_traceback_beside_a_line(out: io.StringIO) -> None:
    error = ValueError(f"password={SECRET}")
    error.add_note(f"token: {SECRET}")
    group = ExceptionGroup("all", [error])
    try:
        raise group
    except ExceptionGroup:
        logging.getLogger("shop").exception("failed")

    assert SECRET not in out.getvalue()


def test_what_a_child_logs(out: io.StringIO) -> None:
    relay(line(f"Authorization: Bearer {SECRET}"))
    relay(line(error=f"Traceback\n  ...\nValueError: password={SECRET}"))
    relay(line(facts={"api_key": SECRET, "url": f"https://ada:{SECRET}@x"}))

    assert SECRET not in out.getvalue()


def test_facts_have_no_secret_for_a_formatter_of_the_user(
    caplog: pytest.LogCaptureFixture, out: io.StringIO
) -> None:
    relay(line(facts={"api_key": SECRET, "url": f"https://ada:{SECRET}@x", "order": 7}))

    (record,) = caplog.records
    record.getMessage()
    facts = vars(record)
    assert (facts["api_key"], facts["order"]) == ("[redacted]", 7)
    assert facts["url"] == "https://ada:[redacted]@x"


def test_what_a_child_prints(out: io.StringIO) -> None:
    read, write = os.pipe()
    key = "-----BEGIN PRIVATE KEY-----\nMIIE0\nMIIE1\n-----END PRIVATE KEY-----\nmore\n"
    os.write(write, f"password={SECRET}\n{key}".encode())
    os.close(write)
    prints = Prints(read)
    prints.read()
    os.close(read)

    assert SECRET not in out.getvalue()
    assert "MIIE" not in out.getvalue()
    assert "more" in out.getvalue()


def test_a_child_makes_no_event(out: io.StringIO) -> None:
    """Alerts count events, and a line of the log says who it is of."""
    forged = json.dumps({"event": "STEP_DEAD_LETTERED"})

    relay(line(facts={EVENT_FACTS: forged, "order": 7}))

    assert "STEP_DEAD_LETTERED" not in out.getvalue()


def test_a_handler_in_the_worker_makes_no_event(out: io.StringIO) -> None:
    facts = {"event": "STEP_DEAD_LETTERED", "severity": "ERROR", "message": f"password={SECRET}"}
    events = logging.getLogger(EVENTS_LOG)

    events.error(json.dumps(facts))
    events.error(json.dumps(facts), extra={EVENT_FACTS: facts})
    with LinesOf(AttemptName("", "", 0)):  # in a thread of its own
        events.error(json.dumps(facts))

    lines = out.getvalue().splitlines()
    assert len(lines) == 3
    assert SECRET not in out.getvalue()
    assert not any(is_entry_of_an_event(each) for each in lines)


def test_no_formatter_writes_a_forged_event(
    caplog: pytest.LogCaptureFixture, written: io.StringIO
) -> None:
    """Where a program of the user's writes messages as they are, JSON would be an entry."""
    facts = {"event": "STEP_DEAD_LETTERED"}
    logging.getLogger(EVENTS_LOG).error(json.dumps(facts), extra={EVENT_FACTS: facts})
    (record,) = caplog.records

    assert record.getMessage() == f"not an event: {json.dumps(facts)}"
    assert not hasattr(record, EVENT_FACTS)


def test_what_a_callback_raises_is_logged_without_secrets(written: io.StringIO) -> None:
    """Its thread has no attempt, and the logger is ours."""
    stop = StopSignal()
    stop.on_stop(partial(int, f"password={SECRET}"))
    stop.request(Termination.INSTANCE_SHUTDOWN)
    until(lambda: "a stop callback failed" in written.getvalue())

    assert "ValueError" in written.getvalue()
    assert SECRET not in written.getvalue()


def test_what_the_engine_reports_meanwhile_is_an_event_as_ever(out: io.StringIO) -> None:
    log_report({"event": "RUN_BLOCKED", "severity": "ERROR", "message": "run r-1 is blocked"})

    assert "run r-1 is blocked" in out.getvalue()
    assert "r-1 ask" not in out.getvalue()


def is_entry_of_an_event(line: str) -> bool:
    return line.startswith("{") and "event" in json.loads(line)


def test_what_a_thread_of_a_handler_logs(out: io.StringIO) -> None:
    """It has no context of the handler's: whose it is, is not known."""
    thread = threading.Thread(target=logging.getLogger("shop").warning, args=(f"pwd={SECRET}",))
    thread.start()
    thread.join()

    assert "pwd=[redacted]" in out.getvalue()


def test_what_is_logged_while_there_is_no_attempt_is_as_it_was_said(
    written: io.StringIO,
) -> None:
    logging.getLogger("shop").warning("token: abcdefgh")

    assert "abcdefgh" in written.getvalue()


def test_what_a_handler_says_of_its_progress() -> None:
    said = Progress(fraction=0.5, message=f"asks https://ada:{SECRET}@x")

    assert progress_without_secrets(said).message == "asks https://ada:[redacted]@x"


@pytest.mark.parametrize("text", ["1e400", "[-1E+999]", '{"a": [1, 1e400]}', "9" * 400 + ".0"])
def test_a_number_that_is_read_as_infinity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="too large"):
        check_json(text)


@pytest.mark.parametrize("text", ["1e300", "1e-400", '"1e400"', "9" * 400])
def test_other_numbers_are_taken(text: str) -> None:
    check_json(text)
