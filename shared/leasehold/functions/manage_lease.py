"""Cloud Function manage-lease: steps for remote workers, under leases.

Called by: workers on any machine, in any language (docs/remote-workers.md).
Routes:    POST /leases:claim · :acquire · :renew · :checkpoint · :complete · :fail · :release.
Answers:   200, or {"error": {"code", "message", "details"}} with 400, 401, 403, 404,
           405, 409, 413, 415, 503.
           404 nothing_to_claim: claim again later. 409 lease_lost: stop, the step is another's.
Settings:  docs/settings.md.
Story:     leasehold.remote_workers.claim_step, leasehold.remote_workers.manage_lease.
"""

import flask
import functions_framework

from leasehold.web.engine_provider import EngineProvider
from leasehold.web.manage_lease import answer_lease

provider = EngineProvider()  # a wrong setting or catalog fails here, at cold start


@functions_framework.http
def manage_lease(request: flask.Request) -> flask.Response:
    """Answer one request."""
    return answer_lease(provider, request)
