"""What a handler raised, as the manifest keeps it: whole where it fits, without its secrets."""

from __future__ import annotations

import math
from functools import partial
from itertools import islice
from typing import Any, Final

from pydantic import ValidationError

from leasehold.domain.manifest import to_document
from leasehold.domain.manifest_parts import ErrorRecord
from leasehold.domain.retry import MAX_RETRY_AFTER
from leasehold.errors import AgentClientError, LeaseholdError, PermanentError
from leasehold.worker.error_chain import class_name, full_class_name, parts_of
from leasehold.worker.kept_text import bounded, cut, json_of, size, try_text
from leasehold.worker.misfits import (
    MAX_EXCERPT,
    MAX_ISSUES,
    MAX_RECORD_BYTES,
    fitting,
    learn_from,
    misfit_words,
    record_of_misfit,
)
from leasehold.worker.redaction import Redaction
from leasehold.worker.retry_hints import retry_after_of
from leasehold.worker.tracebacks import MAX_ERRORS, origin_of, reported_traceback, traceback_of

_MAX_FIELDS: Final = 20
_MAX_NOTES: Final = 10
_MAX_OF_IMPORT: Final = 1000
#: A store has no larger whole numbers.
_MAX_BITS: Final = 64
_RAISED: Final = "handler_raised"
_LONGEST_WAIT_S: Final = MAX_RETRY_AFTER.total_seconds()


def record_of(error: BaseException, handler: str = "", what: str = "") -> ErrorRecord:
    """Return the error of a handler as it is kept, whatever its class does.

    Args:
        error: what was raised.
        handler: the path of the handler, `module:function`: its package is the user's own code.
        what: what raised it, where that is no handler: its message begins with it.
    """
    try:
        return _record_of(error, handler.partition(":")[0].partition(".")[0], what)
    except BaseException as failure:  # noqa: BLE001 - an error must never be lost to its own text
        text = f"{what and f'{what}: '}Its words raised {class_name(failure)}."
        return ErrorRecord(type=cut(class_name(error), MAX_EXCERPT), code=_RAISED, message=text)


def _record_of(error: BaseException, own: str, what: str) -> ErrorRecord:
    redaction = Redaction()
    parts = parts_of(error, MAX_ERRORS)
    for part in parts:
        _learn(part.error, redaction)  # what one of them knows for a secret is cut from them all
    origin = origin_of(parts, own)
    words = _words_of(error, redaction)
    record = (_headed(words, what) if what else words).with_(
        type=cut(class_name(error), MAX_EXCERPT),
        origin=None if origin is None else cut(origin, 2 * MAX_EXCERPT),
        retry_after_s=retry_after_of(error),
    )
    headline = partial(_headline, redaction)
    traceback = traceback_of(parts, headline, redaction, own=own, room=_room_beside(record))
    return record.with_(traceback=traceback)


def _words_of(error: BaseException, redaction: Redaction) -> ErrorRecord:
    code = cut(try_text(lambda: str(_code(error))), MAX_EXCERPT)
    if isinstance(error, ValidationError):
        return record_of_misfit(error, code=code, what="What it read")
    facts = _facts(_details(error), redaction)
    message = redaction.text(try_text(lambda: str(error)) or class_name(error))
    return ErrorRecord(type="", code=redaction.text(code), message=bounded(message), **facts)


def _headed(words: ErrorRecord, what: str) -> ErrorRecord:
    """Return the words of an error after those on what raised it."""
    message = bounded(f"{cut(what, MAX_EXCERPT)}: {words.message}")
    headed = words.with_(message=message, validation_issues=())
    issues = fitting(
        [dict(each) for each in words.validation_issues], beside=size(to_document(headed))
    )
    return headed.with_(validation_issues=issues)


def record_of_report(
    kind: str, code: str, message: str, details: Any, traceback: str = ""
) -> ErrorRecord:
    """Return the error that a remote worker reports, as it is kept.

    Args:
        kind: its class.
        code: what failed, for machines.
        message: what failed, for people.
        details: plain JSON values; None: there are none.
        traceback: as its language writes it; empty: there is none.
    """
    redaction = Redaction()
    facts = _facts(details, redaction)
    record = ErrorRecord(
        type=cut(redaction.text(kind), MAX_EXCERPT),
        code=cut(redaction.text(code), MAX_EXCERPT),
        message=bounded(redaction.text(message)),
        **facts,
    )
    kept = reported_traceback(traceback, redaction, _room_beside(record))
    return record.with_(traceback=kept)


def record_of_child(body: bytes) -> ErrorRecord:
    """Return the error that the process of a handler reports, JSON text, as it is kept.

    It was made and redacted there; that it has the form of one is not believed.

    Raises:
        ValueError: it has not.
    """
    record = ErrorRecord.model_validate_json(body)
    wait, count = record.retry_after_s, record.validation_issue_count
    has_size = size(to_document(record)) <= MAX_RECORD_BYTES
    can_wait = wait is None or 0 < wait <= _LONGEST_WAIT_S
    can_count = count >= 0 and count.bit_length() < _MAX_BITS
    if record.model_extra or not (has_size and can_wait and can_count):
        raise ValueError("it is not the record of an error")
    issues = tuple(_listed(dict(issue)) for issue in record.validation_issues[:MAX_ISSUES])
    return record.with_(validation_issues=issues, permanent=False, step="", attempt=0)


def safe_text(value: Any, limit: int) -> str:
    """Return the text of a value without its secrets, at most so many characters of it."""
    text = value if isinstance(value, str) else try_text(lambda: repr(value))
    return cut(Redaction().text(text), limit)


def words_of_import(error: BaseException) -> str:
    """Return class and words of what an import raised, as an error of ours says them."""
    words = safe_text(try_text(lambda: str(error)), _MAX_OF_IMPORT)
    return f"{class_name(error)}: {words}".rstrip(" :.")


def _code(error: BaseException) -> object:
    if isinstance(error, AgentClientError | PermanentError | LeaseholdError):
        return error.code
    return _RAISED


def _details(error: BaseException) -> Any:
    return error.details if isinstance(error, AgentClientError | LeaseholdError) else None


def _learn(error: BaseException | None, redaction: Redaction) -> None:
    if isinstance(error, ValidationError):
        learn_from(error, redaction)
    elif error is not None:
        redaction.value(_details(error))


def _facts(details: Any, redaction: Redaction) -> dict[str, Any]:
    """Return the fields of a record for these details: a list of them is a list of issues."""
    if isinstance(details, list | tuple):
        some = redaction.value(list(details[:MAX_ISSUES]))  # all at once: two may be a pair
        issues = [_listed(one) for one in (some if isinstance(some, list) else [some])]
        kept = fitting(issues, beside=MAX_RECORD_BYTES // 2)  # the message has its room
        return {"validation_issues": kept, "validation_issue_count": len(details)}
    plain = redaction.value(details)
    return {} if plain in ({}, None) else {"details": json_of(plain)}


def _listed(plain: Any) -> dict[str, Any]:
    """Return one of several details as an issue that every store can keep: flat, and short."""
    fields = plain if isinstance(plain, dict) else {"message": plain}
    return {
        cut(name, MAX_EXCERPT).strip("_") or "detail": _short(one)
        for name, one in islice(fields.items(), _MAX_FIELDS)
    }


def _short(plain: Any) -> Any:
    if plain is None or isinstance(plain, bool):
        return plain
    if isinstance(plain, int):
        return plain if plain.bit_length() < _MAX_BITS else hex(plain)[:MAX_EXCERPT]
    if isinstance(plain, float) and math.isfinite(plain):
        return plain
    return cut(plain if isinstance(plain, str) else json_of(plain), MAX_EXCERPT)


def _headline(redaction: Redaction, error: BaseException, room: int) -> str:
    """Return what a traceback ends with: class, message and notes, in so many bytes of JSON."""
    name = cut(full_class_name(error), MAX_EXCERPT)
    if isinstance(error, ValidationError):
        message = misfit_words(error, redaction)  # its own text has the values that do not fit
    else:
        message = redaction.text(try_text(lambda: str(error)))
    notes = [redaction.text(note) for note in _notes(error)]
    return bounded("\n".join([f"{name}: {message}" if message else name, *notes]), room)


def _notes(error: BaseException) -> list[str]:
    try:
        notes = getattr(error, "__notes__", None)
    except Exception:  # noqa: BLE001 - it may be a property of the user's
        return []
    if not isinstance(notes, list | tuple):
        return []
    return [try_text(partial(str, note)) for note in notes[:_MAX_NOTES]]


def _room_beside(record: ErrorRecord) -> int:
    """Return how many bytes of JSON a traceback may take in a record."""
    return MAX_RECORD_BYTES - size(to_document(record)) - len(',"traceback":')
