"""Cloud Run before the functions: it asks for a token, and passes on what it lets in."""

from __future__ import annotations

import contextlib
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field

import flask
from werkzeug.serving import make_server

from tests.worlds.runs_api import Quiet
from tests.worlds.serving import while_serving

TOKEN = "a-token-of-an-account"  # noqa: S105 - of this test
BY_TOKEN = {"LEASEHOLD_IDENTITY_TOKEN": TOKEN}


@dataclass
class CloudRun:
    """What it does.

    Args:
        api: the address of the runs API; empty: serve-api is away.

    Attributes:
        public: the services that any caller may call.
        unasked: those without a check by IAM, which refuse strangers themselves.
        not_yet: to how many calls with a token it still refuses.
        moved: where it sends who is let in; empty: nowhere.
        url: for LEASEHOLD_FUNCTIONS_EMULATOR.
        called: each call that was let in.
    """

    api: str = ""
    public: set[str] = field(default_factory=set)
    unasked: set[str] = field(default_factory=set)
    not_yet: int = 0
    moved: str = ""
    url: str = ""
    called: list[str] = field(default_factory=list)

    def answer(self, path: str) -> flask.Response:
        service, _, rest = path.partition("/")
        request = flask.request
        is_let_in = request.headers.get("Authorization") == f"Bearer {TOKEN}"
        if service in self.public and not is_let_in:
            return flask.Response("{}")
        if service in self.unasked and not is_let_in:
            return flask.Response('{"error": {"code": "unauthenticated"}}', 401)
        if is_let_in and self.not_yet:
            self.not_yet, is_let_in = self.not_yet - 1, False
        if not is_let_in:
            return flask.Response("<html>Forbidden</html>", 403)
        self.called.append(f"{request.method} {service}/{rest}")
        if self.moved:
            return flask.Response(status=307, headers={"Location": f"{self.moved}/{path}"})
        if service != "serve-api" or not self.api:
            return flask.Response(status=404)
        return self._passed_on(rest)

    def _passed_on(self, rest: str) -> flask.Response:
        data = flask.request.get_data() or None
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.api}/{rest}", data, headers)  # noqa: S310 - our own
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - as above
                return flask.Response(answer.read(), answer.status)
        except urllib.error.HTTPError as refused:
            with refused:
                return flask.Response(refused.read(), refused.code)


@contextlib.contextmanager
def cloud_run(api: str = "") -> Iterator[CloudRun]:
    """Serve it while inside."""
    app, run = flask.Flask(__name__), CloudRun(api)

    @app.route("/<path:path>", methods=["GET", "POST"])
    def answer(path: str) -> flask.Response:
        return run.answer(path)

    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    run.url = f"http://127.0.0.1:{server.server_port}"
    with while_serving(server):
        yield run
