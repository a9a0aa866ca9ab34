"""The function execute_step: a task in, the outcome of one attempt out."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import Final

import flask

from leasehold.api.functions import OutcomeResponse, TaskBody
from leasehold.domain.status import Outcome, Termination
from leasehold.errors import InvalidRequestError, LeaseholdError
from leasehold.services.execute_step import Hint, execute_step
from leasehold.web.engine_provider import SHUTDOWN, EngineProvider
from leasehold.web.entry import entry, json_body, refuse, refuse_for, refuse_method, respond
from leasehold.worker.stopping.system_signals import SERVER_EXIT

_LOG: Final = logging.getLogger("leasehold.execute_step")

_OF_QUEUE: Final = "X-CloudTasks-QueueName"
_OF_TASK: Final = "X-CloudTasks-TaskName"


@entry
def answer_task(provider: EngineProvider, request: flask.Request) -> flask.Response:
    """Run the attempt that the task names, and the next steps that fit into what is left of it.

    2xx ends the task: what was decided is committed and what it owes is enqueued. Anything else
    makes Cloud Tasks deliver it again; never 429 or 503, which would throttle the whole queue.
    """
    if request.method != "POST":
        return refuse_method("execute_step", "POST")
    if SHUTDOWN.shutdown_requested:
        return refuse(
            500, Termination.INSTANCE_SHUTDOWN, "This instance ends; the task comes again."
        )
    try:
        task = TaskBody.read(json_body(request))
    except LeaseholdError as error:
        return _rejected(request, error)
    hint = Hint(task.run_id, task.generation)
    try:
        provider.note_presence()
        engine = provider.engine
        if _OF_TASK not in request.headers:  # how long another caller waits is not known
            engine = replace(engine, process=replace(engine.process, may_continue=bool))  # False
        outcome = SERVER_EXIT.held_back(partial(execute_step, engine, hint))
    except Exception as error:  # noqa: BLE001 - logged whole, but for an outage; the task comes again
        if isinstance(error, LeaseholdError) and error.retryable:
            _LOG.warning("run %s could not be worked on: %s", hint.run_id, error)
        else:
            _LOG.exception("run %s could not be worked on", hint.run_id)
        code = error.code if isinstance(error, LeaseholdError) else "internal"
        return refuse(500, code, _COMES_AGAIN)
    return _answer(request, hint, outcome)


def _answer(request: flask.Request, hint: Hint, outcome: Outcome) -> flask.Response:
    if outcome is Outcome.STEP_UNKNOWN:
        return refuse(500, outcome, "Another version may know the step; the task comes again.")
    if outcome is Outcome.REJECTED:
        facts = {"run_id": hint.run_id, "generation": hint.generation}
        return _rejected(request, InvalidRequestError(field="task", value=facts, allowed=_KNOWN))
    return respond(OutcomeResponse(outcome=outcome.word), exclude_none=True)


_COMES_AGAIN: Final = "Not all could be committed and enqueued; the task comes again."
_KNOWN: Final = "a run that is there, and a generation it has had"


def _rejected(request: flask.Request, error: LeaseholdError) -> flask.Response:
    """Answer 2xx to Cloud Tasks, which would deliver a malformed task forever; else 4xx."""
    _LOG.warning("task rejected: %s", error)
    if _OF_QUEUE in request.headers:
        return respond(OutcomeResponse(outcome=Outcome.REJECTED.value, reason=error.message))
    refused = refuse_for(error)
    if refused.status_code not in (413, 415):
        refused.status_code = 400
    return refused
