"""Who may call `leasehold serve`: programs with its token, and people, by the token or by a proxy.

A person gives the token once, on a page, and the browser gets a cookie for 12 hours. It holds no
token but a time, signed by a key that is derived from the token. So several servers with one token
believe each other's cookies, none keeps a list, and another token ends all sessions.

Without a token and without the header of a proxy there is no sign-in: then it listens on this
machine alone, and `loopback_guard` says what may come in.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import ipaddress
import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from flask import Request, Response
from werkzeug import Request as AnyRequest

from leasehold.bootstrap import system_clock
from leasehold.domain.signal_link import is_link
from leasehold.errors import (
    CallerNotAllowedError,
    LeaseholdError,
    TooLargeError,
    TooManyAttemptsError,
    UnauthenticatedError,
)
from leasehold.logs.attempt import without_repeats
from leasehold.ports.clock import Clock
from leasehold.registry.setting_texts import ROLES, Right
from leasehold.registry.settings import check_sign_in
from leasehold.services.request_bounds import MAX_ACTOR_CHARS
from leasehold.web.callers import decoded_header, note_account
from leasehold.web.entry import ASSETS, refuse_for, refuse_method
from leasehold.web.loopback_guard import is_of_browser, is_same_origin, refusal_of
from leasehold.web.plain_page import PAGE_HEADERS, plain_page

_LOG: Final = logging.getLogger("leasehold.callers")

#: Service managers ask it, which have no token: it says that the process runs, and no more.
_OPEN: Final = "/health"
_SIGN_IN: Final = "/sign-in"
_SIGN_OUT: Final = "/sign-out"
_MAX_FORM_BYTES: Final = 16 * 1024

_READS: Final = ("GET", "HEAD")
_SESSION_S: Final = 12 * 3600
_COOKIE: Final = "leasehold-session-"
#: A browser sends a few of them; a stranger may send any number.
_MAX_COOKIES: Final = 8
_MAX_COOKIE_CHARS: Final = 200
#: To guess the token by a cookie takes so many times as long.
_ROUNDS: Final = 100_000


class _Account(NamedTuple):
    """Who signed in.

    Args:
        name: of the account: a role, or the name that a proxy gives.
        rights: what each account may do; None: see `CallerCheck`.
        by_cookie: a browser says so, with each request to this server.
    """

    name: str
    rights: Mapping[str, frozenset[Right]] | None
    by_cookie: bool = False


class ServerCallers:
    """Says of a request whether it may come in, for a server that answers all its paths itself.

    Args:
        hosts: the hosts by which it may be called, without the port. None: any, where it is served
            beyond this machine; pages of other origins are refused all the same.
        settings: the values of the settings.
        clock: says which sessions are over.

    Raises:
        SettingError: the settings do not go together.
    """

    def __init__(
        self, hosts: Sequence[str] | None, settings: Mapping[str, Any], clock: Clock | None = None
    ) -> None:
        check_sign_in(settings)
        self._hosts = hosts
        names = {"operator": "LEASEHOLD_TOKEN", "viewer": "LEASEHOLD_VIEWER_TOKEN"}
        tokens = [(role, token) for role, name in names.items() for token in settings[name]]
        self._tokens = [(role, _digest(token)) for role, token in tokens]
        self._sessions = _Sessions(tokens, clock or system_clock())
        self._header: str = settings["LEASEHOLD_IDENTITY_HEADER"]
        self._rights: Mapping[str, frozenset[Right]] | None = settings["LEASEHOLD_RIGHTS"]
        self._guesses = _Guesses()
        self._warn = without_repeats(_LOG.warning, time.monotonic)

    @property
    def asks(self) -> bool:
        """Whether callers have to sign in."""
        return bool(self._tokens or self._header)

    def refusal_of(self, request: AnyRequest) -> Response | None:
        """Return the answer to a request that may not come in; None: it may, and is noted."""
        refused = refusal_of(request.environ, self._hosts, has_pages=True)
        if refused is not None or not self.asks or self._is_open(request):
            return refused
        try:
            account = self._account_of(request)
        except LeaseholdError as error:
            if isinstance(error, UnauthenticatedError) and is_of_browser(request):
                is_read = request.method in _READS
                return self._page(request, 401, problem="" if is_read else _NOTHING_DONE)
            self._warn(f"a call of {_peer_of(request.environ)} is refused: {error}")
            return _refused(error)
        note_account(request, account.name, account.rights)
        return None

    def answer(self, request: Request) -> Response | None:
        """Answer what a person does to sign in or out; None: the request is for something else."""
        if not self._tokens or request.path not in (_SIGN_IN, _SIGN_OUT):
            return None
        if request.method == "POST":
            return self._sign_in(request) if request.path == _SIGN_IN else _sign_out(request)
        if request.method not in _READS or request.path == _SIGN_OUT:
            return refuse_method(request.path, "POST")
        if self._sessions.role_of(request) is None:
            return self._page(request, 200)
        return _redirect(_own_path(request.args.get("next", "")))

    def body_limit(self, head: dict[str, Any], most: int) -> int:
        """Return how many bytes the body of a request may have; 0: it is refused, whatever it has.

        Args:
            head: the request without its body, as WSGI has it.
            most: the bytes that a caller who may come in may send.
        """
        request = AnyRequest(head)
        if refusal_of(head, self._hosts, has_pages=True) is not None:
            return 0
        if not self.asks:
            return most
        if self._is_open(request):
            return _MAX_FORM_BYTES
        try:
            self._account_of(request, counts=False)
        except LeaseholdError:
            return 0
        return most

    def _is_open(self, request: AnyRequest) -> bool:
        """Return whether it is answered the same to every caller."""
        if self._tokens and request.path in (_SIGN_IN, _SIGN_OUT):
            return True
        if is_link(request.path):  # whose signature is checked with the run
            return True
        is_shared = request.path == _OPEN or request.path.startswith(ASSETS)
        return is_shared and request.method in _READS

    def _account_of(self, request: AnyRequest, *, counts: bool = True) -> _Account:
        """Return who signed in.

        Args:
            request: the request.
            counts: whether a token that is wrong counts as a guess.

        Raises:
            UnauthenticatedError: no account has.
            CallerNotAllowedError: a browser has, and the request is of no page of this server.
            TooManyAttemptsError: too many wrong tokens came from there.
        """
        peer, given = _peer_of(request.environ), _bearer_of(request)
        problem: LeaseholdError = UnauthenticatedError(problem="the request has no token")
        if given and self._tokens:
            try:
                return _with_role(self._role_of(given, peer, counts=counts))
            except LeaseholdError as error:
                problem = error
        if self._header and (name := self._name_of(request)):
            return _Account(name, self._rights)
        if role := self._sessions.role_of(request):
            if request.method not in _READS and not is_same_origin(request):
                session = "the session of a browser is good for the pages of this server alone"
                raise CallerNotAllowedError(problem=session)
            return _with_role(role)
        if not self._tokens:
            problem = UnauthenticatedError(problem=f"the proxy has not set {self._header}")
        raise problem

    def _role_of(self, given: str, peer: str, *, counts: bool = True) -> str:
        """Return the role that a token has, comparing all of it with each, or raise."""
        if not self._guesses.are_left(peer):
            raise TooManyAttemptsError
        digest, found = _digest(given), ""
        for role, right in self._tokens:
            if hmac.compare_digest(digest, right):
                found = role
        if found:
            return found
        if counts:
            self._guesses.note_wrong(peer)
        raise UnauthenticatedError(problem="the token is not that of this server")

    def _name_of(self, request: AnyRequest) -> str:
        """Return the account that the proxy names; empty: none.

        Raises:
            UnauthenticatedError: it is none that a trace can show, or the header is there twice.
        """
        name = decoded_header(request.headers.get(self._header, "")).strip()
        if len(name) > MAX_ACTOR_CHARS or not name.isprintable() or "," in name:
            raise UnauthenticatedError(problem=f"{self._header} is not the name of one account")
        return name

    # -- pages -------------------------------------------------------------------------------------

    def _sign_in(self, request: Request) -> Response:
        """Give a browser its cookie, and lead to the page that was asked for."""
        size = request.content_length or 0
        if size > _MAX_FORM_BYTES:
            return refuse_for(TooLargeError(what="the body", size=size, limit=_MAX_FORM_BYTES))
        path, peer = _own_path(request.form.get("next", "")), _peer_of(request.environ)
        if not is_same_origin(request):
            problem = "the form is not of this server's own page"
            return refuse_for(CallerNotAllowedError(problem=problem))
        try:
            role = self._role_of(request.form.get("token", "").strip(), peer)
        except LeaseholdError as error:
            self._warn(f"a person at {peer} is not signed in: {error}")
            return self._page(request, _refused(error).status_code, path, _PROBLEMS[type(error)])
        answer = _redirect(path)
        answer.set_cookie(
            _cookie_of(request),
            self._sessions.make(role),
            max_age=_SESSION_S,
            secure=_is_https(request),
            httponly=True,
            samesite="Strict",
        )
        return answer

    def _page(
        self, request: AnyRequest, status: int, path: str | None = None, problem: str = ""
    ) -> Response:
        """Return the page to sign in.

        From a link of another site a browser sends no cookie: the page of a person who has one
        opens itself once more, from here.
        """
        is_first = request.path != _SIGN_IN
        if path is None:
            path = _own_path(_target_of(request) if is_first else request.args.get("next", ""))
        again = ""
        if self._tokens and is_first and request.headers.get("Sec-Fetch-Site") in _OTHER_SITES:
            again = f"{_SIGN_IN}?{urlencode({'next': path})}"
        content = _PROBLEM.format(problem=escape(problem)) if problem else ""
        if self._tokens:
            content += _FORM.format(path=escape(path), action=_SIGN_IN)
        if self._header:
            content += _BY_PROXY.format(header=escape(self._header))
        page = plain_page("Sign in", content, f"0;url={again}" if again else "")
        answer = _with_headers(Response(page, status, mimetype="text/html"))
        if status == 401:  # noqa: PLR2004 - as below
            answer.headers["WWW-Authenticate"] = "Bearer"
        return answer


def _with_role(role: str) -> _Account:
    return _Account(role, {role: ROLES[role]})


def _refused(error: LeaseholdError) -> Response:
    refused = refuse_for(error)
    if isinstance(error, UnauthenticatedError):
        refused.headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, TooManyAttemptsError):
        refused.headers["Retry-After"] = "1"
    return refused


def _bearer_of(request: AnyRequest) -> str:
    """Return the token of a program; a proxy before us may have left another kind of sign-in."""
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else ""


def _digest(token: str) -> bytes:
    """Return what tokens are compared by: it is of one length."""
    return hashlib.sha256(token.encode(errors="replace")).digest()


def _peer_of(environ: Mapping[str, Any]) -> str:
    """Return who calls; of IPv6, one who has an address has 2**64 of them."""
    address = str(environ.get("REMOTE_ADDR", ""))
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, ipaddress.IPv6Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))


def _target_of(request: AnyRequest) -> str:
    """Return the path and the query of a request; of a form, those of its page."""
    if request.method not in _READS:
        behind_host = request.headers.get("Referer", "").partition("://")[2].partition("/")[2]
        return "/" + behind_host.partition("#")[0]
    query = request.query_string.decode("latin-1")
    return quote(request.path) + (f"?{query}" if query else "")


def _own_path(path: str) -> str:
    """Return a path of this server; the first one in place of anything else."""
    is_plain = path.isascii() and path.isprintable() and not set(path) & set(" \\")
    is_own = path.startswith("/") and not path.startswith(("//", _SIGN_IN, _SIGN_OUT))
    return path if is_plain and is_own else "/"


def _redirect(path: str) -> Response:
    answer = _with_headers(Response(status=303))
    answer.headers["Location"] = path
    return answer


def _with_headers(answer: Response) -> Response:
    answer.headers.update({**PAGE_HEADERS, "Cache-Control": "no-store"})
    return answer


def _sign_out(request: Request) -> Response:
    """Have the browser forget its cookies of this server, and lead to the first page."""
    if not is_same_origin(request):
        problem = "the form is not of this server's own page"
        return refuse_for(CallerNotAllowedError(problem=problem))
    answer = _redirect("/")
    for name, _ in _sessions_in(request):
        answer.delete_cookie(name, secure=_is_https(request), httponly=True, samesite="Strict")
    return answer


_OTHER_SITES: Final = ("cross-site", "same-site")
_NOTHING_DONE: Final = "Nothing was changed: you are not signed in any more."
_PROBLEMS: Final[Mapping[type[LeaseholdError], str]] = {
    UnauthenticatedError: "That is not a token of this server.",
    TooManyAttemptsError: "Too many wrong tokens came from your address. Try again in a moment.",
}
_PROBLEM: Final = """<p class="notice bad" role="alert">{problem}</p>
"""
_FORM: Final = """<form method="post" action="{action}">
<input type="hidden" name="next" value="{path}">
<p><label for="token">Token of this server</label>
<input id="token" name="token" type="password" autocomplete="current-password"
required autofocus></p>
<p><button>Sign in</button></p>
</form>
<p>It is the <code>LEASEHOLD_TOKEN</code> with which the server was started.</p>
"""
_BY_PROXY: Final = """<p>Or come by the proxy that signs people in here, and sets
<code>{header}</code>.</p>
"""


# The sessions of browsers, as cookies that only this server can make.


class _Sessions:
    """Makes and reads cookies: `ROLE.SECOND.NONCE.SIGNATURE`.

    Args:
        tokens: those of each role, with the first of which its sessions are made.
        clock: says which are over.
    """

    def __init__(self, tokens: Sequence[tuple[str, str]], clock: Clock) -> None:
        self._clock = clock
        self._tokens: dict[str, list[str]] = {}
        for role, token in tokens:
            self._tokens.setdefault(role, []).append(token)

    def make(self, role: str) -> str:
        """Return the cookie of a session that begins."""
        over_at = int(self._clock.now().timestamp()) + _SESSION_S
        text = f"{role}.{over_at}.{secrets.token_hex(8)}"
        return f"{text}.{_signature(_key_of(role, self._tokens[role][0]), text)}"

    def role_of(self, request: AnyRequest) -> str | None:
        """Return the role of the session that goes on; None: there is none."""
        if not self._tokens:
            return None
        return next(
            filter(None, (self._role_of(value) for _, value in _sessions_in(request))), None
        )

    def _role_of(self, cookie: str) -> str | None:
        text, _, signature = cookie.rpartition(".")
        role, _, rest = text.partition(".")
        over_at = rest.partition(".")[0]
        if role not in self._tokens or not cookie.isascii():
            return None
        signatures = [_signature(_key_of(role, token), text) for token in self._tokens[role]]
        if not any(hmac.compare_digest(signature, one) for one in signatures):
            return None
        return role if int(over_at) > self._clock.now().timestamp() else None


@functools.lru_cache(maxsize=64)  # there are as many as tokens that are configured
def _key_of(role: str, token: str) -> bytes:
    """Return the key of the sessions of a token; to make it takes long, so the first one does."""
    salt = b"leasehold session " + role.encode()
    return hashlib.pbkdf2_hmac("sha256", token.encode(), salt, _ROUNDS)


def _signature(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _sessions_in(request: AnyRequest) -> Iterator[tuple[str, str]]:
    """Yield name and value of each cookie that may be a session of this server.

    A browser sends those of all servers of one name, whatever their ports.
    """
    found = 0
    for name, value in request.cookies.items():
        if name.startswith(_COOKIE) and len(value) <= _MAX_COOKIE_CHARS and found < _MAX_COOKIES:
            found += 1
            yield name, value


def _cookie_of(request: AnyRequest) -> str:
    """Return the name of the cookie: cookies do not tell the ports of a host apart."""
    port = request.host.rpartition(":")[2]
    return _COOKIE + (port if port.isascii() and port.isdigit() else "default")


def _is_https(request: AnyRequest) -> bool:
    """Return whether the browser calls by https, also of a proxy before us."""
    origin, proto = request.headers.get("Origin", ""), request.headers.get("X-Forwarded-Proto", "")
    return request.is_secure or proto.lower() == "https" or origin.lower().startswith("https://")


# Guesses of the token, which are slowed.


class _Guesses:
    """Counts wrong tokens: beyond so many a second of one address, none of its tokens is compared.

    Another address goes on, and so do sessions. Behind a proxy, all callers have one address.
    """

    MAX_GUESSES: Final = 50.0
    GUESSES_PER_S: Final = 5.0
    MAX_PEERS: Final = 1024

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wrong: OrderedDict[str, tuple[float, float]] = OrderedDict()  # how many, and when

    def are_left(self, peer: str) -> bool:
        """Return whether a token from there is compared."""
        with self._lock:
            return self._counted(peer) <= self.MAX_GUESSES - 1

    def note_wrong(self, peer: str) -> None:
        """Count a wrong token."""
        with self._lock:
            self._wrong[peer] = self._counted(peer) + 1, time.monotonic()
            self._wrong.move_to_end(peer)
            if len(self._wrong) > self.MAX_PEERS:
                self._wrong.popitem(last=False)

    def _counted(self, peer: str) -> float:
        wrong, at = self._wrong.get(peer, (0.0, 0.0))
        return max(0.0, wrong - (time.monotonic() - at) * self.GUESSES_PER_S)
