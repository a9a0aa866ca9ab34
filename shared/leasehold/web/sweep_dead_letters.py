"""The function sweep_dead_letters: one sweep, and the counts of what it did."""

from __future__ import annotations

import flask

from leasehold.api.functions import SweepResponse
from leasehold.registry.settings import ON_CLOUD_RUN
from leasehold.services.adopt_runs import look_at_blocked
from leasehold.services.sweep import Report, sweep
from leasehold.web.engine_provider import EngineProvider
from leasehold.web.entry import entry, refuse_method, respond


@entry
def answer_sweep(provider: EngineProvider, request: flask.Request) -> flask.Response:
    """Sweep once; what was done is logged too, because Cloud Scheduler reads no answer."""
    if request.method != "POST":
        return refuse_method("sweep_dead_letters", "POST")
    if not provider.has_looked:
        look_at_blocked(provider.engine)
        provider.has_looked = True
    report = Report.ALWAYS if ON_CLOUD_RUN in provider.environ else Report.IF_DUE
    return respond(SweepResponse.model_validate(sweep(provider.engine, report=report).counts()))
