"""HTTP calls of a server's runs API."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Any, Final, TypeVar
from urllib.parse import quote, urlsplit

from leasehold.api.errors import ErrorInfo
from leasehold.api.results import SIZE_HEADER
from leasehold.errors import InvalidRequestError, ServerRefusedError, ServerUnreachableError
from leasehold.ports.artifacts import ArtifactContent

_TIMEOUT_S: Final = 30.0
_NOT_NOW: Final = 503

#: Whoever is at the address may send anything; no answer of the runs API is longer.
_MOST_BYTES: Final = 64 * 1024 * 1024
_LONGEST_MESSAGE: Final = 1000

#: A file of any size is read in blocks of at most so many bytes.
_BLOCK_BYTES: Final = 1024 * 1024

#: What the standard library raises for an answer, or an address, that is not one.
_NO_ANSWER: Final = (OSError, ValueError, RecursionError, http.client.HTTPException)

T = TypeVar("T")


class RunsApi:
    """The runs API at an address.

    Raises, in each method:
        ServerUnreachableError: it does not answer.
        ServerRefusedError: it answers with an error; `code` in its details is the server's.
    """

    def __init__(self, url: str) -> None:
        if not _is_http(url):
            allowed = "http://HOST:PORT or https://HOST"
            raise InvalidRequestError(field="--url", value=url, allowed=allowed)
        self.url = url.rstrip("/")

    def call(
        self,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = _TIMEOUT_S,
    ) -> tuple[int, Any]:
        """Return status and answer of a GET, or with a body of a POST; `timeout` in seconds."""
        data = None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **(headers or {})}
        with self._answer(path, data, sent, timeout) as answer, self._translated():
            return answer.status, _json(answer)

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
        timeout: float = _TIMEOUT_S,
    ) -> http.client.HTTPResponse:
        """Return the answer of the server, to be read and closed, unless it is an error."""
        with self._translated():
            request = urllib.request.Request(f"{self.url}{path}", data, headers or {})  # noqa: S310 - http, as checked above
            answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=timeout)  # noqa: S310
            return answer

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Translate what the library raises."""
        try:
            yield
        except urllib.error.HTTPError as error:
            found = _error(error)
            message = found.message[:_LONGEST_MESSAGE]
            if error.code == _NOT_NOW:
                raise ServerUnreachableError(url=self.url, problem=message) from None
            raise ServerRefusedError(message=message, url=self.url, code=found.code) from None
        except _NO_ANSWER as error:
            problem = getattr(error, "reason", None) or error
            raise ServerUnreachableError(url=self.url, problem=problem) from None

    def read(self, read: Callable[[Any], T], answer: Any) -> T:
        """Return an answer as its model has it, or say that this is not the runs API."""
        try:
            return read(answer)
        except (ValueError, KeyError, TypeError):
            message = f"{self.url} answers, but not as the runs API of this version does."
            raise ServerRefusedError(message=message) from None


def _size(text: str | None) -> int:
    """Return a number of bytes, or raise ValueError."""
    if text is None or not text.isdecimal():
        raise ValueError
    return int(text)


def path_of(run_id: str) -> str:
    """Return the path of a run."""
    return f"/runs/{quote(run_id, safe='')}"


def _is_http(url: str) -> bool:
    try:
        return urlsplit(url).scheme in ("http", "https")
    except ValueError:  # brackets of an address that do not match
        return False


def _json(answer: IO[bytes]) -> Any:
    """Return an answer, or raise ValueError where it is not JSON or has no end."""
    text = answer.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise ValueError(f"its answer is larger than {_MOST_BYTES:,} bytes")
    return json.loads(text)


def _error(refused: urllib.error.HTTPError) -> ErrorInfo:
    """Return what a refusal says; a server of another kind says no more than its status.

    A proxy of Google's has a number as its code, and a list of details: its message is read.
    """
    with refused:
        try:
            found = _json(refused)["error"]
            code = found.get("code")
            return ErrorInfo(code=code if isinstance(code, str) else None, message=found["message"])
        except (*_NO_ANSWER, KeyError, TypeError, AttributeError):
            return ErrorInfo(message=f"{refused.code} {refused.reason}")
