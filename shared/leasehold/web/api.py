"""The runs API: a table of routes, each a few lines over a service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import flask
from werkzeug.exceptions import HTTPException, MethodNotAllowed
from werkzeug.routing import BaseConverter, Map, Rule

from leasehold.domain.lifecycle import Operation
from leasehold.domain.status import Outcome, RunStatus
from leasehold.domain.summary import summary_of
from leasehold.errors import InvalidRequestError
from leasehold.services.read_runs import RunFilter, list_runs, read_run, read_timeline
from leasehold.services.registry_report import registry_report
from leasehold.services.start_run import StartRequest, start_run
from leasehold.web.answers import answer, guarded, refusal
from leasehold.web.bodies import drops_rest, json_body
from leasehold.web.engine_provider import EngineProvider
from leasehold.web.fields import check_known, labels
from leasehold.web.operations import answer_batch, answer_operation

MAX_LIMIT: Final = 500
_START_FIELDS: Final = ("pipeline", "input", "idempotencyKey", "labels")
_LIST_FIELDS: Final = ("status", "pipeline", "deadLettered", "label", "limit", "pageToken")


class _RunId(BaseConverter):
    """A part of a path that ends where an operation is named: `/runs/{id}:pause`."""

    regex = "[^/:]+"
    part_isolating = True


_ROUTES: Final = Map(
    [
        Rule("/runs", methods=["POST"], endpoint="start"),
        Rule("/runs", methods=["GET"], endpoint="list"),
        Rule("/runs/<run_id>", methods=["GET"], endpoint="show"),
        Rule("/runs/<run_id>/trace", methods=["GET"], endpoint="trace"),
        *(Rule(f"/runs/<run_id>:{it}", methods=["POST"], endpoint=it.value) for it in Operation),
        Rule("/runs:batch", methods=["POST"], endpoint="batch"),
        Rule("/registry", methods=["GET"], endpoint="registry"),
        Rule("/health", methods=["GET"], endpoint="health"),
    ],
    strict_slashes=False,
    converters={"default": _RunId},
)


@drops_rest
def answer_api(provider: EngineProvider, request: flask.Request) -> flask.Response:
    """Answer a request to the runs API."""
    try:
        endpoint, values = _ROUTES.bind_to_environ(request.environ).match()
    except MethodNotAllowed as error:
        allowed = ", ".join(sorted(set(error.valid_methods or ()) - {"HEAD"}))
        refused = refusal(405, "method_not_allowed", f"{request.path} takes {allowed}.")
        refused.headers["Allow"] = allowed
        return refused
    except HTTPException:
        known = ", ".join(sorted({rule.rule for rule in _ROUTES.iter_rules()}))
        return refusal(404, "not_found", f"{request.path} is not served here; known: {known}.")
    return guarded(lambda: _ANSWERS[endpoint](provider, request, **values))


def start(provider: EngineProvider, request: flask.Request) -> flask.Response:
    """`POST /runs`: 201 with the summary, 200 with that of the run the key started before."""
    change = start_run(provider.engine, start_request(json_body(request)))
    status = 201 if change.outcome is Outcome.STARTED else 200
    return answer(summary_of(change.manifest), status)


def start_request(body: Mapping[str, Any]) -> StartRequest:
    """Return the request of a body, or raise InvalidRequestError that names the field."""
    check_known(body, _START_FIELDS)
    pipeline = body.get("pipeline")
    if not isinstance(pipeline, str):
        raise InvalidRequestError(field="pipeline", value=pipeline, allowed="the name of one")
    key = body.get("idempotencyKey")
    if key is not None and not isinstance(key, str):
        raise InvalidRequestError(field="idempotencyKey", value=key, allowed="a string")
    labelled = labels(body) if body.get("labels") else {}
    return StartRequest(pipeline, body.get("input", {}), key, labelled)


def list_(provider: EngineProvider, request: flask.Request) -> flask.Response:
    """`GET /runs`: the summaries of a page, newest first."""
    asked = request.args
    check_known(asked, _LIST_FIELDS)
    for name, given in asked.lists():
        if len(given) > 1:  # which of them is meant?
            raise InvalidRequestError(field=name, value=", ".join(given)[:200], allowed="one value")
    wanted = RunFilter(
        status=_one_of("status", asked.get("status"), [s.value for s in RunStatus]),
        pipeline=asked.get("pipeline"),
        dead_lettered=_flag("deadLettered", asked.get("deadLettered")),
        label=asked.get("label"),
    )
    limit = _limit(asked.get("limit", "50"))
    page = list_runs(provider.engine, wanted, limit=limit, page_token=asked.get("pageToken"))
    runs = [summary_of(run) for run in page.runs]
    return answer({"runs": runs, "nextPageToken": page.next_page_token})


def show(provider: EngineProvider, request: flask.Request, run_id: str) -> flask.Response:  # noqa: ARG001
    """`GET /runs/{id}`: the manifest."""
    return answer(read_run(provider.engine, run_id))


def trace(provider: EngineProvider, request: flask.Request, run_id: str) -> flask.Response:  # noqa: ARG001
    """`GET /runs/{id}/trace`: the whole timeline, oldest first."""
    events = read_timeline(provider.engine, run_id)
    return answer({"events": [event.model_dump(exclude_none=True) for event in events]})


def registry(provider: EngineProvider, request: flask.Request) -> flask.Response:  # noqa: ARG001
    """`GET /registry`: what is in force per step type, with the source of each value."""
    return answer(registry_report(provider.engine))


def health(provider: EngineProvider, request: flask.Request) -> flask.Response:  # noqa: ARG001
    """`GET /health`: the function runs; whether its store answers, other requests tell."""
    return answer({"status": "ok"})


_ANSWERS: Final[Mapping[str, Callable[..., flask.Response]]] = {
    "start": start,
    "list": list_,
    "show": show,
    "trace": trace,
    **{operation.value: partial(answer_operation, operation) for operation in Operation},
    "batch": answer_batch,
    "registry": registry,
    "health": health,
}


def _one_of(field: str, value: str | None, known: list[str]) -> str | None:
    if value is not None and value not in known:
        raise InvalidRequestError(field=field, value=value, allowed=", ".join(known))
    return value


def _flag(field: str, value: str | None) -> bool | None:
    found = _one_of(field, value, ["true", "false"])
    return None if found is None else found == "true"


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:6]) <= MAX_LIMIT):
        allowed = f"a whole number from 1 to {MAX_LIMIT}"
        raise InvalidRequestError(field="limit", value=text[:50], allowed=allowed)
    return int(text)
