"""The function serve_api: the table of calls of the runs API, as HTTP has it."""

from __future__ import annotations

from operator import attrgetter
from typing import Final

import flask

from leasehold.api.calls import CALLS
from leasehold.web.entry import entry
from leasehold.web.routes import EngineSource, Routes

ROUTES: Final = Routes(sorted(CALLS, key=attrgetter("path")), has_pages=True)


@entry
def answer_api(source: EngineSource, request: flask.Request) -> flask.Response:
    """Answer a request to the runs API."""
    return ROUTES.answer(source, request)
