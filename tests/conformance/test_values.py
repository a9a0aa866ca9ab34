"""What comes back is what was stored: values of every kind."""

from datetime import UTC, datetime
from typing import Any

import pytest

from leasehold.domain.stored import Ref
from leasehold.ports.documents import Documents
from tests.worlds.stores import put, with_times_of

VALUES: dict[str, Any] = {
    "an empty text": "",
    "unicode": "Zürich · 東京 · שלום · e\u0301 · \u00e9",
    "emoji": "🙂 👩‍👩‍👧 🏳️‍🌈",
    "control characters": "".join(chr(code) for code in range(32)) + "\x7f\x80\x9f\u2028\ufeff",
    "quotes": """'single' "double" `back` \\ / \\u0000 -- ; DROP TABLE runs""",
    "text that looks like a time": "2026-01-01T00:00:00Z",
    "text that looks like a number": "007",
    "long text": "0123456789abcdef" * 12_800,  # 200 KiB
    "long text of wide characters": "東" * 68_000,
    "zero": 0,
    "the largest integer": 9_223_372_036_854_775_807,
    "the smallest integer": -9_223_372_036_854_775_808,
    "an integer no float holds": 9_007_199_254_740_993,
    "true": True,
    "false": False,
    "a float": 0.1,
    "a small float": 5e-324,
    "a large float": 1.7976931348623157e308,
    "a float that is whole": 3.0,
    "nothing": None,
    "nothing in a map": {"a": None, "b": {"c": None}},
    "an empty map": {},
    "an empty list": [],
    "empty containers within": {"list": [], "map": {}, "lists": {"a": [{}]}},
    "a map of odd names": {" ": 2, "a.b": 3, "`": 4, "ä": 5, "__x": 6},
    "a deep map": {"a": {"b": {"c": {"d": {"e": {"f": [1, {"g": "h"}]}}}}}},
    "a mixed list": [1, "1", 1.5, True, None, {"a": 1}],
    "a time": datetime(2026, 3, 1, 12, 30, 15, tzinfo=UTC),
    "a time with microseconds": datetime(2026, 3, 1, 12, 30, 15, 123_456, tzinfo=UTC),
    "a time with one microsecond": datetime(2026, 3, 1, 12, 30, 15, 1, tzinfo=UTC),
    "an early time": datetime(1970, 1, 1, tzinfo=UTC),
    "times within": {"at": [datetime(2026, 3, 1, 0, 0, 0, 999_999, tzinfo=UTC)]},
}


def test_a_value_comes_back_as_it_was(documents: Documents, ref: Ref) -> None:
    for name, value in VALUES.items():
        documents.transact(ref, put({"value": value}))

        found = documents.get(ref)

        assert found is not None
        came_back = with_times_of(value, found.document["value"])
        assert came_back == value, name
        assert type(came_back) is type(value), name


def test_an_update_keeps_a_value_as_it_was(documents: Documents, ref: Ref) -> None:
    """A transaction that reads and writes back changes nothing."""
    for name, value in VALUES.items():
        documents.transact(ref, put({"value": value}))
        found = documents.get(ref)
        assert found is not None

        documents.transact(ref, put({**found.document, "more": 1}))

        again = documents.get(ref)
        assert again is not None
        assert with_times_of(value, again.document["value"]) == value, name


def test_a_document_of_many_fields_comes_back_whole(documents: Documents, ref: Ref) -> None:
    document = {f"field{number}": {"number": number} for number in range(2000)}

    documents.transact(ref, put(document))

    found = documents.get(ref)
    assert found is not None
    assert found.document == document


@pytest.mark.parametrize("id_", ["a b", "ä", "a'b", 'a"b', "%_*", "x" * 500, "a:b", "..a"])
def test_an_id_can_be_any_plain_text(documents: Documents, ref: Ref, id_: str) -> None:
    documents.transact(Ref(f"{ref}/trace", id_), put({"count": 1}))

    found = documents.get(Ref(f"{ref}/trace", id_))

    assert found is not None
    assert found.ref.id == id_
