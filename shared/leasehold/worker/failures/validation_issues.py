"""A value that does not fit its model: its issues, as records and refusals have them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pydantic import ValidationError

from leasehold.domain.manifest import to_document
from leasehold.domain.manifest_parts import ErrorRecord
from leasehold.domain.redaction import Redaction
from leasehold.domain.secret_names import hides
from leasehold.worker.failures.kept_text import MAX_TEXT, bounded, cut, size

MAX_ISSUES: Final = 50
#: Of the 16 KiB of a record; the step and the attempt are added later.
MAX_RECORD_BYTES: Final = 16 * 1024 - 512
MAX_EXCERPT: Final = 120
_MAX_MESSAGE: Final = 500
_LOOKED_AT: Final = 2000


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
    return record.with_(validation_issues=fitting(issues, beside=size(to_document(record))))


def misfit_words(error: ValidationError, redaction: Redaction) -> str:
    """Return the name of the model, and the first issue."""
    return f"{cut(error.title, MAX_EXCERPT)}: {_first_problem(error, redaction)}"


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
            "type": cut(issue["type"], MAX_EXCERPT),
            "message": cut(redaction.text(issue["msg"]), _MAX_MESSAGE),
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
    return cut(f"{path}: {redaction.text(issue['msg'])}", MAX_TEXT) + more


def _issues(error: ValidationError) -> list[Any]:
    """Return so many of the issues as may be kept."""
    return error.errors(include_url=False, include_context=False)[:MAX_ISSUES]


def _issue(issue: Any, redaction: Redaction) -> dict[str, Any]:
    excerpt = _excerpt(issue, redaction)
    return {
        "path": cut(redaction.text(_path(issue["loc"])), MAX_EXCERPT),
        "message": cut(redaction.text(issue["msg"]), MAX_EXCERPT),
        "input": cut(excerpt, MAX_EXCERPT),
    }


def _excerpt(issue: Any, redaction: Redaction) -> str:
    given = issue["input"]
    if any(hides(str(part), given) for part in issue["loc"]):
        return redaction.hidden(given)
    return repr(redaction.value(given, at_most=_LOOKED_AT))


def _path(location: Iterable[str | int]) -> str:
    return ".".join(str(part) for part in location)


def _named(part: str, redaction: Redaction) -> str:
    return cut(redaction.text(part), MAX_EXCERPT)
