"""Cloud Function sweep-dead-letters: looks at each run whose alarm is due.

Called by: Cloud Scheduler, every minute, with an OIDC token.
Body:      none.
Answers:   200 {"deadLettered", "recovered", "redispatched", "documentsRead", "more", …}.
           401, 403 the caller is not one of LEASEHOLD_CALLERS.
           503 the store or the queue does not answer: the next tick comes anyway.
Settings:  docs/settings.md.
Story:     leasehold.services.sweep.
"""

import flask
import functions_framework

from leasehold.web.engine_provider import EngineProvider
from leasehold.web.sweep_dead_letters import answer_sweep

provider = EngineProvider()  # a wrong setting or catalog fails here, at cold start


@functions_framework.http
def sweep_dead_letters(request: flask.Request) -> flask.Response:
    """Sweep once."""
    return answer_sweep(provider, request)
