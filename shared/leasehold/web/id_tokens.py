"""A token that says who calls: what it claims, and whether Google says so.

https://developers.google.com/identity/openid-connect/openid-connect#validatinganidtoken
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeGuard

import pydantic_core

from leasehold.errors import UnauthenticatedError
from leasehold.ports.clock import Clock
from leasehold.services.limits import MAX_ACTOR
from leasehold.web.certificates import Certificates

#: What stands in the place of the signature of a token that Cloud Run has checked.
#: https://cloud.google.com/run/docs/troubleshooting#signature-removed
_REMOVED: Final = "SIGNATURE_REMOVED_BY_GOOGLE"

_LONGEST: Final = 8 * 1024
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
    found = _TOKEN.fullmatch(header) if len(header) <= _LONGEST else None
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
    return isinstance(value, str) and 0 < len(value) <= MAX_ACTOR and value.isprintable()


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
