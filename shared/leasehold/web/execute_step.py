"""What `execute_step` answers: a task in, the outcome of one attempt out."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import flask

from leasehold.domain.manifest import is_run_id
from leasehold.domain.status import Outcome, Termination
from leasehold.errors import InvalidRequestError, LeaseholdError
from leasehold.services.execute_step import Hint, execute_step
from leasehold.web.answers import answer, refusal, refusal_of
from leasehold.web.bodies import drops_rest, json_body
from leasehold.web.engine_provider import SHUTDOWN, EngineProvider

_LOG: Final = logging.getLogger("leasehold.execute_step")


@drops_rest
def answer_task(provider: EngineProvider, request: flask.Request) -> flask.Response:
    """Run the attempt that the task names.

    2xx ends the task: what was decided is committed and what it owes is enqueued. Anything else
    has Cloud Tasks come again; never 429 or 503, which would throttle the whole queue.
    """
    if request.method != "POST":
        return refusal(405, "method_not_allowed", "execute_step takes POST.")
    if SHUTDOWN.shutdown_requested:
        return refusal(
            500, Termination.INSTANCE_SHUTDOWN, "This instance ends; the task comes again."
        )
    try:
        hint = hint_of(json_body(request))
    except LeaseholdError as error:
        return _rejected(request, error)
    try:
        outcome = execute_step(provider.engine, hint)
    except Exception as error:  # noqa: BLE001 - logged whole; the task comes again
        _LOG.exception("run %s could not be worked on", hint.run_id)
        code = error.code if isinstance(error, LeaseholdError) else "internal"
        return refusal(500, code, "Nothing could be committed; the task comes again.")
    if outcome is Outcome.REJECTED:
        facts = {"run_id": hint.run_id, "generation": hint.generation}
        return _rejected(request, InvalidRequestError(field="task", value=facts, allowed=_KNOWN))
    return answer({"outcome": outcome.word})


_KNOWN: Final = "a run that is there, and a generation it has had"


def hint_of(body: Mapping[str, Any]) -> Hint:
    """Return the hint of a task's body, `{"runId", "generation"}`.

    Raises:
        InvalidRequestError: a field is missing or odd.
    """
    run_id, generation = body.get("runId"), body.get("generation")
    if not isinstance(run_id, str) or not is_run_id(run_id):
        raise InvalidRequestError(field="runId", value=str(run_id)[:200], allowed="the id of a run")
    if not isinstance(generation, int) or isinstance(generation, bool) or generation < 1:
        allowed = "a whole number from 1"
        raise InvalidRequestError(field="generation", value=str(generation)[:200], allowed=allowed)
    return Hint(run_id, generation)


def _rejected(request: flask.Request, error: LeaseholdError) -> flask.Response:
    """Cloud Tasks would bring a malformed task again and again; anybody else is told."""
    _LOG.warning("task rejected: %s", error)
    if "X-CloudTasks-QueueName" in request.headers:
        return answer({"outcome": Outcome.REJECTED.value, "reason": error.message})
    answered = refusal_of(error)
    answered.status_code = 413 if error.code == "too_large" else 400
    return answered
