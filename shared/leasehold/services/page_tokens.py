"""Where the next page of a list begins, as text; what is in it is nobody's business but ours.

A document that was edited by hand may have anything for its time of creation. Its place in the
order of the store is what counts, so that value goes into the token as it is.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any, Final

import pydantic_core

from leasehold.errors import InvalidRequestError
from leasehold.ports.documents import Snapshot

#: Every store keeps a whole number of 64 bits, and an id of so many characters.
_LARGEST: Final = 2**63 - 1
_LONGEST_ID: Final = 1500

#: The value that a list is ordered by, and the id of the document, as a query continues behind it.
Place = tuple[Any, str]


def token_of(last: Snapshot, order_by: str, mark: str) -> str:
    """Return the token of the page behind a document.

    Args:
        last: the document.
        order_by: the field that the list is ordered by.
        mark: tells the tokens of one query from those of another.
    """
    value = last.document[order_by]
    kept = {"at": value.isoformat()} if isinstance(value, datetime) else {"is": value}
    text = pydantic_core.to_json([kept, last.ref.id, mark], fallback=str)
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def place_of(token: str, mark: str) -> Place:
    """Return the place that a token stands for.

    Raises:
        InvalidRequestError: it is none of ours, or of another query.
    """
    try:
        text = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        kept, id_, said = pydantic_core.from_json(text, allow_inf_nan=False)
        value = _moment(kept["at"]) if "at" in kept else kept["is"]
        if said == mark and _fits(value) and _is_id(id_):
            return value, id_
    except (ValueError, TypeError, KeyError, OverflowError):
        pass
    allowed = "the nextPageToken of an earlier answer to the same filter"
    raise InvalidRequestError(field="pageToken", value=token[:200], allowed=allowed)


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(text)
    return moment.astimezone(UTC)  # of a time in year 1, or in 9999, there may be none


def _fits(value: Any) -> bool:
    """Return whether a store can be asked for what stands behind the value."""
    match value:
        case list():
            return all(map(_fits, value))
        case dict():
            return all(map(_fits, value.values()))
        case int():
            return -_LARGEST <= value <= _LARGEST
        case _:
            return True


def _is_id(value: Any) -> bool:
    """Return whether a document could have this id, if somebody made it by hand."""
    fits = isinstance(value, str) and 0 < len(value) <= _LONGEST_ID and "/" not in value
    return fits and not value.startswith(("__", "."))
