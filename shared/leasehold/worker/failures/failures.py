"""What a handler raised, as the manifest keeps it: whole where it fits, without its secrets."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from functools import partial
from itertools import islice
from typing import Any, Final

from pydantic import ValidationError

from leasehold.domain.manifest import to_document
from leasehold.domain.manifest_parts import ErrorRecord
from leasehold.domain.printable import one_line
from leasehold.domain.redaction import Redaction
from leasehold.domain.retry import MAX_RETRY_AFTER
from leasehold.domain.secret_names import hides
from leasehold.domain.stored import replace
from leasehold.errors import AgentClientError, LeaseholdError, PermanentError
from leasehold.worker.failures.error_chain import (
    MAX_GROUP_MEMBERS,
    class_name,
    full_class_name,
    leaves_of,
    parts_of,
)
from leasehold.worker.failures.kept_text import (
    MAX_TEXT_CHARS,
    bounded,
    cut,
    json_of,
    size,
    try_text,
)
from leasehold.worker.failures.retry_hints import is_rate_limited, retry_after_of
from leasehold.worker.failures.tracebacks import (
    MAX_ERRORS,
    frames_of,
    origin_of,
    reported_traceback,
    traceback_of,
)

# A value that does not fit its model: its issues, as records and refusals have them.


MAX_ISSUES: Final = 50
#: Of the 16 KiB of a record; the step and the attempt are added later.
MAX_RECORD_BYTES: Final = 16 * 1024 - 512
MAX_EXCERPT_CHARS: Final = 120
_MAX_ISSUE_CHARS: Final = 500
_MAX_VALUE_SEARCHED_CHARS: Final = 2000


def record_of_misfit(
    error: ValidationError, *, code: str, what: str, redaction: Redaction | None = None
) -> ErrorRecord:
    """Return the error of a value that does not fit its model, with its issues.

    Args:
        error: what pydantic says.
        code: what failed, for machines.
        what: what does not fit, for people.
        redaction: knows the secrets of errors that belong to this one; None: there are none.
    """
    redaction = redaction or Redaction()
    issues = [_issue(issue, redaction) for issue in _issues(error)]
    record = ErrorRecord(
        type="ValidationError",
        code=code,
        message=bounded(f"{what} does not fit {misfit_words(error, redaction)}"),
        validation_issue_count=error.error_count(),
    )
    return replace(record, validation_issues=fitting(issues, beside=size(to_document(record))))


def misfit_words(error: ValidationError, redaction: Redaction) -> str:
    """Return the name of the model, and the first issue."""
    return f"{cut(error.title, MAX_EXCERPT_CHARS)}: {_first_problem(error, redaction)}"


def first_problem(error: ValidationError) -> str:
    """Return the first issue of a validation, and how many there are."""
    return _first_problem(error, Redaction())


def issues_of(error: ValidationError) -> tuple[dict[str, Any], ...]:
    """Return the first issues of a value that is refused: where, of what type, and in words."""
    redaction = Redaction()
    issues = _issues(error)
    learn_from(error, redaction)  # first: what it knows for a secret is cut from all of them
    return tuple(
        {
            "loc": [part if isinstance(part, int) else _named(part, redaction) for part in loc],
            "type": cut(issue["type"], MAX_EXCERPT_CHARS),
            "message": cut(redaction.text(issue["msg"]), _MAX_ISSUE_CHARS),
        }
        for issue in issues
        for loc in (issue["loc"][:MAX_ISSUES],)
    )


def learn_from(error: ValidationError, redaction: Redaction) -> None:
    """Know the secrets among the values that did not fit."""
    for issue in _issues(error):
        _excerpt(issue, redaction)


def fitting(issues: list[dict[str, Any]], *, beside: int) -> tuple[dict[str, Any], ...]:
    """Return the first issues, as many as a record has room for beside so many bytes."""
    while issues and beside + size(issues) > MAX_RECORD_BYTES:
        issues = issues[: len(issues) * 3 // 4]
    return tuple(issues)


def _first_problem(error: ValidationError, redaction: Redaction) -> str:
    issue = _issues(error)[0]
    path = redaction.text(_path(issue["loc"])) or "the value itself"
    _excerpt(issue, redaction)  # first: what it knows for a secret is cut from the message
    count = error.error_count()
    more = f" (and {count - 1} more)" if count > 1 else ""
    return cut(f"{path}: {redaction.text(issue['msg'])}", MAX_TEXT_CHARS) + more


def _issues(error: ValidationError) -> list[Any]:
    """Return so many of the issues as may be kept."""
    return error.errors(include_url=False, include_context=False)[:MAX_ISSUES]


def _issue(issue: Any, redaction: Redaction) -> dict[str, Any]:
    excerpt = _excerpt(issue, redaction)
    return {
        "path": cut(redaction.text(_path(issue["loc"])), MAX_EXCERPT_CHARS),
        "message": cut(redaction.text(issue["msg"]), MAX_EXCERPT_CHARS),
        "input": cut(excerpt, MAX_EXCERPT_CHARS),
    }


def _excerpt(issue: Any, redaction: Redaction) -> str:
    given = issue["input"]
    if any(hides(str(part), given) for part in issue["loc"]):
        return redaction.hidden(given)
    return repr(redaction.value(given, at_most=_MAX_VALUE_SEARCHED_CHARS))


def _path(location: Iterable[str | int]) -> str:
    return ".".join(str(part) for part in location)


def _named(part: str, redaction: Redaction) -> str:
    return cut(redaction.text(part), MAX_EXCERPT_CHARS)


_MAX_DETAIL_FIELDS: Final = 20
_MAX_NOTES: Final = 10
_MAX_IMPORT_ERROR_CHARS: Final = 1000
_MAX_MEMBER_CHARS: Final = 300
#: A store has no larger whole numbers.
_MAX_BITS: Final = 64
_RAISED: Final = "handler_raised"
_MAX_RETRY_AFTER_S: Final = MAX_RETRY_AFTER.total_seconds()


def record_of(error: BaseException, handler: str = "", what: str = "") -> ErrorRecord:
    """Return the error of a handler as it is kept, whatever its class does.

    Args:
        error: what was raised.
        handler: the path of the handler, `module:function`: its package is the user's own code.
        what: what raised it, where that is not a handler: its message begins with it.
    """
    try:
        return _record_of(error, handler.partition(":")[0].partition(".")[0], what)
    except BaseException as failure:  # noqa: BLE001 - an error must never be lost to its own text
        text = f"{what and f'{what}: '}Its words raised {class_name(failure)}."
        return ErrorRecord(
            type=cut(class_name(error), MAX_EXCERPT_CHARS), code=_RAISED, message=text
        )


def _record_of(error: BaseException, own: str, what: str) -> ErrorRecord:
    redaction = Redaction()
    parts = parts_of(error, MAX_ERRORS)
    for part in parts:
        _learn(part.error, redaction)  # what one of them knows for a secret is cut from them all
    first = next(leaves_of(error), error)
    origin = origin_of(parts if first is error else [*parts_of(first, MAX_ERRORS), *parts], own)
    words = _words_of(error, own, redaction)
    record = replace(
        _headed(words, what) if what else words,
        type=cut(class_name(error), MAX_EXCERPT_CHARS),
        origin=None if origin is None else cut(origin, 2 * MAX_EXCERPT_CHARS),
        retry_after_s=retry_after_of(error),
        rate_limited=is_rate_limited(error),
    )
    headline = partial(_headline, redaction)
    traceback = traceback_of(parts, headline, redaction, own=own, room=_room_beside(record))
    return replace(record, traceback=traceback)


def _words_of(error: BaseException, own: str, redaction: Redaction) -> ErrorRecord:
    if isinstance(error, BaseExceptionGroup):
        return _words_of_group(error, own, redaction)
    code = cut(try_text(lambda: str(_code(error))), MAX_EXCERPT_CHARS)
    if isinstance(error, ValidationError):
        return record_of_misfit(error, code=code, what="What it read", redaction=redaction)
    facts = _facts(_details(error), redaction)
    message = redaction.text(try_text(lambda: _text_of(error)) or class_name(error))
    return ErrorRecord(type="", code=redaction.text(code), message=bounded(message), **facts)


def _text_of(error: BaseException) -> str:
    """Return the words of an error; one of ours begins with its code, which is kept beside."""
    return error.message if isinstance(error, LeaseholdError) else str(error)


def _words_of_group(group: BaseExceptionGroup[Any], own: str, redaction: Redaction) -> ErrorRecord:
    """Return the words of a group: its own, then those of its members.

    Code and details are those of the first member that has any.
    """
    members = list(leaves_of(group))
    named = [(one, _words_of(one, own, redaction)) for one in members[:MAX_GROUP_MEMBERS]]
    limit = MAX_TEXT_CHARS if len(members) == 1 else _MAX_MEMBER_CHARS
    texts = [_member_line(one, words, own, limit) for one, words in named]
    if left := len(members) - len(texts):
        texts.append(f"{left} more")
    title = redaction.text(try_text(lambda: str(group)))
    words = next((words for _, words in named if _has_facts(words)), None)
    telling = words or ErrorRecord(type="", code=_RAISED, message="")
    return _fitted(replace(telling, message=bounded(": ".join([title, "; ".join(texts)]))))


def _member_line(error: BaseException, words: ErrorRecord, own: str, limit: int) -> str:
    origin = origin_of(parts_of(error, MAX_ERRORS), own)
    name = cut(class_name(error), MAX_EXCERPT_CHARS)
    text = name if words.message == class_name(error) else f"{name}: {cut(words.message, limit)}"
    return f"{text}, at {cut(origin, MAX_EXCERPT_CHARS)}" if origin else text


def _has_facts(words: ErrorRecord) -> bool:
    return words.code != _RAISED or bool(words.validation_issues) or words.details is not None


def _headed(words: ErrorRecord, what: str) -> ErrorRecord:
    """Return the words of an error after those on what raised it."""
    message = bounded(f"{cut(what, MAX_EXCERPT_CHARS)}: {words.message}")
    return _fitted(replace(words, message=message))


def _fitted(words: ErrorRecord) -> ErrorRecord:
    """Return the words of an error with as many of its issues as there is room for."""
    issues = [dict(each) for each in words.validation_issues]
    beside = size(to_document(replace(words, validation_issues=())))
    return replace(words, validation_issues=fitting(issues, beside=beside))


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
        type=cut(redaction.text(kind), MAX_EXCERPT_CHARS),
        code=cut(redaction.text(code), MAX_EXCERPT_CHARS),
        message=bounded(redaction.text(message)),
        **facts,
    )
    kept = reported_traceback(traceback, redaction, _room_beside(record))
    return replace(record, traceback=kept)


def record_of_child(body: bytes) -> ErrorRecord:
    """Return the error that the process of a handler reports, JSON text, as it is kept.

    It was made and redacted there; that it has the form of one is not believed.

    Raises:
        ValueError: it has not.
    """
    record = ErrorRecord.model_validate_json(body)
    wait, count = record.retry_after_s, record.validation_issue_count
    has_size = size(to_document(record)) <= MAX_RECORD_BYTES
    can_wait = wait is None or 0 < wait <= _MAX_RETRY_AFTER_S
    can_count = count >= 0 and count.bit_length() < _MAX_BITS
    if record.model_extra or not (has_size and can_wait and can_count):
        raise ValueError("it is not the record of an error")
    issues = tuple(_listed(dict(issue)) for issue in record.validation_issues[:MAX_ISSUES])
    return replace(record, validation_issues=issues, permanent=False, step="", attempt=0)


def safe_text(value: Any, limit: int) -> str:
    """Return the text of a value without its secrets, cut at a number of characters."""
    text = value if isinstance(value, str) else try_text(lambda: repr(value))
    return cut(Redaction().text(text), limit)


def words_of_import(error: BaseException, module: str) -> str:
    """Return class and words of what the import of this module raised, and where, in one line."""
    try:
        text = try_text(lambda: str(error))
    except KeyboardInterrupt:
        raise
    except BaseException as failure:  # noqa: BLE001 - it is the user's, and no Exception either
        text = f"Its words raised {class_name(failure)}."
    words = one_line(safe_text(text, _MAX_IMPORT_ERROR_CHARS), _MAX_IMPORT_ERROR_CHARS)
    raised = f"{class_name(error)}: {words}".rstrip(" :.")
    return f"{raised}{_where_imported(error, module)}{_remedy(error)}"


def _where_imported(error: BaseException, module: str) -> str:
    """Return the line of the user's code that raised while it was imported, if there is one."""
    own = [frame for frame in frames_of(error, module.partition(".")[0]) if frame.is_own]
    says_so_itself = isinstance(error, SyntaxError)
    return f", at {own[-1].origin}" if own and not says_so_itself else ""


def _remedy(error: BaseException) -> str:
    """Return what to do where a whole package is missing."""
    package = error.name if isinstance(error, ModuleNotFoundError) else None
    if not package or package.partition(".")[0] in sys.modules:
        return ""
    return "; install its package (a function has those that its requirements.txt names)"


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
        cut(name, MAX_EXCERPT_CHARS).strip("_") or "detail": _short(one)
        for name, one in islice(fields.items(), _MAX_DETAIL_FIELDS)
    }


def _short(plain: Any) -> Any:
    if plain is None or isinstance(plain, bool):
        return plain
    if isinstance(plain, int):
        return plain if plain.bit_length() < _MAX_BITS else hex(plain)[:MAX_EXCERPT_CHARS]
    if isinstance(plain, float) and math.isfinite(plain):
        return plain
    return cut(plain if isinstance(plain, str) else json_of(plain), MAX_EXCERPT_CHARS)


def _headline(redaction: Redaction, error: BaseException, room: int) -> str:
    """Return what a traceback ends with: class, message and notes, in so many bytes of JSON."""
    name = cut(full_class_name(error), MAX_EXCERPT_CHARS)
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
