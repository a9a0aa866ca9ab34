"""What a handler raised, as the manifest keeps it: whole where it fits, bounded where not."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pydantic_core
from pydantic import ValidationError

from leasehold.domain.manifest import ErrorRecord, to_document
from leasehold.errors import AgentClientError, LeaseholdError, PermanentError

MAX_ISSUES: Final = 50
_MAX_ERROR_BYTES: Final = 16 * 1024
_MAX_MESSAGE: Final = 4000
_MAX_DETAILS: Final = 4000
_MAX_EXCERPT: Final = 120


def record_of(error: BaseException) -> ErrorRecord:
    """Return the error of a handler as it is kept."""
    return ErrorRecord(
        type=type(error).__name__,
        code=_code(error),
        message=cut(_words_of(error), _MAX_MESSAGE),
        details=_details(error),
        origin=_origin(error),
    )


def record_of_misfit(error: ValidationError, *, code: str, what: str) -> ErrorRecord:
    """Return the error of a value that does not fit its model, with its issues."""
    issues = [_issue(issue) for issue in error.errors(include_url=False, include_context=False)]
    record = ErrorRecord(
        type="ValidationError",
        code=code,
        message=f"{what} does not fit {error.title}: {first_problem(error)}",
        validation_issue_count=len(issues),
    )
    kept = issues[:MAX_ISSUES]
    while kept and _size(record.with_(validation_issues=tuple(kept))) > _MAX_ERROR_BYTES:
        kept = kept[: len(kept) * 3 // 4]
    return record.with_(validation_issues=tuple(kept))


def first_problem(error: ValidationError) -> str:
    """Return the first issue of a validation, and how many there are."""
    issues = error.errors(include_url=False, include_context=False, include_input=False)
    path = _path(issues[0]["loc"]) or "the value itself"
    more = f" (and {len(issues) - 1} more)" if len(issues) > 1 else ""
    return f"{path}: {issues[0]['msg']}{more}"


def _words_of(error: BaseException) -> str:
    """Return what the error says; one that cannot say it is told by its type."""
    try:
        return str(error) or type(error).__name__
    except Exception as failure:  # noqa: BLE001 - a handler's class may do anything
        return f"{type(error).__name__}, whose message raised {type(failure).__name__}"


def _issue(issue: Any) -> dict[str, Any]:
    return {
        "path": cut(_path(issue["loc"]), _MAX_EXCERPT),
        "message": cut(issue["msg"], _MAX_EXCERPT),
        "input": cut(repr(issue["input"]), _MAX_EXCERPT),
    }


def _path(location: Iterable[str | int]) -> str:
    return ".".join(str(part) for part in location)


def _code(error: BaseException) -> str:
    if isinstance(error, AgentClientError | PermanentError | LeaseholdError):
        return cut(str(error.code), _MAX_EXCERPT)
    return "handler_raised"


def _details(error: BaseException) -> str | None:
    if isinstance(error, AgentClientError | LeaseholdError) and error.details:
        try:
            text = pydantic_core.to_json(error.details, fallback=repr).decode()
        except ValueError:  # text that is none, or a loop
            text = json.dumps(ascii(error.details))
        return cut(text, _MAX_DETAILS)
    return None


def _origin(error: BaseException) -> str | None:
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return None
    last = frames[-1]
    return f"{Path(last.filename).name}:{last.lineno} ({last.name})"


def cut(text: str, limit: int) -> str:
    """Return the text as it can be stored, at most so many characters of it."""
    clean = text.encode("utf-8", "replace").decode()
    return clean if len(clean) <= limit else f"{clean[: limit - 1]}…"


def _size(record: ErrorRecord) -> int:
    return len(pydantic_core.to_json(to_document(record)))
