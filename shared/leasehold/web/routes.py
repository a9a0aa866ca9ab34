"""Serves rows of the table of calls: finds the row of a request, reads it, and answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from threading import Semaphore
from typing import Any, Final, Protocol
from urllib.parse import quote

import flask
from werkzeug.exceptions import HTTPException, MethodNotAllowed
from werkzeug.http import dump_options_header
from werkzeug.routing import BaseConverter, Map, Rule

from leasehold.api.call_row import (
    Answer,
    AnyRow,
    CallRequest,
    CallRow,
    Created,
    Given,
    JsonText,
    PlainText,
)
from leasehold.api.request_model import RequestModel, fields_of
from leasehold.api.results import SIZE_HEADER
from leasehold.domain.signal_link import MAX_LINK_FORM_BYTES, is_link
from leasehold.errors import InvalidRequestError
from leasehold.ports.artifacts import ArtifactContent
from leasehold.services.paging import SCAN_PAGE
from leasehold.web.callers import actor_of, caller_of, check_right
from leasehold.web.entry import (
    ASSETS,
    HasCallers,
    json_body,
    refuse_method,
    refuse_path,
    respond,
    respond_json_text,
    respond_text,
)
from leasehold.web.loopback_guard import is_form, is_of_browser, refuse_content

#: Long lists are made two at a time: each takes some megabytes, which a process does not give back,
#: and more at once are no faster, as Python makes them in one thread at a time.
_LONG_LISTS: Final = Semaphore(2)

#: Google's servers take no larger answer that says its length; a larger one is sent in chunks.
_MAX_BYTES_WITH_LENGTH: Final = 31 * 1024 * 1024


_SAVE_ONLY: Final = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class EngineSource(HasCallers, Protocol):
    """Where rows are answered: with the engine of a function, or of a server that works itself."""

    def answer(self, row: CallRow[Given, Answer], request: CallRequest[Given]) -> Answer:
        """Answer a request with the engine; its stores may be opened by this."""
        ...


class _PathPart(BaseConverter):
    """A part of a path that ends where an operation is named: `/runs/{id}:pause`."""

    regex = "[^/:]+"
    part_isolating = True


class Routes:
    """Rows by their methods and paths.

    Args:
        rows: the rows, in any order.
        has_pages: whether a browser gets pages of what they answer.

    Attributes:
        rows: the rows, in the order in which a caller sees them.
        paths: those that are served, as werkzeug writes them.
    """

    def __init__(self, rows: Iterable[AnyRow], *, has_pages: bool = False) -> None:
        self._has_pages = has_pages
        self.rows = rows = tuple(rows)
        self._map = Map(
            [Rule(row.path, methods=[row.method], endpoint=row) for row in rows],
            strict_slashes=False,
            converters={"default": _PathPart},
        )
        self.paths = tuple(dict.fromkeys(row.path for row in rows))

    def row_at(self, method: str, path: str) -> AnyRow | None:
        """Return the row that is served there; None: there is none."""
        try:
            row: AnyRow = self._map.bind("").match(path, method)[0]
        except HTTPException:
            return None
        return row

    def body_limit(self, method: str, path: str) -> int:
        """Return how many bytes a body sent there may have; 0: nothing takes one."""
        if self._has_pages and is_link(path):
            return MAX_LINK_FORM_BYTES
        row = self.row_at(method, path)
        return 0 if row is None else row.limit

    def match(self, request: flask.Request) -> tuple[AnyRow, Mapping[str, str]]:
        """Return the row of a request, and the parts of its path, or raise HTTPException."""
        row, values = self._map.bind_to_environ(request.environ).match()
        return row, values

    def answer(self, source: EngineSource, request: flask.Request) -> flask.Response:
        """Answer a request.

        Raises:
            CallerNotAllowedError: its caller has not the right that the row takes.
            LeaseholdError: it is refused, or fails.
        """
        if self._has_pages and is_link(request.path):
            from leasehold.web.signal_link import answer_link  # noqa: PLC0415 - seldom asked

            return answer_link(source, request)
        if self._has_pages and (page := _page(self, source, request)):
            return page
        try:
            row, values = self.match(request)
        except MethodNotAllowed as error:
            allowed = sorted(set(error.valid_methods or ()) - {"HEAD"})
            return refuse_method(request.path, ", ".join(allowed))
        except HTTPException:
            return refuse_path(request.path, self.paths)
        if is_form(request):
            return refuse_content(request.environ)
        given = _given(row, request)
        check_right(request, row.needed_for(given).right)
        actor = actor_of(request.headers, caller_of(request)) if row.names_actor else ""
        traceparent = request.headers.get("traceparent", "")
        asked = CallRequest(given, actor=actor, traceparent=traceparent, **values)
        with _LONG_LISTS if row.is_long and given.limit > SCAN_PAGE else nullcontext():
            return _respond(row, source.answer(row, asked), asked)


def _page(routes: Routes, source: EngineSource, request: flask.Request) -> flask.Response | None:
    """Return what a browser gets; None: the request is a program's, or there is no page."""
    if not (request.path.startswith(ASSETS) or is_of_browser(request)):
        return None
    from leasehold.web.pages import answer_browser, answer_static  # noqa: PLC0415 - seldom asked

    if request.path.startswith(ASSETS):
        return answer_static(request)
    return answer_browser(routes.match, source.answer, request)


def _given(row: AnyRow, request: flask.Request) -> Any:
    """Return what a row takes of a request, or raise InvalidRequestError."""
    takes = row.takes
    if takes is None or row.method == "POST":
        for name, value in request.args.items():
            raise InvalidRequestError(field=name, value=value[:200], allowed="no parameters")
    if takes is None:
        for name in json_body(request, row.limit) if row.method == "POST" else ():
            raise InvalidRequestError(field=name[:200], value="given", allowed="no fields")
        return None
    if row.method == "POST":
        return takes.read(json_body(request, row.limit))
    return takes.read(_query(request, takes))


def _query(request: flask.Request, takes: type[RequestModel]) -> dict[str, str | list[str]]:
    """Return the query; a value that is given twice is ambiguous, unless several may be given."""
    repeatable = {name for name, field in fields_of(takes).items() if field.takes_several}
    query: dict[str, str | list[str]] = {}
    for name, values in request.args.lists():
        if len(values) > 1 and name not in repeatable:
            value = ", ".join(values)[:200]
            raise InvalidRequestError(field=name, value=value, allowed="one value")
        query[name] = values if len(values) > 1 else values[0]
    return query


def _respond(row: AnyRow, answer: Any, request: CallRequest[Any]) -> flask.Response:
    match answer:
        case JsonText():
            return respond_json_text(answer)
        case PlainText():
            return respond_text(answer)
        case Created(value, is_new):
            return respond(value, 201 if is_new else 200)
        case AbstractContextManager():
            return _respond_file(answer, request.name)
        case _:
            return respond(answer, exclude_none=row.omits_none)


def _respond_file(opened: AbstractContextManager[ArtifactContent], name: str) -> flask.Response:
    """Answer with the bytes of a file, block by block.

    It may be anything, from any source. A browser is told to save it, and never to show it
    as a page of this address, whose scripts could do what the reader may do here.
    """
    with ExitStack() as stack:
        content = stack.enter_context(opened)
        answer = flask.Response(content.blocks, mimetype="application/octet-stream")
        answer.headers.update(_SAVE_ONLY)
        answer.headers.set(SIZE_HEADER, str(content.size))
        answer.headers.set("Content-Disposition", _attachment(name.rpartition("/")[2]))
        if content.size <= _MAX_BYTES_WITH_LENGTH:
            answer.content_length = content.size
        answer.call_on_close(stack.pop_all().close)
    return answer


def _attachment(name: str) -> str:
    """Return the header that tells a browser under which name to save a file, whatever it is.

    A header is ASCII: the whole name is in its encoded form, which browsers prefer.
    """
    ascii_name = "".join(one if one.isascii() else "_" for one in name)
    names = {"filename": ascii_name}
    if ascii_name != name:
        names["filename*"] = f"UTF-8''{quote(name, safe='')}"
    return dump_options_header("attachment", names)
