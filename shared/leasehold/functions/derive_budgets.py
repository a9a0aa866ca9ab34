"""Cloud Function derive-budgets: derives the limits of steps from what their attempts took.

Called by: Cloud Scheduler, every hour, with an OIDC token.
Body:      none.
Answers:   200 {"derived", "changed", "problems"}.
           401, 403 the caller is not one of LEASEHOLD_CALLERS.
           A store that does not answer is a problem of each step: the next tick comes anyway.
Settings:  docs/settings.md.
Story:     leasehold.services.derive_budgets.
"""

import flask
import functions_framework

from leasehold.web.derive_budgets import answer_derivation
from leasehold.web.engine_provider import EngineProvider

provider = EngineProvider()  # a wrong setting or catalog fails here, at cold start


@functions_framework.http
def derive_budgets(request: flask.Request) -> flask.Response:
    """Derive the budgets once."""
    return answer_derivation(provider, request)
