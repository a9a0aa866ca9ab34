"""Pages: going through all that a query finds, and where the next page begins, as text.

A document that was edited by hand may have anything for its time of creation. Its place in the
order of the store is what counts, so that value goes into the token as it is.
"""

from __future__ import annotations

import base64
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Final

import pydantic_core

from leasehold.errors import InvalidRequestError
from leasehold.ports.documents import Queries, Query, Snapshot
from leasehold.services.request_bounds import MAX_INTEGER

#: How many documents are read at once by what goes through all of them, and so are in memory.
SCAN_PAGE: Final = 200

#: The same of whole runs: one may have 256 KiB, and a few times that in memory. A default page of a
#: list is 50, and one more that tells whether there is a next page.
WHOLE_RUNS: Final = 51

#: Every store keeps an id of so many characters.
_MAX_ID_CHARS: Final = 1500

#: The value that a list is ordered by, and the id of the document, as a query continues behind it.
Place = tuple[Any, str]


def pages(documents: Queries, query: Query) -> Iterator[Sequence[Snapshot]]:
    """Yield all that a query finds, in pages of `query.limit`, each read when it is due.

    None is kept here: who reads many lists in turn has one page in memory, and not one of each.

    Raises:
        StoreUnavailableError: the store did not answer. Retryable.
    """
    while True:
        page = [documents.query(query)]
        if len(page[0]) < query.limit:
            yield page.pop()
            return
        query = replace(query, after=place_behind(page[0][-1], query.order_by))
        yield page.pop()


def scan(documents: Queries, query: Query) -> Iterator[Snapshot]:
    """Yield all documents that a query finds; `query.limit` is that of a page."""
    return chain.from_iterable(pages(documents, query))


def is_among(run: Snapshot, among: Container[str] | None) -> bool:
    """Return whether a run, or the one that waits for it, has one of these ids; None: any has.

    Who looks after a run looks after its children: it may never have heard of their beginning.
    """
    parent = run.document.get("parentId")  # of one that was edited by hand it may be no text
    return among is None or run.ref.id in among or (isinstance(parent, str) and parent in among)


def place_behind(last: Snapshot, order_by: str | None) -> Place:
    """Return the place behind a document in a list that is ordered by that field."""
    return (None if order_by is None else last.document[order_by]), last.ref.id


def token_of(place: Place, mark: str) -> str:
    """Return the token of the page that begins at a place.

    Args:
        place: where it begins.
        mark: tells the tokens of one query from those of another.
    """
    value, id_ = place
    kept = {"at": value.isoformat()} if isinstance(value, datetime) else {"is": value}
    text = pydantic_core.to_json([kept, id_, mark], fallback=str)
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def place_of(token: str, mark: str) -> Place:
    """Return the place that a token stands for.

    Raises:
        InvalidRequestError: it is not a token of this query.
    """
    try:
        text = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        kept, id_, given_mark = pydantic_core.from_json(text, allow_inf_nan=False)
        value = _moment(kept["at"]) if "at" in kept else kept["is"]
        if given_mark == mark and _fits(value) and _is_id(id_):
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
    """Return whether a store can compare the value with its own."""
    match value:
        case list():
            return all(map(_fits, value))
        case dict():
            return all(map(_fits, value.values()))
        case int():
            return -MAX_INTEGER <= value <= MAX_INTEGER
        case _:
            return True


def _is_id(value: Any) -> bool:
    """Return whether a document could have this id, if a person made it by hand."""
    fits = isinstance(value, str) and 0 < len(value) <= _MAX_ID_CHARS and "/" not in value
    return fits and not value.startswith(("__", "."))
