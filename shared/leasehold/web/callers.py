"""Who may call a function: each of them asks here first, before it reads a body.

Cloud Run has asked IAM already. The function asks once more, so that an account of another function
or a token for another service gets nothing, even where IAM would let it in; and a token that Cloud
Run has not checked is checked here (decision 0031).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, NamedTuple

import flask
from werkzeug import Request
from werkzeug.datastructures import Headers

from leasehold.api.call_row import ACTOR_HEADER, MAX_BODY_BYTES
from leasehold.bootstrap import system_clock
from leasehold.domain.printable import one_line
from leasehold.domain.signal_link import LINK, is_link
from leasehold.errors import (
    CallerNotAllowedError,
    InvalidRequestError,
    LeaseholdError,
    UnauthenticatedError,
)
from leasehold.frozen import dataclass
from leasehold.ports.clock import Clock
from leasehold.registry.setting_texts import ANYBODY, IAM, ROLES, Right, is_loopback_address
from leasehold.registry.settings import ON_CLOUD_RUN, arguments_of
from leasehold.services.request_bounds import MAX_ACTOR_CHARS
from leasehold.web.entry import drop_rest, refuse_for
from leasehold.web.id_tokens import Certificates, Identity, read_identity
from leasehold.web.loopback_guard import refusal_of_page

_LOG: Final = logging.getLogger("leasehold.callers")

#: A browser sends one of these with each request of a page; a queue and a program send neither.
_OF_BROWSERS: Final = frozenset({"HTTP_ORIGIN", "HTTP_SEC_FETCH_SITE"})
#: Where it is kept that a request may come in; no header of a request can get there.
_IS_CHECKED: Final = "leasehold.is_checked"
#: And whose account that is, and what it may do; without a sign-in there is none.
_SIGNED_IN: Final = "leasehold.signed_in"

#: Cloud Run checks the first of these that is there, and passes the other on as it came.
#: https://cloud.google.com/run/docs/authenticating/service-to-service
_HEADERS: Final = ("HTTP_X_SERVERLESS_AUTHORIZATION", "HTTP_AUTHORIZATION")

#: The audience of the tokens of people: that of gcloud itself, which they cannot choose.
_GCLOUD: Final = "32555940559.apps.googleusercontent.com"
_SERVICE_ACCOUNT: Final = ".gserviceaccount.com"
#: The addresses of a service: with the number of its project, with a hash, and as a function.
#: A push of Eventarc's names how it is packed.
_OWN_ADDRESS: Final = (
    r"https://(?:{service}-(?:\d+\.[a-z0-9-]+\.run\.app|[a-z0-9]{{10}}-[a-z]{{1,4}}\.a\.run\.app)"
    r"|[a-z0-9-]+\.cloudfunctions\.net/{service})/?(?:\?__GCP_CloudEventsMode=[\w%./-]+)?"
)
_MAX_AUDIENCE_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class CallerCheck:
    """Says of a request whether its caller may call this function.

    Args:
        accounts: the emails that may; `iam` alone: all callers that Cloud Run let in.
        audiences: whom their tokens may be for.
        rights: what each of them may do, by its email or `*`; None: everything by calls, and by
            forms of pages nothing but read.
        service: the name of this service of Cloud Run; empty: this is not Cloud Run.
        certificates: with which a signature is checked.
        clock: says which tokens are over.
    """

    accounts: tuple[str, ...] = ()
    audiences: tuple[str, ...] = ()
    rights: Mapping[str, frozenset[Right]] | None = None
    service: str = ""
    certificates: Certificates = field(default_factory=Certificates)
    clock: Clock = field(default_factory=system_clock)

    @classmethod
    def of(cls, settings: Mapping[str, Any], environ: Mapping[str, str]) -> CallerCheck:
        """Return the check that the settings ask for."""
        return cls(service=environ.get(ON_CLOUD_RUN, ""), **arguments_of(cls, settings))

    def caller_of(self, environ: Mapping[str, Any]) -> str:
        """Return the email of who calls; empty: a program of this machine, which does not sign in.

        Args:
            environ: the request, as WSGI has it.

        Raises:
            UnauthenticatedError, CallerNotAllowedError: it may not.
            CertificatesUnavailableError: that cannot be known now. Retryable.
        """
        if not self.service and is_loopback_address(environ.get("REMOTE_ADDR", "")):
            return ""
        header = next((environ[name] for name in _HEADERS if name in environ), None)
        if header is None:
            raise UnauthenticatedError(problem="the request has no token")
        identity = read_identity(
            header, self.certificates, self.clock, on_cloud_run=bool(self.service)
        )
        self._check_account(identity)
        self._check_audience(identity)
        return identity.email

    def refusal_of(self, request: Request) -> flask.Response | None:
        """Return the answer to a request whose caller may not; None: it may, and is noted."""
        if _IS_CHECKED in request.environ:
            return None
        is_of_page = not _OF_BROWSERS.isdisjoint(request.environ)
        refused = refusal_of_page(request.environ) if is_of_page else None
        path = request.path  # of a link the signature is checked with the run
        if refused is None and not (path.endswith(LINK) and is_link(path)):
            refused = self._noted(request)
        if refused is not None:
            drop_rest(request, MAX_BODY_BYTES)
        return refused

    def _noted(self, request: Request) -> flask.Response | None:
        """Note who calls; return the answer to one that may not."""
        try:
            caller = self.caller_of(request.environ)
            if caller:
                note_account(request, account_of(request.headers, caller), self.rights)
        except LeaseholdError as error:
            _LOG.warning("a call is refused: %s", error)
            refused = refuse_for(error)
            if isinstance(error, UnauthenticatedError):
                refused.headers["WWW-Authenticate"] = "Bearer"
            return refused
        request.environ[_IS_CHECKED] = True
        return None

    def _check_account(self, identity: Identity) -> None:
        if self.accounts == (IAM,):
            if not identity.is_checked_by_google:  # every person may have an account of Google's
                raise CallerNotAllowedError(problem="IAM was not asked whether it may")
        elif identity.email not in self.accounts:
            raise CallerNotAllowedError(problem=f"{identity.email} is not one of LEASEHOLD_CALLERS")

    def _check_audience(self, identity: Identity) -> None:
        """Refuse a token that another service might have been sent, and have sent on."""
        if identity.audience not in self.audiences and not self._is_own(identity):
            audience = one_line(identity.audience, _MAX_AUDIENCE_CHARS)
            raise CallerNotAllowedError(problem=f"its token is for {audience}")

    def _is_own(self, identity: Identity) -> bool:
        """Return whether Cloud Run, which has compared the audience, can have taken it for ours."""
        if not identity.is_checked_by_google:
            return False
        if identity.audience == _GCLOUD:
            return not identity.email.endswith(_SERVICE_ACCOUNT)
        own = _OWN_ADDRESS.format(service=re.escape(self.service))
        return re.fullmatch(own, identity.audience, re.ASCII) is not None


class _Account(NamedTuple):
    """An account that signed in.

    Args:
        name: of the account.
        rights: what it may do by calls.
        by_forms: what it may do by forms of pages.
        has_role: whether a setting says so.
    """

    name: str
    rights: frozenset[Right]
    by_forms: frozenset[Right]
    has_role: bool


def note_account(
    request: Request, name: str, rights: Mapping[str, frozenset[Right]] | None
) -> None:
    """Note for the answer who signed in.

    Args:
        request: the request.
        name: of the account.
        rights: as of `CallerCheck`.
    """
    if rights is None:
        noted = _Account(name, frozenset(Right), ROLES["viewer"], has_role=False)
    else:
        own = rights.get(name, rights.get(ANYBODY, frozenset()))
        noted = _Account(name, own, own, has_role=True)
    request.environ[_SIGNED_IN] = noted


def caller_of(request: Request) -> str:
    """Return the account that signed in; empty: no sign-in was required."""
    account: _Account | None = request.environ.get(_SIGNED_IN)
    return "" if account is None else account.name


def page_rights(request: Request) -> tuple[str, frozenset[Right]]:
    """Return the account to show on a page, and what it may do by forms.

    Without a sign-in, as for programs of this machine, the account is empty, and may do everything.
    """
    account: _Account | None = request.environ.get(_SIGNED_IN)
    return ("", frozenset(Right)) if account is None else (account.name, account.by_forms)


def check_right(request: Request, right: Right, *, by_form: bool = False) -> None:
    """Refuse a request whose caller is known not to have a right, with CallerNotAllowedError.

    Args:
        request: the request.
        right: what it takes.
        by_form: a person made it on a page, by a form.
    """
    account: _Account | None = request.environ.get(_SIGNED_IN)
    if account is None or right in (account.by_forms if by_form else account.rights):
        return
    name, rights, by_forms, has_role = account
    if by_form and not has_role:
        problem = (
            f"{name or 'this account'} has no role yet, and pages change nothing without one; "
            f"LEASEHOLD_RIGHTS gives it: {name}=operator"
        )
    else:
        may = " and ".join(one for one in Right if one in (by_forms if by_form else rights))
        problem = (
            f"{name} may {may or 'do nothing'}, and this call takes the right to {right} "
            "(LEASEHOLD_RIGHTS)"
        )
    error = CallerNotAllowedError(problem=problem)
    _LOG.warning("a call is refused: %s", error)
    raise error


# Who asks for an operation, as the trace names them.


#: The account that Identity-Aware Proxy signed in. It puts its header in the place of one that a
#: browser sends; from other callers the header means nothing.
_IAP_ACCOUNT: Final = "X-Goog-Authenticated-User-Email"
_PROXY: Final = re.compile(r"service-\d+@gcp-sa-iap\.iam\.gserviceaccount\.com", re.ASCII)
#: Who asks without a sign-in, and says nothing of itself: a program, and a page.
_NOBODY: Final = "api"
_PAGE: Final = "dashboard"


def actor_of(headers: Headers, caller: str = "", *, by_form: bool = False) -> str:
    """Return who asks, for the trace: `ann@laptop via ann@example.com`.

    Behind `via` stands the account that was checked, before it what it says of itself.

    Args:
        headers: of the request.
        caller: the email of who calls, as it was checked; empty: without a sign-in, the trace has
            what the caller says.
        by_form: a person made it on a page, by a form.

    Raises:
        InvalidRequestError: the name is not one that a trace can show.
    """
    account = account_of(headers, caller)
    via = f" via {account}" if account else ""
    said = decoded_header(headers.get(ACTOR_HEADER, "")).strip()
    if account and said in ("", account):
        return account
    name = said or (_PAGE if by_form else _NOBODY)
    return _shown(ACTOR_HEADER, name, MAX_ACTOR_CHARS - len(via)) + via


def account_of(headers: Headers, caller: str) -> str:
    """Return the account that was checked: the person's, where a proxy calls for one.

    Raises:
        InvalidRequestError: it is not one that a trace can show.
    """
    name = _iap_account(headers) if _is_proxy(caller) else ""
    return _shown(_IAP_ACCOUNT, name, MAX_ACTOR_CHARS) or caller


def _is_proxy(caller: str) -> bool:
    return _PROXY.fullmatch(caller) is not None


def _iap_account(headers: Headers) -> str:
    return (
        decoded_header(headers.get(_IAP_ACCOUNT, "")).removeprefix("accounts.google.com:").strip()
    )


def _shown(header: str, name: str, most: int) -> str:
    """Return the name of a header, if a trace can show it."""
    if len(name) > most or not name.isprintable():
        allowed = f"at most {max(most, 0)} printable characters"
        raise InvalidRequestError(field=header, value=name[:MAX_ACTOR_CHARS], allowed=allowed)
    return name


def decoded_header(header: str) -> str:
    """Return a header whose bytes are UTF-8, which WSGI gives as Latin-1; any other as it is."""
    try:
        return header.encode("latin-1").decode()
    except UnicodeError:
        return header
