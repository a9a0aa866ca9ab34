"""What a handler raised, as the manifest keeps it: whole where it fits, without its secrets."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pydantic_core
from pydantic import ValidationError

from leasehold.domain.manifest import to_document
from leasehold.domain.manifest_parts import ErrorRecord
from leasehold.errors import AgentClientError, LeaseholdError, PermanentError
from leasehold.worker.redaction import Redaction, hides

MAX_ISSUES: Final = 50
#: Of the 16 KiB of a record; the step and the attempt are added later.
_MAX_RECORD_BYTES: Final = 16 * 1024 - 512
_MAX_TEXT: Final = 4000
_MAX_TEXT_BYTES: Final = 6 * 1024
_MAX_EXCERPT: Final = 120
_MAX_FIELDS: Final = 20
_LOOKED_AT: Final = 2000
_RAISED: Final = "handler_raised"


def record_of(error: BaseException) -> ErrorRecord:
    """Return the error of a handler as it is kept, whatever its class does."""
    try:
        return _record_of(error)
    except BaseException as failure:  # noqa: BLE001 - an error must never be lost to its own text
        text = f"Its words raised {type(failure).__name__}."
        return ErrorRecord(type=type(error).__name__[:_MAX_EXCERPT], code=_RAISED, message=text)


def _record_of(error: BaseException) -> ErrorRecord:
    code = cut(_try_text(lambda: str(_code(error))), _MAX_EXCERPT)
    name, origin = cut(type(error).__name__, _MAX_EXCERPT), _origin(error)
    if isinstance(error, ValidationError):
        misfit = record_of_misfit(error, code=code, what="What it read")
        return misfit.with_(type=name, origin=origin)
    redaction = Redaction()
    facts = _facts(_details(error), redaction)
    return ErrorRecord(
        type=name,
        code=redaction.text(code),
        message=_bounded(redaction.text(_message_of(error))),
        origin=origin,
        **facts,
    )


def record_of_misfit(error: ValidationError, *, code: str, what: str) -> ErrorRecord:
    """Return the error of a value that does not fit its model, with its issues."""
    redaction = Redaction()
    issues = [_issue(issue, redaction) for issue in _issues(error)]
    first = _first_problem(error, redaction)
    record = ErrorRecord(
        type="ValidationError",
        code=code,
        message=_bounded(f"{what} does not fit {cut(error.title, _MAX_EXCERPT)}: {first}"),
        validation_issue_count=error.error_count(),
    )
    return record.with_(validation_issues=_fitting(issues, beside=_size(record)))


def record_of_report(kind: str, code: str, message: str, details: Any) -> ErrorRecord:
    """Return the error that a remote worker reports, as it is kept; None: no details."""
    redaction = Redaction()
    facts = _facts(details, redaction)
    return ErrorRecord(
        type=cut(redaction.text(kind), _MAX_EXCERPT),
        code=cut(redaction.text(code), _MAX_EXCERPT),
        message=_bounded(redaction.text(message)),
        **facts,
    )


def first_problem(error: ValidationError) -> str:
    """Return the first issue of a validation, and how many there are."""
    return _first_problem(error, Redaction())


def _first_problem(error: ValidationError, redaction: Redaction) -> str:
    issue = _issues(error)[0]
    path = redaction.text(_path(issue["loc"])) or "the value itself"
    _excerpt(issue, redaction)  # first: what it knows for a secret is cut from the message
    count = error.error_count()
    more = f" (and {count - 1} more)" if count > 1 else ""
    return cut(f"{path}: {redaction.text(issue['msg'])}", _MAX_TEXT) + more


def _message_of(error: BaseException) -> str:
    """Return the message of the error; the name of its type where it has none."""
    return _try_text(lambda: str(error)) or type(error).__name__


def _try_text(text_of: Callable[[], str]) -> str:
    """Return a text from a class of the user's, which may do anything when it is called."""
    try:
        return text_of()
    except Exception as failure:  # noqa: BLE001 - see above
        return f"Its words raised {type(failure).__name__}."


def _issues(error: ValidationError) -> list[Any]:
    """Return so many of the issues as may be kept."""
    return error.errors(include_url=False, include_context=False)[:MAX_ISSUES]


def _issue(issue: Any, redaction: Redaction) -> dict[str, Any]:
    excerpt = _excerpt(issue, redaction)
    return {
        "path": cut(redaction.text(_path(issue["loc"])), _MAX_EXCERPT),
        "message": cut(redaction.text(issue["msg"]), _MAX_EXCERPT),
        "input": cut(excerpt, _MAX_EXCERPT),
    }


def _excerpt(issue: Any, redaction: Redaction) -> str:
    given = issue["input"]
    if any(hides(str(part), given) for part in issue["loc"]):
        return redaction.hidden(given)
    return repr(redaction.value(given, at_most=_LOOKED_AT))


def _path(location: Iterable[str | int]) -> str:
    return ".".join(str(part) for part in location)


def _code(error: BaseException) -> object:
    if isinstance(error, AgentClientError | PermanentError | LeaseholdError):
        return error.code
    return _RAISED


def _details(error: BaseException) -> Any:
    return error.details if isinstance(error, AgentClientError | LeaseholdError) else None


def _facts(details: Any, redaction: Redaction) -> dict[str, Any]:
    """Return the fields of a record for these details: a list of them is a list of issues."""
    if isinstance(details, list | tuple):
        some = redaction.value(list(details[:MAX_ISSUES]))  # all at once: two may be a pair
        issues = [_listed(one) for one in (some if isinstance(some, list) else [some])]
        fitting = _fitting(issues, beside=_MAX_RECORD_BYTES // 2)  # the message has its room
        return {"validation_issues": fitting, "validation_issue_count": len(details)}
    plain = redaction.value(details)
    return {} if plain in ({}, None) else {"details": _json_of(plain)}


def _listed(plain: Any) -> dict[str, Any]:
    """Return one of several details as an issue that every store can keep: flat, and short."""
    fields = plain if isinstance(plain, dict) else {"message": plain}
    return {
        cut(name, _MAX_EXCERPT).strip("_") or "detail": _short(one)
        for name, one in islice(fields.items(), _MAX_FIELDS)
    }


def _short(plain: Any) -> Any:
    if plain is None or isinstance(plain, bool | int):
        return plain
    if isinstance(plain, float) and math.isfinite(plain):
        return plain
    return cut(plain if isinstance(plain, str) else _json_of(plain), _MAX_EXCERPT)


def _fitting(issues: list[dict[str, Any]], *, beside: int) -> tuple[dict[str, Any], ...]:
    """Return the first issues, as many as a record has room for beside so many bytes."""
    while issues and beside + len(pydantic_core.to_json(issues)) > _MAX_RECORD_BYTES:
        issues = issues[: len(issues) * 3 // 4]
    return tuple(issues)


def _json_of(plain: Any) -> str:
    return _bounded(pydantic_core.to_json(_storable(plain), inf_nan_mode="strings").decode())


def _origin(error: BaseException) -> str | None:
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return None
    last = frames[-1]
    return cut(f"{Path(last.filename).name}:{last.lineno} ({last.name})", 2 * _MAX_EXCERPT)


def safe_text(value: Any, limit: int) -> str:
    """Return the text of a value without its secrets, at most so many characters of it."""
    text = value if isinstance(value, str) else _try_text(lambda: repr(value))
    return cut(Redaction().text(text), limit)


def cut(text: str, limit: int) -> str:
    """Return the text as it can be stored, at most so many characters of it."""
    clean = text[: limit + 1].encode("utf-8", "replace").decode()
    return clean if len(clean) <= limit else f"{clean[: limit - 1]}…"


def _bounded(text: str) -> str:
    """Return as much of a long text as a record has room for, however it is written as JSON."""
    text = cut(text, _MAX_TEXT)
    while len(pydantic_core.to_json(text)) > _MAX_TEXT_BYTES:
        text = cut(text, len(text) * 3 // 4)
    return text


def _storable(plain: Any) -> Any:
    """Return plain values whose texts can be stored."""
    match plain:
        case str():
            return plain.encode("utf-8", "replace").decode()
        case dict():
            return {_storable(key): _storable(value) for key, value in plain.items()}
        case list():
            return [_storable(value) for value in plain]
    return plain


def _size(record: ErrorRecord) -> int:
    return len(pydantic_core.to_json(to_document(record)))
