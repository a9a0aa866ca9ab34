"""A token that says who calls: what it claims, and whether Google says so.

https://developers.google.com/identity/openid-connect/openid-connect#validatinganidtoken
"""

from __future__ import annotations

import base64
import re
import threading
import time
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import pydantic_core

from leasehold.errors import CertificatesUnavailableError, UnauthenticatedError
from leasehold.frozen import dataclass
from leasehold.ports.clock import Clock
from leasehold.services.request_bounds import MAX_ACTOR_CHARS

#: What stands in the place of the signature of a token that Cloud Run has checked.
#: https://cloud.google.com/run/docs/troubleshooting#signature-removed
_REMOVED: Final = "SIGNATURE_REMOVED_BY_GOOGLE"

_MAX_TOKEN_CHARS: Final = 8 * 1024
_TOKEN: Final = re.compile(r"Bearer ([\w-]+)\.([\w-]+)\.([\w-]+)", re.ASCII)
_ALGORITHM: Final = "RS256"
_ISSUERS: Final = ("https://accounts.google.com", "accounts.google.com")
#: So much may the clock of this machine be off.
_SKEW: Final = timedelta(minutes=1)
_LAST_SECOND: Final = 2**40


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom a token names, and for whom it is.

    Args:
        email: of the account; Google has verified that it is theirs.
        audience: for whom the token is.
        is_checked_by_google: Cloud Run has checked the signature, and asked IAM, before the call.
    """

    email: str
    audience: str
    is_checked_by_google: bool


def read_identity(
    header: str, certificates: Certificates, clock: Clock, *, on_cloud_run: bool
) -> Identity:
    """Return who calls, as the value of a header such as Authorization says it.

    Raises:
        UnauthenticatedError: that is not to be believed. Nothing of the token is in the error.
        CertificatesUnavailableError: it cannot be known now. Retryable.
    """
    found = _TOKEN.fullmatch(header) if len(header) <= _MAX_TOKEN_CHARS else None
    if found is None:
        raise UnauthenticatedError(problem="the token is not one of Google's")
    is_removed = found[3] == _REMOVED
    if is_removed and not on_cloud_run:
        raise UnauthenticatedError(problem="the token has no signature")
    if not is_removed:
        _check_signature(header.removeprefix("Bearer "), _object(found[1]), certificates)
    claims = _object(found[2])
    _check_times(claims, clock)
    if claims.get("iss") not in _ISSUERS:
        raise UnauthenticatedError(problem="Google did not issue the token")
    email, audience = claims.get("email"), claims.get("aud")
    if claims.get("email_verified") is not True or not _is_email(email):
        raise UnauthenticatedError(problem="the token has no email that Google has verified")
    if not isinstance(audience, str):
        raise UnauthenticatedError(problem="the token is not for one audience")
    return Identity(email, audience, is_removed)


def _is_email(value: Any) -> TypeGuard[str]:
    """Return whether it is one that a trace can show."""
    return isinstance(value, str) and 0 < len(value) <= MAX_ACTOR_CHARS and value.isprintable()


def _check_signature(token: str, header: Mapping[str, Any], certificates: Certificates) -> None:
    """Refuse a token that Google did not sign."""
    key = header.get("kid")
    if header.get("alg") != _ALGORITHM or not isinstance(key, str):
        raise UnauthenticatedError(problem="the token is not signed as Google signs")
    certificate = certificates.of_key(key)
    if certificate is None:
        raise UnauthenticatedError(problem="no key of Google's has signed the token")
    from google.auth.crypt import verify_signature  # noqa: PLC0415 - Cloud Run leaves none to check

    message, _, signature = token.rpartition(".")
    try:
        is_right = verify_signature(message, _bytes(signature), certificate)  # type: ignore[no-untyped-call]
    except Exception:  # noqa: BLE001 - a certificate of another kind; what it says may be long
        is_right = False
    if not is_right:
        raise UnauthenticatedError(problem="the signature of the token is wrong")


def _check_times(claims: Mapping[str, Any], clock: Clock) -> None:
    """Refuse a token that is over, or that is for later."""
    now, skew = clock.now().timestamp(), _SKEW.total_seconds()
    begins = max(_second(claims, "iat"), _second(claims, "nbf") if "nbf" in claims else 0)
    if _second(claims, "exp") + skew <= now:
        raise UnauthenticatedError(problem="the token has expired")
    if begins - skew > now:
        raise UnauthenticatedError(problem="the token is not valid yet")


def _second(claims: Mapping[str, Any], name: str) -> int:
    value = claims.get(name)
    if type(value) is not int or not 0 <= value < _LAST_SECOND:
        raise UnauthenticatedError(problem=f"the token has no time {name}")
    return value


def _object(part: str) -> Mapping[str, Any]:
    """Return a part of a token: a JSON object, in base64."""
    try:
        value = pydantic_core.from_json(_bytes(part), allow_inf_nan=False)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise UnauthenticatedError(problem="the token cannot be read")
    return value


def _bytes(part: str) -> bytes:
    """Return a part of a token, or raise ValueError."""
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


# Google's certificates, with which it signs the tokens of callers: fetched once, and kept.


if TYPE_CHECKING:
    from leasehold.bounded_calls import BoundedCalls

#: By the id of the key, in PEM. https://developers.google.com/identity/openid-connect
GOOGLE_CERTIFICATES: Final = "https://www.googleapis.com/oauth2/v1/certs"

_MAX_AGE: Final = re.compile(r"max-age=(\d{1,9})")
#: Their lifetime where the answer does not say.
_DEFAULT_AGE_S: Final = 300.0
_MAX_AGE_S: Final = 86_400.0
#: How long an answer is waited for, and how soon after a fetch there may be another one: strangers
#: make up ids of keys, and a server that is away is not asked for each request.
_ANSWER_TIMEOUT_S: Final = 3.0
_FETCH_PAUSE_S: Final = 10.0
#: How long all of a fetch is waited for, and how many that go on after that are left behind.
_MAX_FETCH_S: Final = 2 * _ANSWER_TIMEOUT_S
_MAX_FETCHES_ABANDONED: Final = 3
_MAX_ANSWER_BYTES: Final = 256 * 1024


class Certificates:
    """The certificates of one address; safe to use in many threads.

    Those that are known go on being used while the address does not answer: an outage of it is no
    reason to refuse a caller.

    Args:
        url: where they are read. It is no setting: who could change it would sign any token.
        pause_s: seconds between two fetches, at least.
    """

    def __init__(self, url: str = GOOGLE_CERTIFICATES, *, pause_s: float = _FETCH_PAUSE_S) -> None:
        self._url = url
        self._pause_s = pause_s
        self._lock = threading.Lock()
        self._known: Mapping[str, str] = {}
        self._fresh_until = self._next_fetch = 0.0  # of time.monotonic
        self._problem = "they were not read yet"
        self._reads: BoundedCalls | None = None

    def of_key(self, key: str) -> str | None:
        """Return the certificate of a key; None: there is no such key.

        Raises:
            CertificatesUnavailableError: the address does not answer, and the key is not known.
        """
        if time.monotonic() >= self._fresh_until or key not in self._known:
            self._renew(key)
        if key in self._known:
            return self._known[key]
        if self._problem:
            raise CertificatesUnavailableError(problem=self._problem)
        return None

    def _renew(self, key: str) -> None:
        """Fetch them, unless that was done a moment ago; the others wait, who cannot do without."""
        if not self._lock.acquire(blocking=key not in self._known):
            return
        try:
            now = time.monotonic()
            if now >= self._next_fetch and (now >= self._fresh_until or key not in self._known):
                self._fetch()
        finally:
            self._lock.release()

    def _fetch(self) -> None:
        try:
            known, age_s = self._read()
        except (OSError, ValueError, HTTPException) as error:
            self._problem = f"Google's certificates cannot be read ({type(error).__name__})"
        else:
            self._known, self._problem = known, ""
            self._fresh_until = time.monotonic() + age_s
        self._next_fetch = time.monotonic() + self._pause_s

    def _read(self) -> tuple[Mapping[str, str], float]:
        """Read them in a thread: a head that trickles in has no end that a timeout knows."""
        from leasehold.bounded_calls import BoundedCalls  # noqa: PLC0415 - only who fetches them

        self._reads = self._reads or BoundedCalls("certificates", most_late=_MAX_FETCHES_ABANDONED)
        if self._reads.are_taken():
            raise TimeoutError
        reading = self._reads.make(partial(_read, self._url), wait_s=_MAX_FETCH_S)
        if reading is None:
            return _read(self._url)
        if not reading.done():
            raise TimeoutError
        return reading.result()


def _read(url: str) -> tuple[Mapping[str, str], float]:
    """Return the certificates, and for how many seconds they are good.

    Raises:
        OSError, ValueError, HTTPException: there is no answer, or it is none with certificates.
    """
    from urllib.error import HTTPError  # noqa: PLC0415 - as below
    from urllib.request import urlopen  # noqa: PLC0415 - only who fetches them waits for it

    over_at = time.monotonic() + _ANSWER_TIMEOUT_S
    text = bytearray()
    try:
        opened = urlopen(url, timeout=_ANSWER_TIMEOUT_S)  # noqa: S310 - Google's address
    except HTTPError as refused:
        refused.close()
        raise
    with opened as answer:
        while block := answer.read1(_MAX_ANSWER_BYTES):
            text += block
            if len(text) > _MAX_ANSWER_BYTES or time.monotonic() > over_at:
                raise TimeoutError
        age = _MAX_AGE.search(answer.headers.get("Cache-Control", ""))
    found = pydantic_core.from_json(bytes(text))
    pairs = found.items() if isinstance(found, dict) else ()
    known = {key: pem for key, pem in pairs if _is_certificate(pem)}
    if not known:  # an error, answered with 200: those that were known stay
        raise ValueError(url)
    return known, min(float(age[1]), _MAX_AGE_S) if age else _DEFAULT_AGE_S


def _is_certificate(value: object) -> bool:
    return isinstance(value, str) and value.startswith("-----BEGIN CERTIFICATE-----")
