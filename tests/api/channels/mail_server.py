"""A real mail server for tests: it keeps each mail, and answers as the test says."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from email.parser import BytesParser
from email.policy import SMTP as POLICY
from typing import Any

import trustme
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope, LoginPassword, Session

USER, PASSWORD = "shop", "planted-word"


@dataclass
class MailServer:
    """What it answers to a recipient and to a mail; without one, it takes them."""

    port: int = 0
    mails: list[Message] = field(default_factory=list)
    recipients: list[list[str]] = field(default_factory=list)
    to_recipient: dict[str, str] = field(default_factory=dict)
    to_mail: str = "250 taken"
    breaks_off: bool = False
    says_goodbye: bool = True

    async def handle_RCPT(  # noqa: N802 - the name that the server looks for
        self,
        _server: Any,
        _session: Session,
        envelope: Envelope,
        address: str,
        _options: list[str],
    ) -> str:
        refusal = self.to_recipient.get(address)
        if refusal is None:
            envelope.rcpt_tos.append(address)
        return refusal or "250 ok"

    async def handle_DATA(  # noqa: N802 - as above
        self, server: Any, _session: Session, envelope: Envelope
    ) -> str:
        content = envelope.content
        assert isinstance(content, bytes)
        self.mails.append(BytesParser(policy=POLICY).parsebytes(content))
        self.recipients.append(envelope.rcpt_tos)
        if self.breaks_off:
            server.transport.abort()
        return self.to_mail

    async def handle_QUIT(  # noqa: N802 - as above
        self, server: Any, _session: Session, _envelope: Envelope
    ) -> str:
        if not self.says_goodbye:
            server.transport.abort()
        return "221 bye"


class _Controller(Controller):
    def _trigger_server(self) -> None:
        self.port = self.server.sockets[0].getsockname()[1]  # type: ignore[union-attr] # it listens
        super()._trigger_server()


@contextmanager
def mailing(certificate: trustme.LeafCert | None, *, signs_in: bool = True) -> Iterator[MailServer]:
    """Serve on a free port of this machine, with STARTTLS where there is a certificate."""
    server = MailServer()
    context = None
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        certificate.configure_cert(context)
    controller = _Controller(
        server,
        hostname="127.0.0.1",
        port=0,
        tls_context=context,
        require_starttls=context is not None,
        authenticator=_authenticate if signs_in else None,
        auth_required=signs_in and context is not None,
        auth_require_tls=context is not None,
    )
    controller.start()
    server.port = controller.port
    try:
        yield server
    finally:
        controller.stop()


def _authenticate(
    server: Any, session: Session, envelope: Envelope, mechanism: str, given: LoginPassword
) -> AuthResult:
    return AuthResult(
        success=given == LoginPassword(USER.encode(), PASSWORD.encode()), handled=False
    )
