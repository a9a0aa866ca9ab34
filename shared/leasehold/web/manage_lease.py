"""The function manage_lease: the table of calls for remote workers, as HTTP has it."""

from __future__ import annotations

from typing import Final

import flask

from leasehold.remote_workers.calls import LEASE_CALLS
from leasehold.web.entry import entry
from leasehold.web.routes import EngineSource, Routes

ROUTES: Final = Routes(LEASE_CALLS)


@entry
def answer_lease(source: EngineSource, request: flask.Request) -> flask.Response:
    """Answer a call of a remote worker."""
    return ROUTES.answer(source, request)
