"""Calls of the functions that are deployed: with an identity token, or with none."""

from __future__ import annotations

import base64
import http.client
import json
import math
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Final

import pydantic_core

from leasehold.bounded_calls import start_call
from leasehold.deploy.installation import Installation
from leasehold.domain.printable import one_line
from leasehold.errors import MissingExtraError
from leasehold.registry.extras import require_extra

#: `http://HOST:PORT`, a local server in place of all functions: `/SERVICE/…` is what one is called.
EMULATOR: Final = "LEASEHOLD_FUNCTIONS_EMULATOR"
#: An identity token, for a person who calls: `gcloud auth print-identity-token` prints it.
TOKEN: Final = "LEASEHOLD_TOKEN"  # noqa: S105 - the name of a variable

#: What a header can hold.
_TOKEN: Final = re.compile(r"[\w.~+/=-]+", re.ASCII)

#: An instance may start cold.
_TIMEOUT_S: Final = 60.0
_LEAST_S: Final = 1.0
_MOST_BYTES: Final = 16 * 2**20
_LONGEST: Final = 200


class NoTokenError(Exception):
    """There is no identity token; the message says what to do."""


class NoAnswerError(Exception):
    """No one answered; the message says why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a function answered; `body` is None where it is not JSON."""

    status: int
    body: Any


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: a token is for one service."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


@dataclass
class ServiceCalls:
    """Calls the functions of an installation.

    Args:
        installation: which one.
        environ: has a token, where a person gives one.
        ends_at: of time.monotonic; no call is waited for much longer.
    """

    installation: Installation
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    ends_at: float = math.inf

    def url_of(self, name: str) -> str:
        """Return the address of a function."""
        emulator = self.environ.get(EMULATOR)
        function = self.installation.functions[name]
        if emulator:
            return f"{emulator}/{function.service}"
        return self.installation.url_of(function)

    def without_token(self, name: str) -> Answer:
        """Call a function as a stranger would.

        Raises:
            NoAnswerError: no one answered.
        """
        return self._call(urllib.request.Request(f"{self.url_of(name)}/", b"{}"))  # noqa: S310 - our own

    def api(self, path: str, body: Any = None) -> Answer:
        """Call the runs API.

        Raises:
            NoTokenError: nothing can be called.
            NoAnswerError: no one answered.
        """
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        url = f"{self.url_of('serve_api')}{path}"
        return self._call(urllib.request.Request(url, data, headers))  # noqa: S310 - as above

    @cached_property
    def _token(self) -> str:
        """The token of a person, or of the account that this program runs as."""
        if given := self.environ.get(TOKEN, "").strip():
            if _TOKEN.fullmatch(given) is None:
                raise NoTokenError(
                    f'{TOKEN} is not a token; set {TOKEN}="$(gcloud auth print-identity-token)"'
                )
            _check_email(given)
            return given
        try:
            require_extra("google", f"a call without {TOKEN}")
        except MissingExtraError as error:
            raise NoTokenError(error.message) from error
        import google.auth.transport.requests as transport  # noqa: PLC0415 - lazy: --help is quick
        from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415
        from google.oauth2.id_token import fetch_id_token  # noqa: PLC0415

        try:
            audience = self.url_of("serve_api")
            token = fetch_id_token(transport.Request(), audience)  # type: ignore[no-untyped-call]
        except GoogleAuthError as error:
            raise NoTokenError(
                "there is no identity token here; in a build the account needs "
                "roles/iam.serviceAccountOpenIdTokenCreator on itself, and a person sets "
                f'{TOKEN}="$(gcloud auth print-identity-token)"'
            ) from error
        _check_email(str(token))
        return str(token)

    def _call(self, request: urllib.request.Request) -> Answer:
        """Call in a thread: an answer that trickles in has no end that a timeout knows."""
        within_s = max(_LEAST_S, min(_TIMEOUT_S, self.ends_at - time.monotonic()))
        asking = start_call(partial(_asked, request, within_s), "service-call")
        if asking is None:
            return _asked(request, within_s)
        try:
            return asking.result(within_s + _LEAST_S)
        except TimeoutError:
            raise NoAnswerError(f"{request.full_url} does not answer in time") from None


def _check_email(token: str) -> None:
    """Refuse a token without the claim by which the API knows a caller; Google has both kinds.

    What is no token of three parts is left to who is called.
    """
    try:
        part = token.split(".")[1]
        claims = _json_of(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (IndexError, ValueError):
        return
    if isinstance(claims, dict) and not claims.get("email"):
        raise NoTokenError(
            "the identity token names no e-mail, by which callers are known: get one with "
            "`gcloud auth print-identity-token`, and `--include-email` where it impersonates an "
            "account; the metadata server needs `format=full`, generateIdToken `includeEmail`"
        )


def _asked(request: urllib.request.Request, within_s: float) -> Answer:
    opener = urllib.request.build_opener(_Stay)
    try:
        with opener.open(request, timeout=within_s) as answer:
            return Answer(answer.status, _json_of(answer.read(_MOST_BYTES)))
    except urllib.error.HTTPError as refused:
        with refused:
            return Answer(refused.code, _json_of(refused.read(_MOST_BYTES)))
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        why = one_line(str(reason), _LONGEST)
        raise NoAnswerError(f"{request.full_url} does not answer: {why}") from error


def _json_of(body: bytes) -> Any:
    try:
        return pydantic_core.from_json(body)
    except ValueError:  # or it is nested so deep that no one could read it
        return None
