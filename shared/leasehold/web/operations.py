"""What people do to runs: one operation on one run, or on all those that a filter finds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import flask
from werkzeug.datastructures import Headers

from leasehold.domain.lifecycle import Operation
from leasehold.domain.status import RunStatus
from leasehold.domain.summary import summary_of
from leasehold.errors import InvalidRequestError
from leasehold.services.batch import MAX_LIMIT, batch
from leasehold.services.operate import AS_BEFORE, MAX_WORDS, OperationRequest, operate
from leasehold.services.read_runs import RunFilter
from leasehold.web.answers import answer
from leasehold.web.bodies import json_body
from leasehold.web.engine_provider import EngineProvider
from leasehold.web.fields import check_known, chosen, flag, labels, part, phrase, text, whole, word

#: Who asks, in this order: the one that Google signed in, the one that the caller names.
_SIGNED_IN: Final = "X-Goog-Authenticated-User-Email"
_NAMED: Final = "X-Leasehold-Actor"
_NOBODY: Final = "api"
_MAX_ACTOR: Final = 200

_OPERATION_FIELDS: Final = ("reason", "generation", "step")
_RECREATE_FIELDS: Final = (*_OPERATION_FIELDS, "fromStep", "input", "labels")
_BATCH_FIELDS: Final = ("action", "filter", "limit", "dryRun", "reason", "step", "fromStep")
_FILTER_FIELDS: Final = ("status", "pipeline", "deadLettered", "label")
_ACTIONS: Final = tuple(operation.value for operation in Operation)
_STATUSES: Final = tuple(status.value for status in RunStatus)

Body = Mapping[str, Any]


def answer_operation(
    operation: Operation, provider: EngineProvider, request: flask.Request, run_id: str
) -> flask.Response:
    """`POST /runs/{id}:pause` and so on: the summary of the run; of `:recreate`, of the new one.

    `generation` and `step` are those of the run that was looked at; another one is a 409. The
    same body once more, after an answer that was lost, gets the first answer.
    """
    body = json_body(request)
    recreates = operation is Operation.RECREATE
    check_known(body, _RECREATE_FIELDS if recreates else _OPERATION_FIELDS)
    change = operate(provider.engine, run_id, _asked(operation, request, body))
    return answer(summary_of(change.created or change.manifest))


def answer_batch(provider: EngineProvider, request: flask.Request) -> flask.Response:
    """`POST /runs:batch`: how many runs fit and were changed, and which were refused, and why."""
    body = json_body(request)
    check_known(body, _BATCH_FIELDS)
    operation = Operation(chosen(body, "action", _ACTIONS))
    if operation is not Operation.RECREATE and "fromStep" in body:
        allowed = "none, but for the action recreate"
        raise InvalidRequestError(field="fromStep", value=str(body["fromStep"]), allowed=allowed)
    done = batch(
        provider.engine,
        _asked(operation, request, body),
        _filter(part({"filter": {}, **body}, "filter", _FILTER_FIELDS)),
        limit=whole(body, "limit", 1, MAX_LIMIT),
        dry_run=flag(body, "dryRun"),
    )
    refused = [{"runId": run_id, "code": code} for run_id, code in done.refused]
    return answer({"matched": done.matched, "changed": done.changed, "refused": refused})


def _asked(operation: Operation, request: flask.Request, body: Body) -> OperationRequest:
    return OperationRequest(
        operation,
        actor_of(request.headers),
        phrase(body, "reason", MAX_WORDS),
        from_step=word(body, "fromStep") if "fromStep" in body else None,
        input=body.get("input", AS_BEFORE),
        labels=labels(body) if "labels" in body else None,
        generation=whole(body, "generation", 1) if "generation" in body else None,
        step=word(body, "step") if "step" in body else None,
    )


def _filter(found: Body) -> RunFilter:
    within = "filter."
    return RunFilter(
        status=chosen(found, "status", _STATUSES, within) if "status" in found else None,
        pipeline=text(found, "pipeline", within) if "pipeline" in found else None,
        dead_lettered=flag(found, "deadLettered", within) if "deadLettered" in found else None,
        label=text(found, "label", within) if "label" in found else None,
    )


def actor_of(headers: Headers) -> str:
    """Return who asks, for the trace.

    Google puts its header in the place of one that a caller sends; where nobody signs in, the
    trace has what the caller says.

    Raises:
        InvalidRequestError: the name is not one that a trace can show.
    """
    signed_in = _decoded(headers.get(_SIGNED_IN, "")).removeprefix("accounts.google.com:").strip()
    actor = signed_in or _decoded(headers.get(_NAMED, "")).strip() or _NOBODY
    if len(actor) > _MAX_ACTOR or not actor.isprintable():
        header = _SIGNED_IN if signed_in else _NAMED
        allowed = f"at most {_MAX_ACTOR} printable characters"
        raise InvalidRequestError(field=header, value=actor[:_MAX_ACTOR], allowed=allowed)
    return actor


def _decoded(header: str) -> str:
    """Return a header whose bytes are UTF-8, which WSGI gives as Latin-1; any other as it is."""
    try:
        return header.encode("latin-1").decode()
    except UnicodeError:
        return header
