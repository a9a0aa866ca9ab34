"""The pages of the dashboard over HTTP: which requests get one, its headers, and its forms.

A page is made of what rows answer, each with the rights of its reader. It is compressed, and known
by its `ETag`, so that a poll that finds nothing new costs one read. A form is sent to the path of
its row, with a token that only a page of this server knows, and answered with a redirect.
"""

from __future__ import annotations

import gzip
import logging
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

import flask
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from leasehold.api.call_row import AnyRow, CallRequest, Created
from leasehold.api.calls import batch, repair
from leasehold.api.errors import status_of
from leasehold.dashboard import forms
from leasehold.dashboard.pages import (
    COUNTED,
    FILTERED,
    NOW,
    PAGES,
    PLACES,
    RESULTS,
    PageRequest,
    Shown,
    batch_note,
    batch_words,
)
from leasehold.dashboard.rendering import (
    STATIC_TYPES,
    query_of,
    render,
    static_file,
    version_mark,
)
from leasehold.domain.json_text import digest
from leasehold.errors import (
    CallerNotAllowedError,
    InvalidRequestError,
    LeaseholdError,
)
from leasehold.ports.documents import PATIENCE
from leasehold.registry.setting_texts import Right
from leasehold.web.callers import actor_of, caller_of, check_right, page_rights
from leasehold.web.entry import ASSETS, form_of
from leasehold.web.loopback_guard import is_same_origin
from leasehold.web.plain_page import PAGE_HEADERS, RELOAD_AFTER_S, looks_again, remedy_of, title_of

_LOG: Final = logging.getLogger("leasehold.web")

#: So long a reader waits for a store that does not answer.
_STORE_PATIENCE_S: Final = 4.0
_MIN_COMPRESSED_BYTES: Final = 1024
#: A page says things that pass without a write: that a time has come, that no server is there.
_PAGE_FRESH_S: Final = 30
_TWO_NUMBERS: Final = re.compile(r"(\d{1,9})\.(\d{1,9})", re.ASCII)
#: The page of the run that a form is about.
_RUN: Final = re.compile(r"/runs/[^/:]+")
_YEAR: Final = "public, max-age=31536000, immutable"
#: Stands for the token of the forms while a page is compared with the one that the reader has. No
#: text of a stranger can have it: it would show the token, or send it along in a link.
_TOKEN: Final = f"leasehold-form-token-{secrets.token_hex(16)}"

#: The words of times, which pass by themselves: the script of the page keeps them right.
_WITHOUT_AGES: Final = re.compile(r'(?<=">)[^<>]*(?=</time>)| data-now="[^"]*"')

#: What a form has done, for the page that it leads to. A cookie of that page carries it, and not
#: the address, which would say it to each reader of a link.
_DONE_COOKIE_S: Final = 60
DONE: Final[Mapping[str, str]] = {
    "pause": "The run was paused.",
    "resume": "The run was resumed.",
    "cancel": "The run was cancelled.",
    "retry": "The step was dispatched again.",
    "approve": "The output is handed off.",
    "recreate": "This is the new run.",
    "signal": "The signal is sent.",
    "stack": "The worker is asked: the stack of the attempt comes with its next heartbeat.",
    "deliver": "The announcement is due again.",
    "override": "The override is set: it holds from the next dispatch on.",
    "pauseSchedule": "The schedule is paused: its times are skipped.",
    "resumeSchedule": "The schedule is resumed.",
    "triggerSchedule": "A run is started.",
    "pauseSteps": "It is paused: no attempt begins from within 10 seconds on.",
    "resumeSteps": "It is resumed: the runs that it held go on.",
    "clearOverride": "The override is cleared: the step has its own limits again.",
}


#: Finds the row of a request, and the parts of its path.
Match = Callable[[flask.Request], tuple[AnyRow, Mapping[str, str]]]
#: Answers a row, with the engine.
Answers = Callable[[AnyRow, CallRequest[Any]], Any]


def answer_static(request: flask.Request) -> flask.Response:
    """Answer with a file that all pages have."""
    name = request.path.removeprefix(ASSETS)
    try:
        content, mark = static_file(name)
    except KeyError:
        return flask.Response(status=404)
    answer = flask.Response(content, content_type=f"{STATIC_TYPES[name]}; charset=utf-8")
    answer.headers.update(PAGE_HEADERS)
    answer.headers["Cache-Control"] = _YEAR if request.args.get("v") == mark else "no-cache"
    return _compressed(request, answer)


def answer_browser(
    match: Match, answer_row: Answers, request: flask.Request
) -> flask.Response | None:
    """Answer a browser with a page; None: its path has none, and is answered as to a program.

    A refusal is a page, too.
    """
    try:
        row, values = match(request)
        if request.method == "POST":
            return _answer_form(answer_row, request, row, values)
        with _within(_STORE_PATIENCE_S):
            return _answer_page(answer_row, request, row, values)
    except MethodNotAllowed:
        problem = f"{request.path} is no page to open, and takes no form like this one."
        return _error_page(request, 405, problem)
    except HTTPException:
        return _error_page(request, 404, f"{request.path} is not a page of this server.")
    except LeaseholdError as error:
        if error.retryable and status_of(error.code) == HTTPStatus.SERVICE_UNAVAILABLE:
            _LOG.warning("%s", error)
        return _error_page(request, status_of(error.code), error.message)
    except Exception:  # noqa: BLE001 - logged whole; the reader gets a page
        _LOG.exception("a page failed")
        return _error_page(request, 500, "Something failed here; the log of the server has it.")


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Have a store that is away be given up soon: the page says so, and looks again by itself."""
    before = PATIENCE.set(seconds)
    try:
        yield
    finally:
        PATIENCE.reset(before)


def _answer_page(
    answer_row: Answers,
    request: flask.Request,
    row: AnyRow,
    values: Mapping[str, str],
) -> flask.Response | None:
    if row in PLACES:
        return _redirect(f"{_run_path(values['run_id'])}#{PLACES[row]}")
    page = PAGES.get(row)
    if page is None:
        return None
    look = _look(answer_row, request, row, values)
    known = None
    if page.mark is not None and look.problem is None and "If-None-Match" in request.headers:
        moment = str(int(look.now.timestamp()) // _PAGE_FRESH_S)
        known = _etag(request, page.mark(look), moment, _done(request))
        if request.headers["If-None-Match"] == known:
            return _unchanged(known)
    shown = page.show(look)
    html = _rendered(request, shown, look)
    if page.mark is None:
        known = _etag(request, _WITHOUT_AGES.sub("", html).replace(_TOKEN, ""))
        if request.headers.get("If-None-Match") == known:
            return _unchanged(known)
    answer = _page(request, html, 200 if look.problem is None else 400)
    if known is not None:  # at first there is none: its mark would be read beside the page itself
        answer.headers["ETag"] = known
    return answer


def _look(
    answer_row: Answers, request: flask.Request, row: AnyRow, values: Mapping[str, str]
) -> PageRequest:
    """Return the look at a page; a query that cannot be used is its problem, not an error."""

    def ask(row: AnyRow, given: Any = None, *, run_id: str = "", step: str = "") -> Any:
        check_right(request, row.needed_for(given).right)
        return answer_row(row, CallRequest(given, run_id=run_id, step=step))

    texts = {
        name: found if len(found) > 1 else found[0]
        for name, several in request.args.lists()
        if (found := [one for one in several if one.strip()])
    }
    given, problem = None, None
    if row.takes is not None:
        try:
            given = row.takes.read(texts)
        except InvalidRequestError as error:
            if row not in FILTERED:
                raise
            problem = error
    now = ask(NOW)
    return PageRequest(ask, given, texts, now, page_rights(request)[1], **values, problem=problem)


def _answer_form(
    answer_row: Answers, request: flask.Request, row: AnyRow, values: Mapping[str, str]
) -> flask.Response:
    """Do what a form of a page asks for, and lead to where that is seen."""
    size = request.content_length or 0
    if size > row.limit:  # it was not read, and what it asks for is not known
        problem = f"The form has {size:,} bytes, and at most {row.limit:,} are read."
        return _error_page(request, 413, problem)
    form = form_of(request, row.limit)
    secret = request.cookies.get(_cookie(request, _FORM_COOKIE), "")
    if not (is_same_origin(request) and forms.is_token_of(form.get("formToken", ""), secret)):
        problem = "the form is not of this server, or the browser has dropped its cookie"
        raise CallerNotAllowedError(problem=f"{problem}; open the page again")
    look = _look(answer_row, request, NOW, values)
    given = None if row.takes is None else row.takes.read(forms.body_of(row, form, look.now))
    check_right(request, row.needed_for(given).right, by_form=True)
    actor = actor_of(request.headers, caller_of(request), by_form=True)
    answered = answer_row(row, CallRequest(given, actor=actor, **values))
    answer = answered.value if isinstance(answered, Created) else answered
    if row in RESULTS and (shown := RESULTS[row](look, given, answer, form)):
        return _page(request, _rendered(request, shown, look))
    path, query, note = _next_path(row, answer, values), "", row.name
    if row is batch:
        path, query = "/", urlencode(parse_qsl(form.get("shown", "")))
        note = f"{row.name}.{batch_note(query, given, answer)}"
    elif row.name in COUNTED:
        note = ".".join([row.name, *map(str, COUNTED[row.name][0](answer))])
    redirect = _redirect(f"{path}?{query}" if query else path)
    _set_cookie(request, redirect, _DONE_COOKIE, note, path=path, max_age=_DONE_COOKIE_S)
    return redirect


def _next_path(row: AnyRow, answer: Any, values: Mapping[str, str]) -> str:
    """Return where the outcome of a form is seen: at its run, or among the limits."""
    if row is repair:
        return "/audit"
    run_id = getattr(answer, "run_id", values.get("run_id"))
    if run_id:
        return _run_path(run_id)
    return "/schedules" if "name" in values else "/registry"


def _run_path(run_id: str) -> str:
    return f"/runs/{quote(run_id, safe='')}"


def _redirect(path: str) -> flask.Response:
    answer = flask.Response(status=303)
    answer.headers["Location"] = path
    answer.headers.update(PAGE_HEADERS)
    return answer


def _done(request: flask.Request) -> str:
    """Return what a form has done that led to this page."""
    name, _, note = request.cookies.get(_cookie(request, _DONE_COOKIE), "").partition(".")
    if request.method != "GET":
        return ""
    if name == batch.name and request.path == "/":  # its cookie is of the pages below as well
        return batch_words(note, request.query_string.decode("latin-1"))
    if name in COUNTED and (numbers := _TWO_NUMBERS.fullmatch(note)):
        return COUNTED[name][1](int(numbers[1]), int(numbers[2]))
    return DONE.get(name, "")


def _error_page(request: flask.Request, status: int, message: str) -> flask.Response:
    of_run = _RUN.match(request.path) if request.method == "POST" else None
    values = {
        "problem": message,
        "remedy": remedy_of(request.environ, status),
        "run_path": of_run and of_run[0],
    }
    poll_s = RELOAD_AFTER_S if looks_again(request.environ, status) else 0
    shown = Shown("error.html", title_of(status), values, poll_s)
    return _page(request, _rendered(request, shown, None), status)


def _rendered(request: flask.Request, shown: Shown, look: PageRequest | None) -> str:
    """Return a page, with a mark where the token of its forms is to stand."""
    account, rights = page_rights(request)
    return render(
        shown.template,
        {
            **shown.values,
            "title": shown.title,
            "poll_s": shown.poll_s,
            "now": None if look is None else look.now,
            "account": account,
            "has_session": any(it.startswith("leasehold-session-") for it in request.cookies),
            "may": {right.value: right in rights for right in Right},
            "form_token": _TOKEN,
            "here": request.path,
            "address": request.full_path.rstrip("?"),
            "json_url": _json_url(request, look),
            "done": _done(request),
            "query_problem": None if look is None or not look.problem else look.problem.message,
        },
    )


def _json_url(request: flask.Request, look: PageRequest | None) -> str | None:
    """Return where a program reads what a page shows; None: nowhere.

    A filter that was left empty is no part of the row's query.
    """
    if request.method == "POST" or look is None:
        return None
    query = query_of({} if look.given is None else look.texts).removesuffix("?")
    return f"{request.host_url.rstrip('/')}{quote(request.path)}{query}"


def _page(request: flask.Request, html: str, status: int = 200) -> flask.Response:
    """Answer with a page; its forms get their token, and the browser the cookie behind it."""
    secret = request.cookies.get(_cookie(request, _FORM_COOKIE), "")
    is_new = not forms.is_secret(secret)
    secret = forms.new_secret() if is_new else secret
    body = html.replace(_TOKEN, forms.token_of(secret))
    answer = flask.Response(body, status=status, content_type="text/html; charset=utf-8")
    answer.headers.update(PAGE_HEADERS)
    answer.headers["Cache-Control"] = "no-store"
    answer.vary.update(("Accept", "Cookie"))
    if is_new and _TOKEN in html:
        _set_cookie(request, answer, _FORM_COOKIE, secret)
    return _compressed(request, answer)


def _unchanged(etag: str) -> flask.Response:
    answer = flask.Response(status=304)
    answer.headers.update(PAGE_HEADERS)
    answer.headers["ETag"] = etag
    answer.headers["Cache-Control"] = "no-store"
    return answer


def _compressed(request: flask.Request, answer: flask.Response) -> flask.Response:
    body = answer.get_data()
    if len(body) >= _MIN_COMPRESSED_BYTES and request.accept_encodings["gzip"] > 0:
        answer.set_data(gzip.compress(body, compresslevel=5, mtime=0))
        answer.headers["Content-Encoding"] = "gzip"
    answer.vary.add("Accept-Encoding")
    return answer


def _etag(request: flask.Request, *parts: str) -> str:
    """Return the mark of a page as this reader sees it, in this version."""
    account, rights = page_rights(request)
    reader = (request.full_path, account, *sorted(rights), version_mark())
    return f'"{digest(repr((*reader, *parts)))[:24]}"'


_FORM_COOKIE: Final = "form"
_DONE_COOKIE: Final = "done"


def _cookie(request: flask.Request, kind: str) -> str:
    """Return the name of a cookie: cookies do not tell the ports of a machine apart."""
    return f"leasehold-{kind}-{request.environ.get('SERVER_PORT', '')}"


def _set_cookie(
    request: flask.Request, answer: flask.Response, kind: str, value: str, **options: Any
) -> None:
    secure = request.is_secure or request.headers.get("X-Forwarded-Proto") == "https"
    name = _cookie(request, kind)
    answer.set_cookie(name, value, secure=secure, httponly=True, samesite="Strict", **options)
