"""Cloud Function serve-api: the runs API.

Called by: people and programs.
Calls:     leasehold.api.calls.CALLS: /runs, each run, its outputs, files and operations,
           /runs:batch, /registry, /health. docs/http-api.md describes them.
Shapes:    leasehold.api.
Answers:   2xx, or {"error": {"code", "message", "details"}} with 400, 401, 403, 404,
           405, 409, 410, 413, 415, 503.
Settings:  docs/settings.md.
Story:     leasehold.services: start_run, read_runs, read_results, operate, batch.
"""

import flask
import functions_framework

from leasehold.web.engine_provider import EngineProvider
from leasehold.web.serve_api import answer_api

provider = EngineProvider()  # a wrong setting or catalog fails here, at cold start


@functions_framework.http
def serve_api(request: flask.Request) -> flask.Response:
    """Answer one request."""
    return answer_api(provider, request)
