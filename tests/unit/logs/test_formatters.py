"""The forms of a log line, for people and for Cloud Logging."""

from __future__ import annotations

import json
import logging
import logging.config
from collections.abc import Iterator
from typing import Any

import functions_framework
import pytest

from leasehold.logs.attempt import (
    EVENT_FACTS,
    EVENTS_LOG,
    AttemptLogRecord,
    AttemptName,
    EventFacts,
    LinesOf,
    LogSpan,
    name_span,
)
from leasehold.logs.stderr_log import (
    JsonFormatter,
    LineFormatter,
    StderrHandler,
    lines_of_request,
    log_as_json,
    log_by,
    log_to_stderr,
    severity_of,
)

TRACE = "0123456789abcdef0123456789abcdef"


def record(message: str, *args: Any, name: str = "shop.agent", **extra: Any) -> AttemptLogRecord:
    """A record as a logger makes it, of the second attempt of a step."""
    with LinesOf(AttemptName("r-1", "draft", 2)):
        made = AttemptLogRecord(name, logging.INFO, "x.py", 1, message, args, None)
    made.created, made.msecs = 0.25, 250.0
    vars(made).update(extra)
    return made


def other(message: str, name: str) -> AttemptLogRecord:
    made = AttemptLogRecord(name, logging.WARNING, "x.py", 1, message, (), None)
    made.created, made.msecs = 0.25, 250.0
    return made


def test_a_line_for_people_names_run_step_and_attempt() -> None:
    assert LineFormatter().format(record("asked %s", "the model")) == (
        "1970-01-01T00:00:00.250Z INFO run=r-1 step=draft attempt=2 shop.agent: asked the model"
    )


def test_outside_an_attempt_leasehold_s_own_lines_are_what_they_say() -> None:
    assert LineFormatter().format(other("the sweep failed", "leasehold.in_process")) == (
        "the sweep failed"
    )
    assert LineFormatter(is_uniform=True).format(other("the sweep failed", "leasehold.x")) == (
        "1970-01-01T00:00:00.250Z WARNING leasehold.x: the sweep failed"
    )
    assert LineFormatter().format(other("slow", "shop")) == (
        "1970-01-01T00:00:00.250Z WARNING shop: slow"
    )


def test_an_event_is_a_sentence_in_a_terminal_and_json_elsewhere() -> None:
    facts = {"severity": "WARNING", "message": "run r-1 is blocked", "event": "GATE_BLOCKED"}
    made = other(json.dumps(facts), EVENTS_LOG)
    vars(made)[EVENT_FACTS] = EventFacts(facts)

    assert LineFormatter(is_terminal=True).format(made) == (
        "1970-01-01T00:00:00.250Z WARNING run r-1 is blocked"
    )
    assert LineFormatter(is_uniform=True).format(made) == (
        "1970-01-01T00:00:00.250Z WARNING leasehold.events: run r-1 is blocked"
    )
    assert json.loads(LineFormatter().format(made)) == facts
    assert json.loads(JsonFormatter().format(made)) == facts


def test_what_a_text_holds_makes_no_line_of_its_own_and_steers_no_terminal() -> None:
    shown = LineFormatter().format(record("done\n1970 ERROR run=r-2 \x1b[2J"))

    assert shown.split("\n")[1] == r"  1970 ERROR run=r-2 \x1b[2J"


def test_a_caller_s_own_fields_of_these_names_stay_and_the_line_is_right() -> None:
    """Training code says `extra={"step": 300}` on each line."""
    made = record("loss 0.1", step=300)

    assert " step=draft " in LineFormatter().format(made)
    assert (vars(made)["step"], vars(made)["run_id"]) == (300, "r-1")


def test_a_formatter_of_another_program_finds_the_attempt_in_each_record() -> None:
    own = logging.Formatter("%(run_id)s %(step)s %(attempt)d %(message)s")

    assert own.format(record("hello")) == "r-1 draft 2 hello"
    assert own.format(other("hello", "shop")) == "  0 hello"


def test_an_entry_has_what_cloud_logging_takes_apart() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LEASEHOLD_TASKS", "cloud-tasks://my-project/europe-west1")
        with lines_of_request({"X-Cloud-Trace-Context": f"{TRACE}/12;o=1"}.get):
            entry = json.loads(JsonFormatter().format(record("lone \udce9\nsecond")))

    assert entry == {
        "severity": "INFO",
        "message": "lone ?\nsecond",
        "time": "1970-01-01T00:00:00.250000+00:00",
        "logger": "shop.agent",
        "runId": "r-1",
        "step": "draft",
        "attempt": 2,
        "logging.googleapis.com/trace": f"projects/my-project/traces/{TRACE}",
        "logging.googleapis.com/spanId": "000000000000000c",
        "logging.googleapis.com/trace_sampled": True,
    }


def test_an_event_names_the_span_of_its_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    facts = {"severity": "WARNING", "runId": "r-traced", "step": "draft", "attempt": 3}
    made = record(json.dumps(facts), name=EVENTS_LOG, leasehold_event=EventFacts(facts))
    before = json.loads(JsonFormatter().format(made))

    name_span(AttemptName("r-traced", "draft", 3), LogSpan(TRACE, "00f067aa0ba902b7", False))

    assert before == facts
    assert json.loads(JsonFormatter().format(made)) == {
        **facts,
        "logging.googleapis.com/trace": f"projects/p/traces/{TRACE}",
        "logging.googleapis.com/spanId": "00f067aa0ba902b7",
        "logging.googleapis.com/trace_sampled": False,
    }


@pytest.mark.parametrize("header", ["", "x" * 5000, f"{TRACE[:-1]}\n", f'{TRACE}"'])
def test_a_header_that_names_no_trace_is_left_out(
    header: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    with lines_of_request({"traceparent": header, "X-Cloud-Trace-Context": header}.get):
        assert "trace" not in JsonFormatter().format(record("hello"))


def test_an_error_has_its_traceback_in_its_entry_and_stays_one_line() -> None:
    made, error = record("failed"), ValueError("no\nway")
    made.exc_info = (ValueError, error, None)

    line = JsonFormatter().format(made)

    assert "\n" not in line
    assert json.loads(line)["message"].endswith("ValueError: no\nway")


def test_events_that_are_json_already_are_written_as_they_are() -> None:
    facts = '{"event": "STEP_DEAD_LETTERED", "severity": "ERROR"}'

    made = record(facts, name=EVENTS_LOG, leasehold_event=EventFacts(json.loads(facts)))

    assert JsonFormatter().format(made) == facts


def test_a_very_long_message_is_cut_so_that_the_entry_is_taken() -> None:
    assert len(JsonFormatter().format(record("\x00" * 500_000)).encode()) < 256 * 1024


@pytest.mark.parametrize(
    ("level", "severity"),
    [
        (1, "DEBUG"),
        (10, "DEBUG"),
        (25, "INFO"),
        (30, "WARNING"),
        (50, "CRITICAL"),
        (99, "CRITICAL"),
    ],
)
def test_each_level_has_a_severity(level: int, severity: str) -> None:
    assert severity_of(level) == severity


@pytest.fixture
def own_level() -> Iterator[None]:
    kept = logging.root.level
    yield
    logging.root.setLevel(kept)


@pytest.mark.usefixtures("own_level")
@pytest.mark.parametrize(
    ("text", "level"), [("INFO", logging.INFO), ("DEBUG", logging.DEBUG), ("shout", logging.INFO)]
)
def test_the_level_is_what_the_environment_says_or_info(
    monkeypatch: pytest.MonkeyPatch, text: str, level: int
) -> None:
    """A level that there is none of is refused where the settings are read."""
    monkeypatch.setenv("LEASEHOLD_LOG_LEVEL", text)
    monkeypatch.setattr(logging.root, "handlers", [])  # those of pytest

    log_to_stderr()

    assert logging.root.level == level


@pytest.mark.usefixtures("own_level")
def test_a_log_that_the_user_set_up_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = logging.NullHandler()
    monkeypatch.setattr(logging.root, "handlers", [theirs])
    level = logging.root.level

    log_by(JsonFormatter())

    assert (logging.root.handlers, logging.root.level) == ([theirs], level)


@pytest.mark.usefixtures("own_level")
def test_what_functions_framework_set_up_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cloud Functions sets LOG_EXECUTION_ID by default: no event would be logged, none counted."""
    asked: dict[str, Any] = {}
    monkeypatch.setattr(logging.config, "dictConfig", asked.update)
    functions_framework._configure_app_execution_id_logging()  # noqa: SLF001 - as it calls it itself
    (name,) = asked["root"]["handlers"]
    theirs = logging.NullHandler()
    theirs.set_name(name)
    monkeypatch.setattr(logging.root, "handlers", [theirs])

    log_as_json()

    assert [type(handler) for handler in logging.root.handlers] == [StderrHandler]
    assert logging.root.level == logging.INFO


def test_lines_go_to_what_stderr_is_now(capsys: pytest.CaptureFixture[str]) -> None:
    """A live display puts itself in its place, and draws below them."""
    handler = StderrHandler()
    handler.setFormatter(LineFormatter())

    handler.handle(other("hello", "leasehold"))

    assert capsys.readouterr().err == "hello\n"
