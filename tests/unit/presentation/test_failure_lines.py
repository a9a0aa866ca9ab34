"""What is kept of an error, as lines: all of it, and nothing that would steer a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold.domain.manifest_parts import ErrorRecord
from leasehold.domain.stored import replace
from leasehold.presentation.event_line import failure_of

ERROR = ErrorRecord(type="AgentClientError", code="refused", message="no", step="ask", attempt=1)


def lines_of(**facts: Any) -> list[str]:
    return list(failure_of(replace(ERROR, **facts)).lines)


def test_each_issue_is_a_line_and_those_that_are_not_kept_are_counted() -> None:
    issues = (
        {"path": "pages.0", "message": "not a number", "input": "'one'"},
        {"message": "busy"},
        {"retryAfter": 7, "isFinal": False},
    )

    assert lines_of(validation_issues=issues, validation_issue_count=70) == [
        "  70 issues:",
        "    pages.0: not a number (input: 'one')",
        "    busy",
        "    retryAfter: 7, isFinal: false",
        "    [67 more are not kept]",
    ]


def test_each_detail_is_a_line() -> None:
    details = '{"status":429,"limit":{"perMinute":60},"model":"large"}'

    assert lines_of(details=details, traceback="Traceback") == [
        "  details:",
        "    status: 429",
        '    limit: {"perMinute": 60}',
        "    model: large",
        "  Traceback",
    ]


@pytest.mark.parametrize("details", ['{"status":4…', "429", "[" * 100_000])
def test_details_that_are_not_object_are_one_line(details: str) -> None:
    """A text that is too long was cut, and is no JSON any more."""
    assert lines_of(details=details) == ["  details:", f"    {details}"]


def test_nothing_in_an_issue_or_a_detail_steers_a_terminal() -> None:
    hostile = "\x1b[2J\u202e\nattempt 9 of step pay:"
    issue = {"path": hostile, hostile: hostile, "nested": [hostile]}

    lines = lines_of(validation_issues=(issue,), details=f'{{"{"x" * 9999}": 1}}')

    assert all(line.isprintable() and line.startswith("  ") for line in lines)
    assert max(map(len, lines)) < 1100
    assert "\\x1b[2J\\u202e attempt 9 of step pay:" in lines[1]


def test_an_error_without_facts_has_no_lines() -> None:
    assert lines_of() == []
