"""What `sweep_dead_letters` answers: how many runs it found and what it did about them."""

from __future__ import annotations

import flask

from leasehold.services.sweep import sweep
from leasehold.web.answers import answer, guarded, refusal
from leasehold.web.bodies import drops_rest
from leasehold.web.opening import Opening


@drops_rest
def answer_sweep(opening: Opening, request: flask.Request) -> flask.Response:
    """Sweep once; Scheduler comes again, and sooner where more is due."""
    if request.method != "POST":
        return refusal(405, "method_not_allowed", "sweep_dead_letters takes POST.")
    return guarded(lambda: _swept(opening))


def _swept(opening: Opening) -> flask.Response:
    swept = sweep(opening.engine)
    return answer(
        {
            "deadLettered": swept.dead_lettered,
            "byReason": swept.by_reason,
            "recovered": swept.recovered,
            "redispatched": swept.redispatched,
            "reannounced": 0,
            "archived": 0,
            "documentsRead": swept.documents_read,
            "more": swept.more,
        }
    )
