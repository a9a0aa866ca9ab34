"""A start that is one start: whose answer was lost, it is asked for again with the same key."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace

from leasehold.client.patience import ASK_AGAIN_S, Patience
from leasehold.client.source import Source
from leasehold.domain.summary import Summary
from leasehold.errors import LeaseholdError
from leasehold.services.start_run import StartRequest


def start_once(source: Source, request: StartRequest) -> tuple[bool, Summary]:
    """Start the run, or find the one that the key started before; return whether it is new, and it.

    A request without an idempotency key gets one, so that it can be made again. It is, for a
    while, where the answer was lost: then nobody else could know whether there is a run.

    Raises:
        ServerUnreachableError, StoreUnavailableError: it may be started or not; a note has the key
            to start it with once more.
    """
    key = request.idempotency_key or f"client-{secrets.token_hex(8)}"
    patience = Patience()
    while True:
        try:
            is_new, run = source.start(replace(request, idempotency_key=key))
        except LeaseholdError as error:
            _raise_unless_retried(error, patience, key)
        else:
            return is_new or request.idempotency_key is None, run
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
