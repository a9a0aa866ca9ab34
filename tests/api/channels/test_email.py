"""A mail goes out once to all its recipients, encrypted, and with a name that each try repeats."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage, Message
from email.parser import BytesParser
from email.policy import SMTP
from typing import Any

import pytest
import trustme
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope, LoginPassword, Session

from leasehold import EmailChannel
from leasehold.adapters.channels.smtp import PLAIN_SUBJECT, content_of
from leasehold.errors import (
    ChannelRefusedError,
    ChannelUnansweredError,
    ChannelUnavailableError,
    LeaseholdError,
)
from tests.worlds.deliveries import NOW, SHORT_S, TIMEOUT_S, delivery, opener

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
        self.mails.append(BytesParser(policy=SMTP).parsebytes(content))
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


OPS, ADA = "ops@shop.example", "ada@shop.example"
TEAM = EmailChannel(name="team", sender="leasehold@shop.example", recipients=(OPS, ADA))


@pytest.fixture
def server(trusted: trustme.CA) -> Iterator[MailServer]:
    with mailing(trusted.issue_cert("localhost")) as server:
        yield server


def environ_of(server: MailServer, **others: str) -> dict[str, str]:
    return {
        "SMTP_SERVER": f"localhost:{server.port}",
        "SMTP_USER": USER,
        "SMTP_PASSWORD": PASSWORD,
        **others,
    }


def send(server: MailServer, entry: EmailChannel = TEAM, **environ: str) -> str | None:
    return opener(environ_of(server, **environ))(entry).send(delivery(), timeout=TIMEOUT_S)


def error_of(server: MailServer, **environ: str) -> LeaseholdError:
    with pytest.raises(LeaseholdError) as refused:
        send(server, **environ)
    assert PASSWORD not in f"{refused.value!r} {refused.value.details}"
    return refused.value


def test_a_mail_says_what_happened_and_where_to_look(server: MailServer) -> None:
    name = send(server)

    (mail,) = server.mails
    assert isinstance(mail, EmailMessage)
    assert server.recipients == [[OPS, ADA]]
    assert (mail["From"], mail["To"]) == ("leasehold@shop.example", f"{OPS}, {ADA}")
    assert (
        mail["Subject"].strip()
        == "[leasehold] Run letters-1 of pipeline letters is blocked at step send."
    )
    assert mail["Date"].datetime == NOW
    assert (mail["Auto-Submitted"], mail["Importance"]) == ("auto-generated", "high")
    assert mail["Message-ID"] == name
    text = mail.get_content()
    assert "The letter names no recipient." in text
    assert "why: https://shop.example/runs/letters-1/why" in text


def test_each_try_has_the_same_name_and_another_announcement_another(server: MailServer) -> None:
    sender = opener(environ_of(server))(TEAM)
    names = [
        sender.send(told, timeout=TIMEOUT_S)
        for told in (delivery(), delivery(tries=2, token=2), delivery(occurrence="8"))
    ]

    assert names[0] == names[1] != names[2]
    assert [mail["Message-ID"] for mail in server.mails] == names


def test_no_text_of_a_run_becomes_a_header(server: MailServer) -> None:
    hostile = "Done\r\nBcc: all@shop.example\r\n\r\n<script>\u202e\ud800"
    told = delivery(summary=hostile, detail="\r\n.\r\nMAIL FROM:<x@y.example>\r\n")

    opener(environ_of(server))(TEAM).send(told, timeout=TIMEOUT_S)

    (mail,) = server.mails
    assert mail["Bcc"] is None
    assert mail["Subject"].strip().startswith("[leasehold] Done Bcc: all@shop.example")
    assert server.recipients == [[OPS, ADA]]


HEADERS = [
    "From",
    "To",
    "Subject",
    "Date",
    "Message-ID",
    "Auto-Submitted",
    "Importance",
    "Content-Type",
    "Content-Transfer-Encoding",
    "MIME-Version",
]


@pytest.mark.parametrize(
    "hostile",
    [
        "=?utf-8?q?x=0d=0aReply-To:all=40shop.example=0d=0a=0d=0aBelieve_me.?=",
        "=?UTF-8?B?DQpCY2M6IGFsbEBzaG9wLmV4YW1wbGUNCg0KSGk=?=",
        "=?utf-8?q?a?= =?utf-8?q?=0aBcc:all=40shop.example?=",
        "==??utf-8?q?=0d=0aBcc:all=40shop.example?=",
        "=?utf-8?q?a=00b=1b[31mc=0bd=85e?=",
        "=?utf-8?q?",
        "=?" * 400,
        "é" * 5000,
        "x" * 5000,
    ],
)
def test_no_text_of_a_run_is_decoded_into_a_header(server: MailServer, hostile: str) -> None:
    """CPython 3.11.7 and 3.12.1 write the decoded words, line ends and all."""
    told = delivery(summary=f"Run {hostile} is blocked", detail=hostile, step=hostile)

    opener(environ_of(server))(TEAM).send(told, timeout=TIMEOUT_S)

    (mail,) = server.mails
    assert mail.keys() == HEADERS
    assert isinstance(mail, EmailMessage)
    assert mail.get_content().startswith("Run ")
    assert len(mail["Subject"]) < 400
    assert mail["Subject"].replace("\r\n", "").isprintable()
    assert mail["Subject"].strip().startswith("[leasehold] Run ")


def test_a_subject_that_becomes_a_header_gives_way_to_a_fixed_one() -> None:
    """The mail is read again before it is sent, whatever a library makes of a text."""

    class Credulous(EmailMessage):
        def as_bytes(self, *args: Any, **options: Any) -> bytes:
            return super().as_bytes(*args, **options).replace(b"LINE", b"\r\nBcc: x@y.example")

    def make(subject: str) -> EmailMessage:
        message = Credulous(policy=SMTP)
        message["Subject"] = subject
        message["To"] = "ops@shop.example"
        message.set_content("text")
        return message

    harmless = content_of(make, "[leasehold] Done")
    fixed = content_of(make, "[leasehold] DoneLINE")

    assert harmless is not None
    assert fixed is not None
    assert b"Subject: [leasehold] Done\r\n" in harmless
    assert f"Subject: {PLAIN_SUBJECT}\r\n".encode() in fixed
    assert b"Bcc" not in fixed


def test_an_address_that_becomes_a_header_is_refused(server: MailServer) -> None:
    entry = EmailChannel(
        name="team",
        sender="=?utf-8?q?a=0d=0aBcc=3Ax=40y.example=0d=0a?=@z.example",
        recipients=(OPS,),
    )

    try:
        send(server, entry)
    except ChannelRefusedError as refused:
        assert "cannot stand in the header" in refused.message  # noqa: PT017 - others write it whole

    assert [mail.keys() for mail in server.mails] in ([], [HEADERS])


def test_without_starttls_nothing_is_sent_open(trusted: trustme.CA) -> None:
    with mailing(None) as server:
        error = error_of(server)

    assert type(error) is ChannelUnavailableError
    assert "offers no STARTTLS" in error.message
    assert server.mails == []


def test_a_server_with_another_name_gets_nothing(trusted: trustme.CA) -> None:
    with mailing(trusted.issue_cert("other.example")) as server:
        error = error_of(server)

    assert type(error) is ChannelUnavailableError
    assert "certificate is not accepted" in error.message
    assert server.mails == []


def test_a_wrong_password_is_a_refusal(server: MailServer) -> None:
    error = error_of(server, SMTP_PASSWORD="wrong")  # noqa: S106 - it is

    assert type(error) is ChannelRefusedError
    assert "answered 535 5.7.8" in error.message


def test_it_need_not_sign_in(trusted: trustme.CA) -> None:
    entry = EmailChannel(
        name="team",
        sender="leasehold@shop.example",
        recipients=(OPS,),
        user_variable=None,
        password_variable=None,
    )
    with mailing(trusted.issue_cert("localhost"), signs_in=False) as server:
        send(server, entry)

    assert len(server.mails) == 1


def test_one_recipient_that_is_unknown_keeps_no_other_from_it(
    server: MailServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.to_recipient[OPS] = "550 5.1.1 nobody of that name"

    send(server)

    assert server.recipients == [[ADA]]
    assert "the mail server refuses 1 of 2 recipients" in caplog.text


def test_where_all_are_unknown_it_is_refused(server: MailServer) -> None:
    server.to_recipient = dict.fromkeys((OPS, ADA), "550 5.1.1 nobody of that name")

    error = error_of(server)

    assert type(error) is ChannelRefusedError
    assert "answered 550 5.1.1" in error.message


def test_one_that_is_busy_has_all_wait_so_that_none_gets_it_twice(server: MailServer) -> None:
    server.to_recipient[ADA] = "451 4.7.1 come again"

    assert type(error_of(server)) is ChannelUnavailableError
    assert server.mails == []


@pytest.mark.parametrize(
    ("answer", "kind"),
    [("554 5.7.1 no", ChannelRefusedError), ("452 4.3.1 later", ChannelUnavailableError)],
)
def test_the_codes_of_the_answer_to_the_mail_decide_and_its_words_are_not_kept(
    server: MailServer, answer: str, kind: type[LeaseholdError]
) -> None:
    server.to_mail = f"{answer}, {PASSWORD}"

    error = error_of(server)

    assert type(error) is kind
    assert error.message.endswith(f"the mail server answered {answer.rpartition(' ')[0]}.")


def test_a_server_that_breaks_off_once_it_has_the_mail_gets_it_once(server: MailServer) -> None:
    server.says_goodbye = False

    send(server)

    assert len(server.mails) == 1


def test_without_an_answer_to_it_the_result_is_unknown(server: MailServer) -> None:
    server.breaks_off = True

    assert type(error_of(server)) is ChannelUnansweredError


@pytest.mark.parametrize(
    "text", ["mail.example:x", "mail.example:0", "a b", "mail.example:65536", "[::1]:25"]
)
def test_a_bad_server_address_is_reported(server: MailServer, text: str) -> None:
    assert "SMTP_SERVER is not HOST or HOST:PORT" in error_of(server, SMTP_SERVER=text).message


def test_a_server_that_sends_a_byte_now_and_then_blocks_nothing(server: MailServer) -> None:
    """Nothing was sent by then, and nothing is unknown."""
    met, ending = threading.Event(), threading.Event()

    def drip() -> None:
        connection, _ = listener.accept()
        met.set()
        with connection, contextlib.suppress(OSError):  # its caller is gone
            while not ending.wait(0.02):
                connection.send(b"2")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        dripping = threading.Thread(target=drip)
        dripping.start()
        address = f"localhost:{listener.getsockname()[1]}"
        sender = opener(environ_of(server, SMTP_SERVER=address))(TEAM)
        for timeout in SHORT_S:
            with pytest.raises(ChannelUnavailableError) as refused:
                sender.send(delivery(), timeout=timeout)
            if met.is_set():
                break
        dripping.join(30)

    assert not dripping.is_alive()
    ending.set()
    assert type(refused.value) is ChannelUnavailableError


@pytest.mark.parametrize("line", [b"220-" + b"x" * 1000 + b"\r\n", b"220 " + b"x" * 100_000])
def test_a_server_that_says_too_much_fills_no_memory(server: MailServer, line: bytes) -> None:
    """Nor is it a refusal: another server may stand there the next time."""

    def flood() -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):  # its caller has heard enough
            while True:
                connection.sendall(line)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        flooding = threading.Thread(target=flood)
        flooding.start()
        error = error_of(server, SMTP_SERVER=f"localhost:{listener.getsockname()[1]}")
        flooding.join(30)

    assert type(error) is ChannelUnavailableError
    assert "no answer within" not in error.message
