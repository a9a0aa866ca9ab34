"""Documents of `overrides`, as people and strangers leave them in a console."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from leasehold.domain.override import Override, stored_override, to_document
from leasehold.domain.stored import UnreadableDocument

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
UNTIL = datetime(2026, 1, 1, 14, tzinfo=UTC)
GOOD: dict[str, Any] = {"timeoutS": 1200, "deadlineS": 1500, "until": UNTIL}


def test_what_is_set_is_read_as_it_was() -> None:
    override = Override(
        timeout=timedelta(milliseconds=1001),
        deadline=timedelta(seconds=20),
        until=UNTIL,
        why="slow day",
        set_by="ada",
        set_at=NOW,
    )

    stored = stored_override("extraction", to_document(override), NOW)

    assert to_document(override)["timeoutS"] == 1.001
    assert (stored.override, stored.refused, stored.is_over) == (override, "", False)


@pytest.mark.parametrize(
    "until",
    [
        "2026-01-01T14:00:00Z",
        " 2026-01-01T15:00:00+01:00 ",
        UNTIL.astimezone(timezone(timedelta(hours=5))),
    ],
)
def test_the_end_may_be_a_timestamp_or_text(until: Any) -> None:
    stored = stored_override("extraction", GOOD | {"until": until}, NOW)

    assert stored.override is not None
    assert stored.override.until == UNTIL


@pytest.mark.parametrize(("until", "is_over"), [(NOW, True), (NOW + timedelta(seconds=1), False)])
def test_it_is_over_at_its_end_itself(until: datetime, is_over: bool) -> None:
    assert stored_override("extraction", GOOD | {"until": until}, NOW).is_over is is_over


@pytest.mark.parametrize(
    "fields",
    [
        {"timeoutS": 1200.0},
        {"deadlineS": 1500.0},
        {"timeoutS": None},
        {"why": None, "setBy": None, "setAt": None},
        {"why": "bell \x07 and \u202e"},
    ],
)
def test_what_a_console_makes_of_a_number_or_of_nothing_is_taken(fields: dict[str, Any]) -> None:
    assert stored_override("extraction", GOOD | fields, NOW).refused == ""


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"timeoutS": "1200"}, "timeoutS is '1200'; allowed: seconds above 0, at most 604800."),
        ({"timeoutS": float("nan")}, "timeoutS is nan; allowed: seconds above 0, at most 604800."),
        ({"timeoutS": float("inf")}, "timeoutS is inf"),
        ({"timeoutS": 10**400}, "timeoutS is 1000000000"),
        ({"timeoutS": 10**5000}, "timeoutS is a number too long to show"),
        ({"timeoutS": True}, "timeoutS is True"),
        ({"timeoutS": 0}, "timeoutS is 0"),
        ({"timeoutS": 0.0004}, "timeoutS is 0.0004"),
        ({"timeoutS": -5}, "timeoutS is -5"),
        ({"timeoutS": {"seconds": 5}}, "timeoutS is {'seconds': 5}"),
        ({"timeoutS": [5]}, "timeoutS is [5]"),
        ({"deadlineS": 20.5}, "deadlineS is 20.5; allowed: whole seconds from 15 to 604800."),
        ({"deadlineS": 1e300}, "deadlineS is 1e+300"),
        ({"timeoutS": None, "deadlineS": None}, "it sets no limit; allowed: timeoutS or deadlineS"),
        ({"until": None}, "until is missing; allowed: a time with its zone"),
        ({"until": "tomorrow"}, "until is 'tomorrow'; allowed: a time with its zone"),
        ({"until": "2026-01-01 14:00"}, "until is '2026-01-01 14:00'"),
        ({"until": datetime(2026, 1, 1, 14)}, "until is 2026-01-01 14:00:00"),  # noqa: DTZ001
        ({"until": 1767276000}, "until is 1767276000"),
        ({"setAt": "now"}, "setAt is 'now'"),
        ({"why": 5}, "why is 5; allowed: a text of at most 500 characters."),
        ({"why": "x" * 1_000_000}, f"why is '{'x' * 60}…'; allowed"),
        ({"setBy": {"a": {}}}, "setBy is {'a': {}}"),
        ({"timeoutMs": 1200}, "unknown field 'timeoutMs'; known: timeoutS, deadlineS, until"),
        ({"a\n\x1b[31m": 1}, r"unknown field 'a\n\x1b[31m'; known:"),
    ],
)
def test_what_a_person_spoiled_is_refused_in_one_line(fields: dict[str, Any], says: str) -> None:
    stored = stored_override("extraction", GOOD | fields, NOW)

    assert stored.override is None
    assert stored.refused.startswith(f"overrides/extraction refused: {says}")
    assert stored.refused.isprintable()
    assert len(stored.refused) < 300


def test_a_document_that_no_version_can_read_is_refused() -> None:
    stored = stored_override("extraction", UnreadableDocument("it is not JSON", {}), NOW)

    assert stored.refused == "overrides/extraction refused: it cannot be read: it is not JSON."


ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 20, 1800, 10**30, 0.5, 1e300, -0.0, float("nan"), float("inf")),
    *("", "x", "20", "2026-01-01", "\x00\n\u202e\ud800", "é" * 501, b"\xff", NOW, UNTIL),
    *(datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)),
    *([], [1, [{}]], {}, {"timeoutS": 5}, {"a": {"b": [None]}}, object()),
)
FIELDS = ("timeoutS", "deadlineS", "until", "why", "setBy", "setAt", "", "\x1b[2J", "_commit")


def test_whatever_is_in_it_it_is_an_override_or_refused_in_one_line() -> None:
    fields = [{name: value} for name, value in itertools.product(FIELDS, ODD)]
    for one, other in itertools.combinations_with_replacement(fields, 2):
        for document in (one | other, GOOD | one | other):
            stored = stored_override("a\n\x1b[2J", document, NOW)

            assert (stored.override is None) == bool(stored.refused), document
            assert stored.refused.isprintable(), document
            assert len(stored.refused) < 400, document
