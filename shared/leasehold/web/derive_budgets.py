"""The function derive_budgets: one derivation, and what became of it."""

from __future__ import annotations

from typing import Final

import flask

from leasehold.api.functions import DerivationResponse
from leasehold.registry.function_table import FUNCTIONS
from leasehold.services.derive_budgets import derive_and_report
from leasehold.web.engine_provider import EngineProvider
from leasehold.web.entry import entry, refuse_method, respond

#: Steps whose turn has not come by then are the first of the next call: a step may take some 25 s
#: where what it asks is slow, and what is under way has the rest of the function's time.
_TIME: Final = FUNCTIONS["derive_budgets"].timeout * 0.8


@entry
def answer_derivation(provider: EngineProvider, request: flask.Request) -> flask.Response:
    """Derive once; what changed is logged too, because Cloud Scheduler reads no answer."""
    if request.method != "POST":
        return refuse_method("derive_budgets", "POST")
    engine = provider.engine
    ends_at = engine.clock.monotonic() + _TIME.total_seconds()
    found = derive_and_report(engine, lambda: engine.clock.monotonic() > ends_at)
    return respond(
        DerivationResponse(
            derived=sum(one.budget is not None for one in found),
            changed=[one.step_type for one in found if one.has_changed],
            problems={one.step_type: one.problem for one in found if one.problem},
        )
    )
