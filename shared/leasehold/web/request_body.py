"""The body of a request: read within its limit, and never left half read."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import pydantic_core
from werkzeug import Request

from leasehold.api.call_row import BODY_BYTES
from leasehold.domain.json_text import check_finite
from leasehold.errors import BodyEncodingError, InvalidRequestError, TooLargeError

#: Blocks in which a body is read, and the rest of it dropped: one of any size takes no memory.
_BLOCK_BYTES: Final = 64 * 1024
_MOST_SHOWN: Final = 60


def json_body(request: Request, limit: int = BODY_BYTES) -> Mapping[str, Any]:
    """Return the JSON object of the body, of at most `limit` bytes; none is an empty one.

    Raises:
        BodyEncodingError: it is compressed, or the like.
        TooLargeError: it is too large.
        InvalidRequestError: it did not come whole, or is not a JSON object.
    """
    encoding = request.headers.get("Content-Encoding", "").strip()
    if encoding.lower() not in ("", "identity"):
        raise BodyEncodingError(encoding=encoding[:_MOST_SHOWN])
    text = _read(request, limit)
    try:
        value = pydantic_core.from_json(text, allow_inf_nan=False) if text.strip() else {}
        check_finite(text, value)
    except ValueError as error:
        raise _refused(str(error)[:200], "a JSON object") from None
    if not isinstance(value, dict):
        raise _refused(type(value).__name__, "a JSON object")
    return value


def drop_rest(request: Request, most: float = math.inf) -> None:
    """Read what is left of the body, block by block, and keep none of it.

    The framework would read the rest whole; and a client that still sends while the connection is
    closed does not get its answer.

    Args:
        request: the request; its body is empty afterwards.
        most: bytes that are read, about; what comes after them is the server's, which hangs up.
    """
    dropped = 0
    with suppress(Exception):  # the sender may be gone, or break off; there is nothing to be lost
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
        while len(text) <= limit and (block := request.stream.read(_BLOCK_BYTES)):
            text += block
    except Exception:  # noqa: BLE001 - each server has its own way to say that the sender broke off
        raise _refused(f"{len(text)} bytes, then broken off", "a whole body") from None
    if len(text) > limit:
        raise TooLargeError(what="the body", size=len(text), limit=limit)
    if size is not None and len(text) < size:
        raise _refused(f"{len(text)} of {size} bytes", "a whole body")
    return bytes(text)


def _refused(value: str, allowed: str) -> InvalidRequestError:
    return InvalidRequestError(field="body", value=value, allowed=allowed)
