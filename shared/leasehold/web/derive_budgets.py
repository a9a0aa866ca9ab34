"""The function derive_budgets: one derivation, and what became of it."""

from __future__ import annotations

import flask

from leasehold.api.functions import DerivationResponse
from leasehold.services.derive_budgets import derive_and_report
from leasehold.web.engine_provider import EngineProvider
from leasehold.web.entry import entry, refuse_method, respond


@entry
def answer_derivation(provider: EngineProvider, request: flask.Request) -> flask.Response:
    """Derive once; what changed is logged too, because Cloud Scheduler reads no answer."""
    if request.method != "POST":
        return refuse_method("derive_budgets", "POST")
    found = derive_and_report(provider.engine)
    return respond(
        DerivationResponse(
            derived=sum(one.budget is not None for one in found),
            changed=[one.step_type for one in found if one.has_changed],
            problems={one.step_type: one.problem for one in found if one.problem},
        )
    )
