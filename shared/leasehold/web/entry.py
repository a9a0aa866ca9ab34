"""The code around every answer of a function: reading a request, checks, errors, the response.

One decorator does it, for events too, in this order: what is logged meanwhile names the trace of
the request; who may not call gets no further, before a body is read; an error is answered, and
never a traceback; and what is left of the body is dropped. A body is read within its limit, and
never left half read; values and errors are answered as JSON, and to a browser an error is a page.
"""

from __future__ import annotations

import functools
import io
import logging
import math
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import parse_qsl

import flask
import pydantic_core
from werkzeug import Request

from leasehold.api.call_row import MAX_BODY_BYTES, PlainText
from leasehold.api.errors import ErrorInfo, ErrorResponse, status_of
from leasehold.domain.json_text import json_value
from leasehold.domain.printable import printable
from leasehold.errors import (
    BodyEncodingError,
    InvalidRequestError,
    LeaseholdError,
    TooLargeError,
)
from leasehold.logs.stderr_log import lines_of_request
from leasehold.web.plain_page import PAGE_HEADERS, page_of_refusal, wants_page

_LOG: Final = logging.getLogger("leasehold.web")

#: A message that repeats what it was sent is cut here.
_MAX_MESSAGE_CHARS: Final = 1000

#: The files of all pages lie below this path: the framework answers /static itself.
ASSETS: Final = "/assets/"
_OUTAGE: Final = 503

#: Blocks in which a body is read, and the rest of it dropped: one of any size takes no memory.
_BLOCK_BYTES: Final = 64 * 1024
_MAX_ENCODING_SHOWN_CHARS: Final = 60
_MAX_FORM_FIELDS: Final = 100
#: So long no byte of a body may come, and of one that is not read.
_MAX_BODY_SILENCE_S: Final = 10.0
_MAX_DROP_SILENCE_S: Final = 1.0


class Callers(Protocol):
    """Says who may call."""

    def refusal_of(self, request: Request) -> flask.Response | None:
        """Return the answer to a request that may not come in; None: it may."""
        ...


class HasCallers(Protocol):
    """What a function answers with: it knows who may call."""

    @property
    def callers(self) -> Callers | None:
        """The allowed callers; None: all."""
        ...

    def end_call(self) -> None:
        """Do what has to be done before a call is answered: its process may stand still then."""
        ...


AnyRequest = TypeVar("AnyRequest", bound=Request)
Opened = TypeVar("Opened", bound=HasCallers)


def entry(
    answer: Callable[[Opened, AnyRequest], flask.Response],
) -> Callable[[Opened, AnyRequest], flask.Response]:
    """Decorate what answers the requests to a function."""

    @functools.wraps(answer)
    def answer_entered(opened: Opened, request: AnyRequest) -> flask.Response:
        with entered(opened, request) as refused:
            try:
                answered = refused or guarded(partial(answer, opened, request))
                is_refusal = isinstance(answered, Refusal)
                return shown(request.environ, answered) if is_refusal else answered
            finally:
                drop_rest(request)
                opened.end_call()

    return answer_entered


@contextmanager
def entered(opened: HasCallers, request: Request) -> Iterator[flask.Response | None]:
    """Log with the trace of a request meanwhile; give the answer to one whose caller may not."""
    with lines_of_request(request.headers.get):
        yield None if opened.callers is None else opened.callers.refusal_of(request)


def check_every_request(opened: HasCallers) -> None:
    """Have the framework ask who calls before it does anything else with a request.

    It answers some paths itself, and reads an event whole before it calls the function. Without
    an application that is not served: the function is only imported.
    """

    def refused() -> flask.Response | None:
        with entered(opened, flask.request) as refused:
            return refused and shown(flask.request.environ, refused)

    if flask.has_app_context():
        flask.current_app.before_request(refused)


def respond(value: Any, status: int = 200, *, exclude_none: bool = False) -> flask.Response:
    """Answer with JSON."""
    body = pydantic_core.to_json(value, by_alias=True, exclude_none=exclude_none, fallback=str)
    return respond_json_text(body, status)


def respond_json_text(text: str | bytes, status: int = 200) -> flask.Response:
    """Answer with a text that is JSON already."""
    answer = flask.Response(text, status=status, mimetype="application/json")
    answer.headers["X-Content-Type-Options"] = "nosniff"
    return answer


def respond_text(text: PlainText) -> flask.Response:
    """Answer with a plain text."""
    answer = flask.Response(text, content_type=text.mimetype)
    answer.headers["X-Content-Type-Options"] = "nosniff"
    return answer


class Refusal(flask.Response):
    """An answer that is an error, as JSON.

    Attributes:
        error: what it says.
    """

    error: ErrorInfo


def shown(environ: Mapping[str, Any], answer: flask.Response) -> flask.Response:
    """Return an answer as its reader can read it: an error as a page, where a browser asks for one.

    Args:
        environ: the request, as WSGI has it.
        answer: the answer.
    """
    if isinstance(answer, Refusal) and wants_page(environ):
        error, status = answer.error, answer.status_code
        answer.set_data(page_of_refusal(environ, status, error.code or "", error.message))
        answer.mimetype = "text/html"
        answer.headers.update({**PAGE_HEADERS, "Cache-Control": "no-store"})
        answer.vary.add("Accept")
    return answer


def refuse(
    status: int, code: str, message: str, details: Mapping[str, Any] | None = None
) -> Refusal:
    """Answer with an error: `{"error": {"code", "message", "details"}}`."""
    line = printable(message[: _MAX_MESSAGE_CHARS + 1])  # it may repeat a path, or a field's name
    cut = line if len(line) <= _MAX_MESSAGE_CHARS else f"{line[:_MAX_MESSAGE_CHARS]}…"
    error = ErrorInfo(code=code, message=cut, details=details or {})
    body = pydantic_core.to_json(ErrorResponse(error=error), by_alias=True, fallback=str)
    refused = Refusal(body, status, mimetype="application/json")
    refused.headers["X-Content-Type-Options"] = "nosniff"
    refused.error = error
    return refused


def refuse_path(path: str, known: Iterable[str]) -> flask.Response:
    """Answer that nothing is served at a path; name those that are."""
    names = ", ".join(known)
    return refuse(404, "not_found", f"{path} is not served here; known: {names}.")


def refuse_for(error: LeaseholdError) -> flask.Response:
    """Answer with an error of Leasehold."""
    return refuse(status_of(error.code), error.code, error.message, error.details)


def refuse_method(path: str, allowed: str) -> flask.Response:
    """Answer that a path takes other methods."""
    refused = refuse(405, "method_not_allowed", f"{path} takes {allowed}.")
    refused.headers["Allow"] = allowed
    return refused


def guarded(call: Callable[[], flask.Response]) -> flask.Response:
    """Answer with what `call` answers, or with the error it raises; never with a traceback."""
    try:
        return call()
    except LeaseholdError as error:
        if error.retryable and status_of(error.code) == _OUTAGE:  # a run to wait for is no trouble
            _LOG.warning("%s", error)
        return refuse_for(error)
    except Exception:  # noqa: BLE001 - logged whole; the caller gets an answer
        _LOG.exception("a request failed")
        return refuse(500, "internal", "Something failed here; the log has it.")


def json_body(request: Request, limit: int = MAX_BODY_BYTES) -> Mapping[str, Any]:
    """Return the JSON object of the body, of at most `limit` bytes; none is an empty one.

    Raises:
        BodyEncodingError: it is compressed, or the like.
        TooLargeError: it is too large.
        InvalidRequestError: it did not come whole, or is not a JSON object.
    """
    for header in ("Content-Encoding", "Transfer-Encoding"):
        encoding = request.headers.get(header, "").strip()
        if encoding.lower() not in ("", "identity", "chunked"):
            raise BodyEncodingError(header=header, encoding=encoding[:_MAX_ENCODING_SHOWN_CHARS])
    text = _read(request, limit)
    try:
        return json_value(text, is_object=True) if text.strip() else {}
    except ValueError as error:
        raise _refused(str(error)[:200], "a JSON object") from None


def form_of(request: Request, limit: int) -> dict[str, str]:
    """Return the fields of a form of at most `limit` bytes; of one that is there twice, the first.

    Raises:
        TooLargeError: it is too large.
        InvalidRequestError: it did not come whole, or has more fields than any page sends.
    """
    text = _read(request, limit).decode(errors="replace")
    try:
        fields = parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_FORM_FIELDS)
    except ValueError:
        raise _refused("a form with too many fields", "the form of a page") from None
    return dict(reversed(fields))


def drop_rest(request: Request, most: float = math.inf) -> None:
    """Read what is left of the body, block by block, and keep none of it.

    The framework would read the rest whole; and a client that still sends while the connection is
    closed does not get its answer.

    Args:
        request: the request; its body is empty afterwards.
        most: bytes that are read, about; what comes after them is the server's, which hangs up.
    """
    dropped = 0
    with suppress(Exception), _broken_off_after(_MAX_DROP_SILENCE_S, request):  # nothing is lost
        while dropped < most and (block := request.stream.read(_BLOCK_BYTES)):
            dropped += len(block)
    request.stream = io.BytesIO()


def _read(request: Request, limit: int) -> bytes:
    """Return the whole body; half a body may be JSON too, and mean something else."""
    size = request.content_length
    if size is not None and size > limit:
        raise TooLargeError(what="the body", size=size, limit=limit)
    text = bytearray()
    try:
        with _broken_off_after(_MAX_BODY_SILENCE_S, request):
            while len(text) <= limit and (block := request.stream.read(_BLOCK_BYTES)):
                text += block
    except Exception:  # noqa: BLE001 - each server has its own way to say that the sender broke off
        raise _refused(f"{len(text)} bytes, then broken off", "a whole body") from None
    if len(text) > limit:
        raise TooLargeError(what="the body", size=len(text), limit=limit)
    if size is not None and len(text) < size:
        raise _refused(f"{len(text)} of {size} bytes", "a whole body")
    return bytes(text)


@contextmanager
def _broken_off_after(seconds: float, request: Request) -> Iterator[None]:
    """Have a deployed function not wait forever for a body: it would hold a thread so long.

    Its server, gunicorn, has no limit for that; `serve` has its own limits.
    """
    connection = request.environ.get("gunicorn.socket")
    if connection is None:
        yield
        return
    before = connection.gettimeout()
    connection.settimeout(seconds)
    try:
        yield
    except Exception:  # werkzeug has its own for a timeout
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RD)  # the server would read on, for its next request
        raise
    finally:
        connection.settimeout(before)


def _refused(value: str, allowed: str) -> InvalidRequestError:
    return InvalidRequestError(field="body", value=value, allowed=allowed)
