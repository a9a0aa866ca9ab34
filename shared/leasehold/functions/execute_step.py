"""Cloud Function execute-step: runs one attempt of one step.

Called by: Cloud Tasks, one queue a step type, with an OIDC token.
Body:      {"runId", "generation"}.
Answers:   200 {"outcome"}: what was decided is committed and what it owes is enqueued.
           400 the body is malformed (200 "rejected" for Cloud Tasks, which would retry it).
           401, 403 the caller is not one of LEASEHOLD_CALLERS.
           500 it could not be committed, or what it owes not enqueued: Cloud Tasks retries.
Settings:  docs/settings.md.
Story:     leasehold.services.execute_step.
"""

import flask
import functions_framework

from leasehold.web.engine_provider import EngineProvider
from leasehold.web.execute_step import answer_task

provider = EngineProvider()  # a wrong setting or catalog fails here, at cold start


@functions_framework.http
def execute_step(request: flask.Request) -> flask.Response:
    """Run the attempt that the task names."""
    return answer_task(provider, request)
