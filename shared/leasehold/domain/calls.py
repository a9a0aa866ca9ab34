"""The results of calls made once (`ctx.once`): which count now, and how many there may be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import CallResult
from leasehold.domain.manifest_room import CALL_REFERENCE_BYTES, fits_inline
from leasehold.errors import InvalidRequestError, TooManyCallsError

#: A run keeps so many results at a time.
MAX_RESULTS: Final = 100
#: Characters of a key, and of the name of a type.
MAX_KEY: Final = 128
MAX_TYPE: Final = 100

_MAX_SHOWN: Final = 200


def check_call_key(key: object) -> None:
    """Refuse what cannot name a call, with InvalidRequestError."""
    if not isinstance(key, str) or not 1 <= len(key) <= MAX_KEY or not key.isprintable():
        allowed = f"a text of 1 to {MAX_KEY} printable characters"
        value = ascii(key)[:_MAX_SHOWN]
        raise InvalidRequestError(field="key", value=value, allowed=allowed)


def recorded_call(manifest: Manifest, key: str) -> CallResult | None:
    """Return the result that counts for a key now; None: the call is still to be made."""
    return next((call for call in _current(manifest) if call.key == key), None)


def outlasting(manifest: Manifest) -> tuple[CallResult, ...]:
    """Return the results that are left when the current step is over."""
    return tuple(call for call in manifest.calls if call.keep)


def with_call(manifest: Manifest, call: CallResult) -> tuple[CallResult, ...]:
    """Return the results with one more, in place of that of its key; what is over is dropped.

    Raises:
        TooManyCallsError: a manifest has no room for it. By reference it takes less.
    """
    others = tuple(
        other
        for other in manifest.calls
        if other.keep or (other.step, other.trial) == (call.step, call.trial)
        if (other.step, other.key) != (call.step, call.key)
    )
    beside = manifest.with_(calls=others).text_bytes
    if call.ref is None and not fits_inline(call.size, beside=beside):
        raise no_room(call.key, others)
    check_room(others, call)
    return (*others, call)


def check_room(others: Iterable[CallResult], call: CallResult) -> None:
    """Refuse one result too many, with TooManyCallsError."""
    calls = [*others, call]
    references = sum(one.size for one in calls if one.ref is not None)
    if len(calls) > MAX_RESULTS or references > CALL_REFERENCE_BYTES:
        raise no_room(call.key, calls[:-1])


def no_room(key: str, calls: Iterable[CallResult]) -> TooManyCallsError:
    """Return the error of a result that a run has no room for, beside these."""
    return TooManyCallsError(key=key, count=len(list(calls)), limit=MAX_RESULTS)


def _current(manifest: Manifest) -> Iterable[CallResult]:
    """Yield the results of the current step and trial, and what an earlier trial of it kept."""
    for call in manifest.calls:
        if call.step == manifest.current_step and (call.keep or call.trial == manifest.trial):
            yield call
