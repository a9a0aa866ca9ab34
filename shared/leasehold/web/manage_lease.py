"""What `manage_lease` answers: a table of calls, each a few lines over a service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import flask
import pydantic_core

from leasehold.domain.change import Change
from leasehold.domain.json_text import OUTPUT_BYTES
from leasehold.domain.lease import Fence
from leasehold.domain.manifest import ErrorRecord, Lease, Progress
from leasehold.domain.result import OUTPUT_STATUSES
from leasehold.errors import LeaseHeldError, NothingToClaimError
from leasehold.services.claim_step import ClaimedStep, acquire_run, claim_step
from leasehold.services.engine import Engine
from leasehold.services.manage_lease import (
    LeaseCredentials,
    complete_step,
    fail_step,
    release_step,
    renew_lease,
    save_checkpoint,
)
from leasehold.web.answers import answer, guarded, refusal, refusal_of
from leasehold.web.bodies import drops_rest, json_body
from leasehold.web.engine_provider import EngineProvider
from leasehold.web.fields import (
    check_known,
    flag,
    json_text,
    one_of,
    part,
    share,
    text,
    whole,
    word,
)
from leasehold.worker.failures import record_of_report

#: A body may hold the largest output, and what stands around it.
BODY_BYTES: Final = OUTPUT_BYTES + 64 * 1024

_SHOWN: Final = ("runId", "leaseId", "fencingToken")
_MAX_WORD: Final = 200

Body = Mapping[str, Any]


@drops_rest
def answer_lease(provider: EngineProvider, request: flask.Request) -> flask.Response:
    """Answer a call of a worker that runs elsewhere."""
    asked = _ANSWERS.get(request.path)
    if asked is None:
        known = ", ".join(_ANSWERS)
        return refusal(404, "not_found", f"{request.path} is not served here; known: {known}.")
    if request.method != "POST":
        refused = refusal(405, "method_not_allowed", f"{request.path} takes POST.")
        refused.headers["Allow"] = "POST"
        return refused
    return guarded(lambda: asked(provider.engine, json_body(request, BODY_BYTES)))


def claim(engine: Engine, body: Body) -> flask.Response:
    """`POST /leases:claim`: the step of a type that waits longest."""
    check_known(body, ("stepType", "holder"))
    step_type, holder = word(body, "stepType"), word(body, "holder")
    return _given(lambda: claim_step(engine, step_type, holder))


def acquire(engine: Engine, body: Body) -> flask.Response:
    """`POST /leases:acquire`: the current step of one run."""
    check_known(body, ("runId", "holder"))
    run_id, holder = text(body, "runId"), word(body, "holder")
    return _given(lambda: acquire_run(engine, run_id, holder))


def renew(engine: Engine, body: Body) -> flask.Response:
    """`POST /leases:renew`: until when the lease runs now, and at most."""
    shown = _shown(body, "progress")
    change = renew_lease(engine, shown, _progress(body) if "progress" in body else None)
    lease = _lease(change)
    return answer({"expiresAt": lease.expires_at, "maxExpiresAt": lease.max_expires_at})


def checkpoint(engine: Engine, body: Body) -> flask.Response:
    """`POST /leases:checkpoint`: what there is so far is kept; until when the lease runs now."""
    shown = _shown(body, "iterationCount", "partialResults", "phase")
    change = save_checkpoint(
        engine,
        shown,
        iteration_count=whole(body, "iterationCount", 0),
        phase=word(body, "phase") if body.get("phase", "") != "" else "",
        partial_results=json_text(body, "partialResults"),
    )
    return answer({"expiresAt": _lease(change).expires_at})


def complete(engine: Engine, body: Body) -> flask.Response:
    """`POST /leases:complete`: the output is recorded, and the run moves on."""
    shown = _shown(body, "output", "status")
    status = one_of(body, "status", OUTPUT_STATUSES)
    return _outcome(complete_step(engine, shown, json_text(body, "output"), status))


def fail(engine: Engine, body: Body) -> flask.Response:
    """`POST /leases:fail`: the error is recorded, and the step is tried again or given up."""
    shown = _shown(body, "error", "permanent")
    error, permanent = _error(body), flag(body, "permanent")
    return _outcome(fail_step(engine, shown, error, permanent=permanent))


def release(engine: Engine, body: Body) -> flask.Response:
    """`POST /leases:release`: the lease is given back, for another worker to go on."""
    return _outcome(release_step(engine, _shown(body)))


_ANSWERS: Final[Mapping[str, Callable[[Engine, Body], flask.Response]]] = {
    "/leases:claim": claim,
    "/leases:acquire": acquire,
    "/leases:renew": renew,
    "/leases:checkpoint": checkpoint,
    "/leases:complete": complete,
    "/leases:fail": fail,
    "/leases:release": release,
}


def _given(call: Callable[[], ClaimedStep]) -> flask.Response:
    """Answer with the step that was claimed; that there is none is what most claims are told."""
    try:
        claimed = call()
    except (LeaseHeldError, NothingToClaimError) as error:
        return refusal_of(error)
    run, lease = claimed.manifest, claimed.manifest.lease
    assert lease is not None  # noqa: S101 - it was just given
    return answer(
        {
            "runId": run.run_id,
            "stepType": run.current_step,
            "attempt": run.attempt,
            "trial": run.trial,
            "leaseId": lease.lease_id,
            "fencingToken": run.fencing_token,
            "expiresAt": lease.expires_at,
            "maxExpiresAt": lease.max_expires_at,
            "heartbeatS": run.dispatch.heartbeat_s,
            "timeoutMs": run.dispatch.timeout_ms,
            "given": pydantic_core.from_json(claimed.given),
            "resume": _resume(claimed),
        }
    )


def _resume(claimed: ClaimedStep) -> Body | None:
    kept = claimed.manifest.checkpoint
    if kept is None or claimed.partial_results is None:
        return None
    return {
        "phase": kept.phase,
        "iterationCount": kept.iteration_count,
        "partialResults": pydantic_core.from_json(claimed.partial_results),
    }


def _shown(body: Body, *further: str) -> LeaseCredentials:
    check_known(body, (*_SHOWN, *further))
    run_id, lease_id = text(body, "runId"), word(body, "leaseId")
    return LeaseCredentials(run_id, Fence(lease_id, whole(body, "fencingToken", 1)))


def _progress(body: Body) -> Progress:
    said = part(body, "progress", ("fraction", "message"))
    words = text(said, "message", "progress.") if said.get("message", "") != "" else ""
    return Progress(fraction=share(said, "fraction", "progress."), message=words[:_MAX_WORD])


def _error(body: Body) -> ErrorRecord:
    """Return the error as it is kept: bounded and without secrets, as one of a handler is."""
    said = part(body, "error", ("message", "code", "type", "details"))
    given = {"code": "remote_error", "type": "RemoteError", **said}
    if "details" in said:
        json_text(said, "details", "error.")  # it must be JSON that can be kept
    return record_of_report(
        word(given, "type", within="error."),
        word(given, "code", within="error."),
        text(said, "message", "error."),
        said.get("details"),
    )


def _lease(change: Change) -> Lease:
    assert change.manifest.lease is not None  # noqa: S101 - what renews a lease has one
    return change.manifest.lease


def _outcome(change: Change) -> flask.Response:
    return answer({"outcome": change.outcome})
