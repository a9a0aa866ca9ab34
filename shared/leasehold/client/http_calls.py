"""HTTP calls of a server's runs API."""

from __future__ import annotations

import http.client
import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from pydantic.alias_generators import to_snake

from leasehold.api.errors import ErrorInfo
from leasehold.api.results import SIZE_HEADER
from leasehold.errors import (
    InvalidRequestError,
    LeaseholdError,
    ServerRefusedError,
    ServerUnreachableError,
    restored_error,
)
from leasehold.ports.artifacts import ArtifactContent

#: How long one answer may take, and how long it may be silent meanwhile.
ANSWER_TIMEOUT_S: Final = 30.0

#: What a server, or a proxy before it, answers while it is away for a moment.
_NOT_NOW: Final = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)

#: The server at the address may send anything; no answer of the runs API is longer.
_MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
_MAX_DIGITS: Final = 20
_CHUNK_BYTES: Final = 64 * 1024
_MAX_MESSAGE_CHARS: Final = 1000

#: A file of any size is read in blocks of this size.
_BLOCK_BYTES: Final = 1024 * 1024

#: With these, no connection was made: the server got nothing.
_NOT_CONNECTED: Final = (ConnectionRefusedError, socket.gaierror)

T = TypeVar("T")


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: what was sent to one server is not for another one to see."""

    def redirect_request(self, *_: Any) -> None:
        """Return None: the redirect is the answer."""


class _Heard(http.client.HTTPConnection):
    """Reads what a server answers that does not read a body to its end, as it is too large."""

    def request(self, *args: Any, **kwargs: Any) -> None:
        """Send it; a server that closes meanwhile may have said why."""
        try:
            super().request(*args, **kwargs)
        except (BrokenPipeError, ConnectionResetError):
            if self.sock is None:  # no connection was made
                raise


class _Http(urllib.request.HTTPHandler):
    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """Open it by a connection that hears early answers."""
        return self.do_open(_Heard, request)


_OPENER: Final = urllib.request.build_opener(_Stay, _Http)


class RunsApi:
    """The runs API at an address.

    Args:
        url: the address.
        token: with which to sign in; empty: without. No other server gets it: redirects are
            not followed.

    Raises, in each method:
        ServerUnreachableError: it does not answer, or not now.
        ServerRefusedError: what it answers is not of this API.
        LeaseholdError: the error that it answers with, as if it had been raised here.
    """

    def __init__(self, url: str, token: str = "") -> None:
        if not is_server(url):
            allowed = "http://HOST:PORT or https://HOST"
            raise InvalidRequestError(field="url", value=url, allowed=allowed)
        self.url = url.rstrip("/")
        self._signed = {"Authorization": f"Bearer {token}"} if token else {}

    def call(
        self,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = ANSWER_TIMEOUT_S,
    ) -> tuple[int, Any]:
        """Return status and answer of a GET, or with a body of a POST; `timeout` in seconds."""
        data = None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **(headers or {})}
        with self._answer(path, data, sent, timeout) as answer, self._translated(timeout):
            text = _whole(answer, timeout)
        return answer.status, self._json(answer, text)

    def text(self, path: str, timeout: float = ANSWER_TIMEOUT_S) -> str:
        """Return the answer of a GET that is a plain text."""
        with self._answer(path, timeout=timeout) as answer, self._translated(timeout):
            text = _whole(answer, timeout)
        return self.read(lambda found: str(found, "utf-8"), text)

    @contextmanager
    def open(self, path: str) -> Iterator[ArtifactContent]:
        """Open a file that the server sends, to be read in blocks."""
        with self._answer(path) as answer:
            size = self.read(_size, answer.headers.get(SIZE_HEADER))
            yield ArtifactContent(size, self._blocks(answer, size))

    def _blocks(self, answer: http.client.HTTPResponse, size: int) -> Iterator[bytes]:
        """Yield the answer in blocks; the server may break off, and say no more than that."""
        came = 0
        while came < size:
            block = b""
            with self._translated():
                with suppress(http.client.IncompleteRead):
                    block = answer.read(min(_BLOCK_BYTES, size - came))
                if not block:
                    raise OSError(f"it broke off after {came:,} of {size:,} bytes")
            came += len(block)
            yield block

    def _answer(
        self,
        path: str,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = ANSWER_TIMEOUT_S,
    ) -> http.client.HTTPResponse:
        """Return the answer of the server, to be read and closed, unless it is an error."""
        sent = {**(headers or {}), **self._signed}
        request = urllib.request.Request(f"{self.url}{path}", data, sent)  # noqa: S310 - http, as checked above
        with self._translated(timeout):
            answer: http.client.HTTPResponse = _OPENER.open(request, timeout=timeout)
            return answer

    @contextmanager
    def _translated(self, timeout: float = ANSWER_TIMEOUT_S) -> Iterator[None]:
        """Translate what the library raises."""
        try:
            yield
        except urllib.error.HTTPError as answer:
            with answer:
                raise self._refusal(answer, timeout) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            is_sent = not isinstance(reason, _NOT_CONNECTED)
            problem = f"{reason}. Is `leasehold serve` or `leasehold dev` running there?"
            raise ServerUnreachableError(url=self.url, problem=problem, sent=is_sent) from None

    def read(self, read: Callable[[Any], T], answer: Any) -> T:
        """Return an answer as its model has it, or say that this is not the runs API."""
        try:
            return read(answer)
        except (ValueError, KeyError, TypeError):
            message = f"{self.url} answers, but not as the runs API of this version does."
            raise ServerRefusedError(message=message) from None

    def _json(self, answer: Any, text: bytes) -> Any:
        if len(text) > _MAX_ANSWER_BYTES:
            raise self._refused(f"answers with something larger than {_MAX_ANSWER_BYTES:,} bytes")
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            kind = answer.headers.get_content_type()
            raise self._refused(
                f"answers with {kind}, not with JSON: no Leasehold server is at that address"
            ) from None

    def _refusal(self, answer: urllib.error.HTTPError, timeout: float) -> LeaseholdError:
        """Return the error that an answer is."""
        if HTTPStatus.MULTIPLE_CHOICES <= answer.code < HTTPStatus.BAD_REQUEST:
            place = str(answer.headers.get("Location"))[:_MAX_MESSAGE_CHARS]
            return self._refused(f"redirects to {place}, which is not followed: name that address")
        found = _error(answer, timeout)
        if answer.code in _NOT_NOW:
            problem = f"{found.message.rstrip('.')}."
            return ServerUnreachableError(url=self.url, problem=problem, sent=True)
        if found.code is not None and (error := error_of(found)) is not None:
            return error
        return ServerRefusedError(message=found.message, url=self.url, code=found.code)

    def _refused(self, what: str) -> ServerRefusedError:
        return ServerRefusedError(message=f"{self.url} {what}.")


def _size(text: str | None) -> int:
    """Return a number of bytes, or raise ValueError."""
    if text is None or not text.isdecimal():
        raise ValueError
    return int(text)


def is_server(url: str) -> bool:
    """Return whether a text can be the address of a server, without a user or password."""
    try:
        parts = urlsplit(url)
        is_whole = parts.hostname is not None and parts.port != 0 and url.isascii()
    except ValueError:  # brackets of an address that do not match, an invalid port
        return False
    is_plain = url.isprintable() and not any(part in url for part in (" ", "?", "#", "@"))
    return is_whole and is_plain and parts.scheme in ("http", "https")


def _whole(answer: Any, timeout: float) -> bytes:
    """Return an answer, or as much of it as tells that it is too long.

    Raises:
        OSError, HTTPException: it ends too early, or drips.
    """
    until = time.monotonic() + timeout
    given = answer.headers.get("Content-Length", "")
    is_size = given.isascii() and given.isdigit() and len(given) <= _MAX_DIGITS
    left = int(given) if is_size else None
    chunks: list[bytes] = []
    size = 0
    while left != 0 and size <= _MAX_ANSWER_BYTES:
        chunk = answer.read1(_CHUNK_BYTES if left is None else min(left, _CHUNK_BYTES))
        if not chunk:
            if left:
                raise http.client.IncompleteRead(b"", left)
            break
        chunks.append(chunk)
        size += len(chunk)
        left = None if left is None else left - len(chunk)
        if time.monotonic() > until:
            raise TimeoutError(f"its answer is not whole within {timeout:g} s")
    return b"".join(chunks)


def _error(answer: urllib.error.HTTPError, timeout: float) -> ErrorInfo:
    """Return what a refusal says; a server of another kind says no more than its status.

    A proxy of Google's has a number as its code, and a list of details: its message is read.
    """
    try:
        found = json.loads(_whole(answer, timeout))["error"]
        code, details = found.get("code"), found.get("details")
        message = found["message"][:_MAX_MESSAGE_CHARS]
        return ErrorInfo(
            code=code if isinstance(code, str) else None,
            message=message,
            details=details if isinstance(details, dict) else {},
        )
    except (
        OSError,
        ValueError,
        RecursionError,
        http.client.HTTPException,
        KeyError,
        TypeError,
        AttributeError,
    ):
        return ErrorInfo(message=f"{answer.code} {answer.reason}")


# Errors in a server's answers, as the classes that a store raises.


def error_of(info: ErrorInfo) -> LeaseholdError | None:
    """Return the error in an answer; None: this version has none of that code."""
    details = {to_snake(name): value for name, value in info.details.items()}
    return restored_error(info.code, info.message, details)
