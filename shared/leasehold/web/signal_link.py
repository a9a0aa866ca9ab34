"""The page of a signed link: a question, and a form that sends the answer as a signal.

To open it changes nothing, as programs open links of messages, too. One link counts once.
"""

from __future__ import annotations

import re
from functools import partial
from html import escape
from typing import Any, Final, NamedTuple

import flask

from leasehold.api.call_row import CallRequest, CallRow, Needs
from leasehold.api.errors import status_of
from leasehold.dashboard.forms import json_field
from leasehold.domain.json_text import digest
from leasehold.domain.manifest import Manifest
from leasehold.domain.signal_link import LINK, MAX_LINK_FORM_BYTES, PATH, SignalLink
from leasehold.errors import CallerNotAllowedError, LeaseholdError, UnknownRunError
from leasehold.services.engine import Engine
from leasehold.services.read_runs import get_run
from leasehold.services.signal_run import SignalRequest, send_signal
from leasehold.web.entry import form_of, refuse_method
from leasehold.web.plain_page import PAGE_HEADERS, plain_page, title_of

_ACTOR: Final = "link"
_BAD: Final = "the link is over, or was changed; ask for a new one"


class _Given(NamedTuple):
    """What a request has: the end and the life of the link, its signature; the value of a form."""

    until: str
    life: str
    key: str
    value: str = ""


def answer_link(source: Any, request: flask.Request) -> flask.Response:
    """Answer with the page of a link, or with what became of its form."""
    found = PATH.fullmatch(request.path)
    assert found is not None  # noqa: S101 - who asks has seen it
    run_id, name = found.groups()
    if request.method not in ("GET", "HEAD", "POST"):
        return refuse_method(request.path, "GET, POST")
    given = _Given(*(request.args.get(name, "") for name in ("until", "life", "key")))
    row = _SEND if request.method == "POST" else _ASK
    try:
        if row is _SEND:
            given = given._replace(value=form_of(request, MAX_LINK_FORM_BYTES).get("value", ""))
        title, content = source.answer(row, CallRequest(given, run_id=run_id, name=name))
    except LeaseholdError as error:
        status = status_of(error.code)
        words = f'<p class="notice bad" role="alert">{escape(error.message)}</p>\n'
        return _page(status, title_of(status), words)
    return _page(200, title, content)


def _page(status: int, title: str, content: str) -> flask.Response:
    answer = flask.Response(plain_page(title, content), status, mimetype="text/html")
    answer.headers.update({**PAGE_HEADERS, "Cache-Control": "no-store"})
    return answer


def _checked(engine: Engine, request: CallRequest[_Given]) -> Manifest:
    """Return the run of a link that is good, or raise CallerNotAllowedError."""
    until, life, key, _ = request.given
    if not re.fullmatch(r"\d{1,12}", until, re.ASCII):
        raise CallerNotAllowedError(problem=_BAD)
    link = SignalLink(request.run_id, life, request.name, int(until))
    is_over = link.until < engine.clock.now().timestamp()
    if is_over or not link.is_signed(key, engine.link_secrets):  # nothing is read for a stranger
        raise CallerNotAllowedError(problem=_BAD)
    try:
        run = get_run(engine, request.run_id)
    except UnknownRunError:
        raise CallerNotAllowedError(problem=_BAD) from None
    if run.life != life:
        raise CallerNotAllowedError(problem=_BAD)
    return run


def _ask(engine: Engine, request: CallRequest[_Given]) -> tuple[str, str]:
    """Return the question; nothing is changed."""
    run = _checked(engine, request)
    wait, name = run.waits_for, escape(request.name)
    about = f"Run {escape(run.run_id)} of pipeline {escape(run.pipeline)}"
    if wait is None or wait.name != request.name:
        return "Nothing to do", f"<p>{about} does not wait for the signal {name} now.</p>\n"
    words = "" if run.block is None else escape(run.block.finding)
    form = (
        f"<p>{about}, step {escape(run.position.step)}. {words}</p>\n"
        '<form method="post"><label>The signal, as JSON '
        '<textarea name="value" rows="6" cols="60" required></textarea></label>\n'
        '<button class="strong">Send it</button></form>\n'
    )
    return f"A run waits for {name}", form


def _send(engine: Engine, request: CallRequest[_Given]) -> tuple[str, str]:
    """Send what the form has; the same link counts once."""
    _checked(engine, request)
    value = json_field("value", request.given.value)
    link_id = f"link-{digest(request.given.key)[:16]}"
    sent = SignalRequest(request.name, value, _ACTOR, link_id)
    send_signal(engine, request.run_id, sent)
    return "Thank you", f"<p>The signal {escape(request.name)} was sent.</p>\n"


_row = partial(CallRow, takes=None, gives=None, path=LINK)
_ASK: Final = _row(name="askByLink", method="GET", says="", answer=_ask, needs=Needs.READ)
_SEND: Final = _row(name="sendByLink", method="POST", says="", answer=_send, needs=Needs.CHANGE)
