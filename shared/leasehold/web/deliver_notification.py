"""The function deliver_notification: a message of Pub/Sub in, one announcement sent.

Any answer but 2xx has Pub/Sub come again, for a day. A message that cannot succeed later is
logged in one line and acknowledged; whatever the message was about has its own alarm.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import flask
from cloudevents.http import CloudEvent
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from leasehold.api.functions import EventBody, PushBody
from leasehold.domain.json_text import json_value
from leasehold.domain.printable import printable
from leasehold.domain.status import Termination
from leasehold.errors import InvalidRequestError, LeaseholdError, TooLargeError
from leasehold.logs.stderr_log import lines_of_request
from leasehold.services.deliver_notification import DeliveryHint, DeliveryOutcome, deliver
from leasehold.web.engine_provider import SHUTDOWN, EngineProvider
from leasehold.web.entry import entered, refuse

_LOG: Final = logging.getLogger("leasehold.deliver_notification")

#: A message says what happened, and never an output: it is far smaller.
MAX_MESSAGE_BYTES: Final = 64 * 1024

_MAX_LINE_CHARS: Final = 500


def answer_event(provider: EngineProvider, event: CloudEvent) -> None:
    """Do what a message says is due. To return is to acknowledge it.

    Raises:
        HTTPException: it is answered with 500, and has to come again.
    """
    with entered(provider, flask.request) as refused:
        if refused is not None:
            flask.abort(refused)
        if SHUTDOWN.shutdown_requested:
            _come_again(Termination.INSTANCE_SHUTDOWN, "This instance ends")
        try:
            hint = _hint_of(event.data)
        except LeaseholdError as error:
            _drop(error.message)
            return
        try:
            _deliver(provider, hint)
        finally:
            provider.end_call()


def answer_failure(error: Exception) -> Any:
    """Answer an error: the framework's refusals of other messages are acknowledged."""
    is_ours = isinstance(error, HTTPException) and error.response is not None
    if is_ours or isinstance(error, MethodNotAllowed):
        return error
    with lines_of_request(flask.request.headers.get):
        _drop(f"it is not an event of Pub/Sub ({type(error).__name__})")
    return "OK"


def _deliver(provider: EngineProvider, hint: DeliveryHint) -> None:
    about = f"{hint.run_id}:{hint.occurrence}:{hint.channel}"
    try:
        outcome = deliver(provider.engine, hint)
    except LeaseholdError as error:
        if error.retryable:
            _LOG.warning("delivery %s comes again: %s", about, error)
            _come_again(error.code, "The delivery could not be looked after")
        _drop(f"delivery {about}: {error.message}")
    except Exception:  # noqa: BLE001 - logged whole; the message comes again
        _LOG.exception("delivery %s comes again", about)
        _come_again("internal", "Something failed here")
    else:
        if outcome is DeliveryOutcome.UNKNOWN:
            _drop(f"delivery {about} is not known")


def _hint_of(data: Any) -> DeliveryHint:
    """Return what the message of an event says.

    Raises:
        TooLargeError, InvalidRequestError: it is not one of ours.
    """
    message = PushBody.read(_bounded(data)).message
    facts = EventBody.read(_object(message.data)).data
    return DeliveryHint(facts.run_id, facts.occurrence, facts.channel)


def _bounded(data: Any) -> Mapping[str, Any]:
    """Return what an event holds, if its message is not larger than any of ours."""
    if not isinstance(data, dict):
        raise _refused(type(data).__name__, "{'message': …}, as Pub/Sub pushes it")
    message = data.get("message")
    text = message.get("data") if isinstance(message, dict) else None
    if isinstance(text, str) and len(text) > MAX_MESSAGE_BYTES:
        raise TooLargeError(what="the message", size=len(text), limit=MAX_MESSAGE_BYTES)
    return data


def _object(text: bytes) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = json_value(text, is_object=True)
    except ValueError as error:
        raise _refused(str(error)[:200], "a JSON object") from None
    return found


def _refused(value: str, allowed: str) -> InvalidRequestError:
    return InvalidRequestError(field="message", value=value, allowed=allowed)


def _drop(problem: str) -> None:
    """Say in one line why a message is acknowledged that nothing was done for."""
    _LOG.warning("a message is dropped: %s", printable(problem)[:_MAX_LINE_CHARS])


def _come_again(code: str, why: str) -> NoReturn:
    flask.abort(refuse(500, code, f"{why}; the message comes again."))
