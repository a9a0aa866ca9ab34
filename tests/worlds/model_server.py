"""A model's endpoint on this machine, which answers well, or misbehaves as a test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = Callable[["Call"], None]


class ModelServer(ThreadingHTTPServer):
    """Serves `/v1/chat/completions` on its own port.

    Attributes:
        replies: what the next requests get; those after them get `always`.
        always: what a request gets; at first a good answer.
        questions: the bodies of all requests.
        keys: the `Authorization` of all requests.
        entered: set when a request came that is not answered.
        released: set when such requests may end.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Call)
        self.replies: list[Reply] = []
        self.always: Reply = good
        self.questions: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.entered = threading.Event()
        self.released = threading.Event()

    @property
    def url(self) -> str:
        """The value of OPENAI_BASE_URL."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Call(BaseHTTPRequestHandler):
    """One request."""

    server: ModelServer
    question: dict[str, Any]

    def do_POST(self) -> None:
        """Note the question, and reply as the test says."""
        self.question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.questions.append(self.question)
        self.server.keys.append(self.headers["Authorization"])
        reply = self.server.replies.pop(0) if self.server.replies else self.server.always
        reply(self)

    @property
    def task(self) -> str:
        """What is asked for."""
        return task_of(self.given)

    @property
    def given(self) -> Any:
        """What is asked about."""
        return json.loads(self.question["messages"][-1]["content"])

    def send(self, body: str, status: int = 200, **headers: str) -> None:
        """Send a response."""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body.encode())))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Stay silent."""


def good(call: Call) -> None:
    """Answer as a model should."""
    saying(json.dumps(good_answer(call.given)))(call)


def task_of(given: Any) -> str:
    """Return what is asked for: picks, objections, points of one document, or a digest of all."""
    if "sentences" in given:
        return "picks"
    if "aspect" in given:
        return "objections"
    return "points" if "document" in given else "digest"


def good_answer(given: Any) -> Any:
    """Return what a model should answer."""
    match task_of(given):
        case "picks":
            numbers = [each["number"] for each in given["sentences"]]
            return {"picks": [{"number": each, "kind": "rule", "weight": 0.5} for each in numbers]}
        case "objections":
            return {"objections": []}
        case "points":
            return {"points": _points(given["claims"][:1])}
        case _:
            return {"points": _points(given["claims"])}


def saying(content: str | None, finish: str = "stop", **message: Any) -> Reply:
    """Have the model say this, whatever it is asked."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **message}}
    body = {"id": "c-1", "object": "chat.completion", "created": 1, "model": "m"}
    return answering(json.dumps(body | {"choices": [choice | {"finish_reason": finish}]}))


def answering(body: str, status: int = 200, **headers: str) -> Reply:
    """Respond with this body."""
    return lambda call: call.send(body, status, **headers)


def refusing(status: int, message: str, **headers: str) -> Reply:
    """Respond with an error, as OpenAI words it."""
    body = {"error": {"message": message, "type": "error", "code": "some_code", "param": None}}
    return answering(json.dumps(body), status, **headers)


def hang(call: Call) -> None:
    """Take the request, and say nothing."""
    call.server.entered.set()
    call.server.released.wait(30)


def trickle(call: Call) -> None:
    """Send a byte now and then, so that no wait for one is ever long."""
    call.send_response(200)
    call.send_header("Content-Length", "100000")
    call.end_headers()
    call.server.entered.set()
    while not call.server.released.wait(0.05):
        try:
            call.wfile.write(b" ")
        except OSError:
            return


def hang_up(call: Call) -> None:
    """Close the connection without a word."""
    call.close_connection = True
    call.connection.close()


def _points(claims: list[Any]) -> list[Any]:
    return [{"text": f" {each['text']}\n", "claims": [each["id"]]} for each in claims]
