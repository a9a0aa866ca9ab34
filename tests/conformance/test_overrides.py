"""Overrides on each store: what a console can write, and what a process makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.firestore import FirestoreDocuments
from leasehold.adapters.firestore.values import OtherValue, Value
from leasehold.domain.override import override_ref
from leasehold.domain.stored import Write
from leasehold.ports.documents import Documents
from leasehold.worker.known_overrides import KnownOverrides


@pytest.fixture
def known(documents: Documents) -> Iterator[KnownOverrides]:
    """Nothing but what the test writes; the others leave overrides alone."""
    known = KnownOverrides(documents, SystemClock(), lambda _: None)
    yield known
    for one in known.read():
        documents.delete(override_ref(one.step_type))


def write(documents: Documents, step_type: str, **fields: Any) -> None:
    documents.transact(override_ref(step_type), lambda _, __: Write(None, fields))


def test_a_store_without_any_has_none(known: KnownOverrides) -> None:
    assert known.read() == []


def test_what_is_written_is_read_and_ends_by_the_store_s_time(
    documents: Documents, known: KnownOverrides
) -> None:
    now = documents.transact(
        override_ref("probe"), lambda _, at: Write(at, {"timeoutS": 5, "until": at})
    ).answer
    write(documents, "later", timeoutS=5, until=now + timedelta(hours=1), why="ü", setBy="ada")
    write(documents, "text", deadlineS=20.0, until="2999-01-01T00:00:00+01:00")

    found = {one.step_type: one for one in known.read()}

    assert [(name, one.is_over) for name, one in found.items()] == [
        ("later", False),
        ("probe", True),
        ("text", False),
    ]
    later, text = found["later"].override, found["text"].override
    assert later is not None
    assert text is not None
    assert (later.timeout, later.why, later.set_by) == (timedelta(seconds=5), "ü", "ada")
    assert text.deadline == timedelta(seconds=20)


def test_no_value_that_a_console_can_write_breaks_the_others(
    documents: Documents, known: KnownOverrides
) -> None:
    write(documents, "good", timeoutS=5, until="2999-01-01")
    write(documents, "map", timeoutS={"a": [1, {"b": None}]}, until="2999-01-01")
    write(documents, "nan", timeoutS=float("nan"), until="2999-01-01")
    write(documents, "huge", why="x" * 100_000, timeoutS=5, until="2999-01-01")
    write(documents, "empty")
    if isinstance(documents, FirestoreDocuments):
        place, some_bytes = Value(), Value()
        place.geo_point_value.latitude = 1.0
        some_bytes.bytes_value = b"\xff"
        write(documents, "place", timeoutS=OtherValue(place), until="2999-01-01")
        write(documents, "bytes", timeoutS=5, until=OtherValue(some_bytes))

    found = known.read()

    assert [one.step_type for one in found if not one.refused] == ["good"]
    assert all(one.refused.isprintable() and len(one.refused) < 300 for one in found)
