"""The runs API behind a real socket, in this process, over an engine of the test's own."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import flask
from werkzeug.serving import WSGIRequestHandler, make_server

from leasehold.api.call_row import Answer, CallRequest, CallRow, Given
from leasehold.services.engine import Engine
from leasehold.web.serve_api import answer_api
from tests.worlds.serving import while_serving


class Quiet(WSGIRequestHandler):
    """Logs no requests: stderr is that of the command."""

    def log_request(self, *_: object) -> None:
        """Say nothing."""


@dataclass(frozen=True)
class OpenEngine:
    """An engine that is open, as answers take it."""

    engine: Engine
    callers: None = None

    def end_call(self) -> None:
        """Do nothing."""

    def answer(self, row: CallRow[Given, Answer], request: CallRequest[Given]) -> Answer:
        return row.answer(self.engine, request)


@contextlib.contextmanager
def runs_api(engine: Engine, losing: list[str] | None = None, port: int = 0) -> Iterator[str]:
    """Serve the runs API of an engine while inside; give its address.

    Args:
        engine: what answers.
        losing: the paths to which the server loses its next answer, once it has done its work.
        port: 0: a free one.
    """
    app, provider = flask.Flask(__name__), OpenEngine(engine)
    lost = [] if losing is None else losing

    @app.route("/<path:_>", methods=["GET", "POST"])
    def answer(_: str) -> flask.Response:
        answer = answer_api(provider, flask.request)
        if flask.request.path in lost:
            lost.remove(flask.request.path)
            flask.request.environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        return answer

    server = make_server("127.0.0.1", port, app, threaded=True, request_handler=Quiet)
    with while_serving(server):
        yield f"http://127.0.0.1:{server.server_port}"
