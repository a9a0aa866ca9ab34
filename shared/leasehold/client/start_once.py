"""A start that is one start: whose answer was lost, it is asked for again with the same key."""

from __future__ import annotations

import secrets
import time

from leasehold.api import calls
from leasehold.api.call_row import CallRequest, Created
from leasehold.api.runs import StartBody
from leasehold.client.connection import Connection
from leasehold.client.patience import ASK_AGAIN_S, Patience
from leasehold.domain.summary import Summary
from leasehold.errors import LeaseholdError


def start_once(connection: Connection, body: StartBody) -> Created[Summary]:
    """Start the run, or find the one that the key started before.

    A request without an idempotency key gets one, so that it can be made again. It is, for a
    while, where the answer was lost: then no one else could know whether there is a run.

    Raises:
        ServerUnreachableError, StoreUnavailableError: it may be started or not; a note has the key
            to start it with once more.
    """
    key = body.idempotency_key or f"client-{secrets.token_hex(8)}"
    request = CallRequest(body.model_copy(update={"idempotency_key": key}))
    patience = Patience()
    while True:
        try:
            begun = connection.call(calls.start, request)
        except LeaseholdError as error:
            _raise_unless_retried(error, patience, key)
        else:
            return begun._replace(is_new=begun.is_new or body.idempotency_key is None)
        time.sleep(ASK_AGAIN_S)


def _raise_unless_retried(error: LeaseholdError, patience: Patience, key: str) -> None:
    if error.details.get("sent") is False:  # nothing was started, and whoever asks may be told so
        raise error
    try:
        patience.tolerate(error)
    except LeaseholdError:
        if error.retryable:
            error.add_note(f"The same start with the idempotency key {key!r} begins no second run.")
        raise
