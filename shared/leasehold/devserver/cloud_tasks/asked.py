"""What every request of the REST surface says in the same way."""

from __future__ import annotations

from typing import Any, Final

import flask

from leasehold.devserver.cloud_tasks.reading_queues import check_queue_name
from leasehold.devserver.cloud_tasks.reading_tasks import VIEWS
from leasehold.devserver.cloud_tasks.refusals import invalid
from leasehold.devserver.cloud_tasks.showing import EnumForm, Shown, as_integer, as_name
from leasehold.errors import InvalidRequestError, TooLargeError
from leasehold.web.request_body import json_body

#: The largest request that is taken.
REQUEST_BYTES: Final = 4 * 2**20

_PAGE: Final = 1000


def queue_name(parent: str, queue: str) -> str:
    """Return the full name of the queue in the path, or refuse it."""
    return check_queue_name(f"{parent}/queues/{queue}")


def body() -> Any:
    """Return the JSON of the request, or refuse it."""
    if "Transfer-Encoding" in flask.request.headers:
        raise invalid("A body in chunks is not accepted here; send it with its Content-Length.")
    try:
        return json_body(flask.request, REQUEST_BYTES)
    except TooLargeError:
        raise invalid(f"Request payload size exceeds the limit: {REQUEST_BYTES} bytes.") from None
    except InvalidRequestError as error:
        raise invalid(f"Invalid JSON payload received. {error.message}") from None


def enum_form() -> EnumForm:
    """Return how the caller wants enums."""
    return as_integer if "enum-encoding=int" in flask.request.args.get("$alt", "") else as_name


def view() -> str:
    """Return the view of tasks that the caller wants."""
    asked = flask.request.args.get("responseView", "BASIC")
    return next((name for number, name in VIEWS.items() if asked == str(number)), asked)


def page(key: str, rows: list[Shown]) -> Shown:
    """Return the page that was asked for: its token is the last name of the page before."""
    args = flask.request.args
    size = args.get("pageSize", 0, type=int)
    size = size if 0 < size < _PAGE else _PAGE
    left = [row for row in rows if row["name"] > args.get("pageToken", "")]
    more = {"nextPageToken": left[size - 1]["name"]} if len(left) > size else {}
    return {key: left[:size], **more}
