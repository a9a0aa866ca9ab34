"""Recorded results (`ctx.once`): which of them count now, and how many there may be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from leasehold.domain.artifact_name import step_folder
from leasehold.domain.checkpoint import CallResult
from leasehold.domain.json_text import digest
from leasehold.domain.manifest import (
    CALL_REFERENCE_BYTES,
    CALL_TEXT_BYTES,
    WITH_REFERENCES_BYTES,
    Manifest,
    fits_inline,
)
from leasehold.domain.stored import replace
from leasehold.errors import InvalidRequestError, TooManyCallsError

#: A run keeps so many results at a time.
MAX_RESULTS: Final = 100
#: Characters of a key, and of the name of a type.
MAX_KEY: Final = 128
MAX_TYPE: Final = 100

_MAX_SHOWN: Final = 200
_LONGEST_ID: Final = 40


def check_call_key(key: object) -> None:
    """Refuse what cannot name a call, with InvalidRequestError."""
    if not isinstance(key, str) or not 1 <= len(key) <= MAX_KEY or not key.isprintable():
        allowed = f"a text of 1 to {MAX_KEY} printable characters"
        value = key[:_MAX_SHOWN] if isinstance(key, str) else type(key).__name__
        raise InvalidRequestError(field="key", value=value, allowed=allowed)


def recorded_call(manifest: Manifest, key: str) -> CallResult | None:
    """Return the result that counts for a key now; None: the call is still to be made."""
    return next((call for call in current_calls(manifest) if call.key == key), None)


def outlasting(manifest: Manifest) -> tuple[CallResult, ...]:
    """Return the results that are left when the current step is over."""
    return tuple(call for call in manifest.position.calls if call.keep)


def current_calls(manifest: Manifest) -> tuple[CallResult, ...]:
    """Return the results that count now: of this step and trial, and what an earlier one kept."""
    return tuple(
        call
        for call in manifest.position.calls
        if call.step == manifest.position.step
        and (call.keep or call.trial == manifest.position.trial)
    )


def kept_files(manifest: Manifest) -> tuple[str, ...]:
    """Return the artifacts of the checkpoint, and of the results of calls."""
    checkpoint = manifest.position.checkpoint
    values = [] if checkpoint is None else [checkpoint.partial_results]
    values += [call.value for call in manifest.position.calls]
    return tuple(value.ref for value in values if value.ref is not None)


def with_call(manifest: Manifest, call: CallResult) -> tuple[CallResult, ...]:
    """Return the results with one more, in place of that of its key; what is over is dropped.

    Raises:
        TooManyCallsError: a manifest has no room for it. By reference it takes less.
    """
    others = tuple(
        other
        for other in manifest.position.calls
        if other.keep or (other.step, other.trial) == (call.step, call.trial)
        if (other.step, other.key) != (call.step, call.key)
    )
    check_room(manifest, others, call)
    return (*others, call)


def check_room(manifest: Manifest, others: Sequence[CallResult], call: CallResult) -> None:
    """Refuse one result too many, or too large, with TooManyCallsError.

    Args:
        manifest: the run.
        others: all other results.
        call: the result.
    """
    beside = replace(manifest, position=replace(manifest.position, calls=tuple(others))).text_bytes
    if call.ref is None:
        fits = fits_inline(call.size, beside=beside, most=CALL_TEXT_BYTES)
    else:
        references = call.size + sum(other.size for other in others if other.ref is not None)
        fits = references <= CALL_REFERENCE_BYTES and beside + call.size <= WITH_REFERENCES_BYTES
    if not fits or len(others) >= MAX_RESULTS:
        raise TooManyCallsError(key=call.key, count=len(others), limit=MAX_RESULTS)


def expected_reference(manifest: Manifest, call: CallResult) -> CallResult:
    """Return a call that is to be made, as a reference that is at least as large as it will be."""
    folder = step_folder(manifest, call.step, call.trial)
    longest = f"{folder}/{manifest.fencing_token}-{'0' * _LONGEST_ID}.json.gz"
    return replace(call, inline=None, ref=longest, digest=digest(longest))
