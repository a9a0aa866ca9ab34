"""Tokens as Google signs them, with a key of the tests and a server that has its certificate."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

from leasehold.devserver.loopback_server import LoopbackServer

KEY_ID = "key-1"
ACCOUNT = "leasehold-tasks@project.iam.gserviceaccount.com"
AUDIENCE = "https://execute-step-123.europe-west1.run.app"
REMOVED = "SIGNATURE_REMOVED_BY_GOOGLE"


@cache
def key(name: str) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@cache
def certificate(name: str) -> str:
    """Return the certificate of a key, in PEM."""
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Google, for the tests")])
    now = datetime.fromtimestamp(time.time(), UTC)  # noqa: TID251 - tokens are of the real time
    signed = (
        x509.CertificateBuilder()
        .subject_name(who)
        .issuer_name(who)
        .public_key(key(name).public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key(name), hashes.SHA256())
    )
    return signed.public_bytes(serialization.Encoding.PEM).decode()


def claims(**others: Any) -> dict[str, Any]:
    """Return what a token of a task claims; a value of None leaves a claim out."""
    now = int(time.time())  # noqa: TID251 - tokens are of the real time
    usual = {
        "iss": "https://accounts.google.com",
        "aud": AUDIENCE,
        "email": ACCOUNT,
        "email_verified": True,
        "sub": "1",
        "iat": now - 10,
        "exp": now + 3600,
    }
    return {name: value for name, value in {**usual, **others}.items() if value is not None}


def part(value: Any) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def token(given: Any = None, *, signed_by: str = KEY_ID, **header: Any) -> str:
    """Return a token with a signature."""
    head = {"alg": "RS256", "kid": KEY_ID, "typ": "JWT", **header}
    message = f"{part(head)}.{part(claims() if given is None else given)}"
    signature = key(signed_by).sign(message.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{message}.{part(signature)}"


def symmetric(secret: str) -> str:
    """Return a token whose signature can be made from the certificate alone."""
    message = f"{part({'alg': 'HS256', 'kid': KEY_ID})}.{part(claims())}"
    digest = hmac.new(secret.encode(), message.encode(), hashlib.sha256).digest()
    return f"{message}.{part(digest)}"


def removed(given: Any = None) -> str:
    """Return a token that Cloud Run has checked, or one that looks like it."""
    return f"{token(given).rpartition('.')[0]}.{REMOVED}"


class CertificateServer:
    """Has the certificates of keys, and can be away."""

    def __init__(self) -> None:
        self.keys = [KEY_ID]
        self.max_age: str | None = "public, max-age=3600"
        self.status = "200 OK"
        self.body: bytes | None = None
        self.asked = 0
        self.answers = threading.Event()
        self.answers.set()
        self._lock = threading.Lock()

    def __call__(self, _: Any, start_response: Callable[..., Any]) -> Iterable[bytes]:
        with self._lock:
            self.asked += 1
        self.answers.wait(30)
        headers = [("Content-Type", "application/json")]
        if self.max_age is not None:
            headers.append(("Cache-Control", self.max_age))
        start_response(self.status, headers)
        return [self.body or json.dumps({name: certificate(name) for name in self.keys}).encode()]


@contextmanager
def certificate_server() -> Iterator[tuple[CertificateServer, str]]:
    served = CertificateServer()
    server = LoopbackServer(served, "certificates")
    url = server.start()
    try:
        yield served, url
    finally:
        server.stop()
