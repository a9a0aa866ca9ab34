"""What `sweep_dead_letters` answers: how many runs it found and what it did about them."""

from __future__ import annotations

import flask

from leasehold.services.sweep import sweep
from leasehold.web.answers import answer, guarded, refusal
from leasehold.web.bodies import drops_rest
from leasehold.web.engine_provider import EngineProvider


@drops_rest
def answer_sweep(provider: EngineProvider, request: flask.Request) -> flask.Response:
    """Sweep once; what was done is logged too, because Cloud Scheduler reads no answer."""
    if request.method != "POST":
        return refusal(405, "method_not_allowed", "sweep_dead_letters takes POST.")
    return guarded(lambda: _swept(provider))


def _swept(provider: EngineProvider) -> flask.Response:
    return answer(sweep(provider.engine, report=True).counts())
