"""E-mail, by a mail server that proves who it is: STARTTLS is required."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
import smtplib
import socket
import ssl
from collections.abc import Callable, Mapping
from email.message import EmailMessage
from email.parser import BytesHeaderParser
from email.policy import SMTP as SMTP_POLICY
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final

from leasehold.adapters.channels.bounded_call import BoundedCall
from leasehold.adapters.channels.variables import Variables
from leasehold.domain.announcement import Priority
from leasehold.domain.delivery import MAX_SUMMARY_CHARS, Delivery
from leasehold.domain.event_message import announced_facts
from leasehold.errors import (
    ChannelRefusedError,
    ChannelUnavailableError,
    LeaseholdError,
)
from leasehold.registry.channels import EmailChannel

if TYPE_CHECKING:
    from leasehold.adapters.channels.factory import ChannelOpener

_LOG: Final = logging.getLogger("leasehold.channels")
_SUBMISSION_PORT: Final = 587
_SERVER: Final = re.compile(r"(?P<host>[A-Za-z0-9._-]{1,253})(?::(?P<port>[0-9]{1,5}))?")
_MAX_PORT: Final = 65_535
_MAX_ANSWER_BYTES: Final = 64 * 1024
#: The subject of a mail whose own one no library can be trusted with.
PLAIN_SUBJECT: Final = "[leasehold] A run has ended, or waits for a person"
_DETAILED_CODE: Final = re.compile(rb"[245]\.[0-9]{1,3}\.[0-9]{1,3}")


class EmailSender:
    """Sends each announcement as one e-mail to all recipients.

    Args:
        entry: the channel.
        opener: has the variables with its server, and with what it signs in.
    """

    def __init__(self, entry: EmailChannel, opener: ChannelOpener) -> None:
        self._entry = entry
        self._variables = Variables(opener.environ, entry.name)
        self._clock = opener.clock
        self._base_url = opener.base_url

    def send(self, delivery: Delivery, *, timeout: float) -> str:
        """Send the mail; return its Message-ID, the same at each try."""
        call = BoundedCall(self._entry.name, timeout)
        return call.run(partial(self._send, call, delivery))

    def _send(self, call: BoundedCall, delivery: Delivery) -> str:
        content = self._content(delivery)
        host, port = self._server()
        credentials = self._credentials()
        try:
            with contextlib.closing(_Smtp(call, host, port)) as server:
                self._sign_in(server, credentials)
                self._deliver(call, server, content)
        except smtplib.SMTPResponseException as error:
            if error.smtp_code < 0:  # that was not an answer
                raise
            raise self._refused(error.smtp_code, error.smtp_error) from None
        return message_id(delivery.key, self._entry.sender)

    def _sign_in(self, server: smtplib.SMTP, credentials: tuple[str, str] | None) -> None:
        server.ehlo_or_helo_if_needed()
        if not server.has_extn("starttls"):
            raise self._unavailable("the mail server offers no STARTTLS, and nothing is sent open")
        server.starttls(context=ssl.create_default_context())
        server.ehlo_or_helo_if_needed()
        if credentials is None:
            return
        try:
            server.login(*credentials)
        except smtplib.SMTPNotSupportedError:
            raise self._unavailable("the mail server offers no sign-in") from None

    def _deliver(self, call: BoundedCall, server: smtplib.SMTP, content: bytes) -> None:
        """Hand the mail over; those that are refused for good keep no other from it."""
        _expect(server.mail(self._entry.sender))
        refusals = []
        for recipient in self._entry.recipients:
            try:
                _expect(server.rcpt(recipient))
            except smtplib.SMTPResponseException as refusal:
                if not _is_for_good(refusal.smtp_code):
                    raise  # all are tried again, and none has it so far
                refusals.append(refusal)
        if len(refusals) == len(self._entry.recipients):
            raise refusals[0]
        call.begin_sending()
        _expect(server.data(content))
        if refusals:
            count = f"{len(refusals)} of {len(self._entry.recipients)} recipients"
            _LOG.warning("channel %s: the mail server refuses %s", self._entry.name, count)
        with contextlib.suppress(smtplib.SMTPException, OSError):
            server.quit()  # it has the mail

    def _content(self, delivery: Delivery) -> bytes:
        """Return the mail as it is sent; none whose headers are others than those set."""
        facts = announced_facts(delivery, self._base_url)
        subject = f"[leasehold] {without_encoded_words(facts['summary'])[:MAX_SUMMARY_CHARS]}"
        content = content_of(partial(self._message, delivery, facts), subject)
        if content is None:
            problem = "its sender or a recipient cannot stand in the header of a mail"
            raise ChannelRefusedError(channel=self._entry.name, problem=problem)
        return content

    def _message(self, delivery: Delivery, facts: Mapping[str, Any], subject: str) -> EmailMessage:
        message = EmailMessage(policy=SMTP_POLICY)
        message["From"] = self._entry.sender
        message["To"] = ", ".join(self._entry.recipients)
        message["Subject"] = subject
        message["Date"] = self._clock.now()
        message["Message-ID"] = message_id(delivery.key, self._entry.sender)
        message["Auto-Submitted"] = "auto-generated"
        if delivery.priority == Priority.HIGH:
            message["Importance"] = "high"
        message.set_content(self._text(facts), cte="quoted-printable")
        return message

    def _text(self, facts: Mapping[str, Any]) -> str:
        lines = [facts["summary"], facts.get("detail", "")]
        lines += [f"{name}: {facts[name]}" for name in ("runId", "pipeline", "step", "event")]
        if self._base_url:
            lines += [f"{name}: {url}" for name, url in facts["links"].items()]
        return "\n".join(line for line in lines if line) + "\n"

    def _server(self) -> tuple[str, int]:
        name = self._entry.server_variable
        found = _SERVER.fullmatch(self._variables.read(name))
        port = int(found["port"] or _SUBMISSION_PORT) if found else 0
        if found is None or not 0 < port <= _MAX_PORT:
            raise self._unavailable(f"{name} is not HOST or HOST:PORT")
        return found["host"], port

    def _credentials(self) -> tuple[str, str] | None:
        user, password = self._entry.user_variable, self._entry.password_variable
        if user is None or password is None:
            return None
        return self._variables.read(user), self._variables.read(password)

    def _refused(self, code: int, words: bytes | str) -> LeaseholdError:
        """Return the error of an answer; its words are the server's, and only codes are kept."""
        raw = words if isinstance(words, bytes) else words.encode("utf-8", "replace")
        detailed = _DETAILED_CODE.match(raw)
        further = f" {detailed[0].decode()}" if detailed else ""
        problem = f"the mail server answered {code}{further}"
        if _is_for_good(code):
            return ChannelRefusedError(channel=self._entry.name, problem=problem)
        return self._unavailable(problem)

    def _unavailable(self, problem: str) -> ChannelUnavailableError:
        return ChannelUnavailableError(channel=self._entry.name, problem=problem)


def without_encoded_words(text: str) -> str:
    """Return the text with nothing in it that a reader of headers would decode.

    Some libraries decode `=?utf-8?q?=0d=0a?=` where it is only to be written, and so end the line.
    """
    return text.replace("=?", "= ?")


def content_of(make: Callable[[str], EmailMessage], subject: str) -> bytes | None:
    """Return the mail that is made with this subject, or else with a fixed one.

    What was written is read again, as its server reads it: it has the headers that were set, each
    on its own lines, and no others. None: it has not, whatever its subject.
    """
    for each in (subject, PLAIN_SUBJECT):
        try:
            message = make(each)
            content = message.as_bytes()
            read = BytesHeaderParser().parsebytes(content)
        except Exception:  # noqa: BLE001, S112 - any error of the library: it is reported
            continue
        is_plain = all(" ".join(str(value).splitlines()).isprintable() for value in read.values())
        if read.keys() == message.keys() and is_plain:
            return content
    return None


class _Smtp(smtplib.SMTP):
    """A connection that ends with its call, from its first byte on."""

    def __init__(self, call: BoundedCall, host: str, port: int) -> None:
        self._call = call
        super().__init__(host, port, timeout=call.seconds_left())

    def getreply(self) -> tuple[int, bytes]:
        """Return an answer; one without end ends the connection, before it fills the memory."""
        if self.file is None and self.sock is not None:
            self.file = _Answers(self.sock.makefile("rb"))
        if isinstance(self.file, _Answers):
            self.file.left = _MAX_ANSWER_BYTES
        return super().getreply()

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        connection = socket.create_connection((host, port), timeout)
        self._call.use(connection)
        return connection


class _Answers:
    """The answers of a mail server, line by line, with a limit of bytes for each."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.left = 0

    def readline(self, most: int) -> bytes:
        """Return the next line; nothing, as at the end, where the answer is too long.

        A line that is too long is given in parts, which are no answers: `smtplib` would take it
        for a refusal.
        """
        line = self._file.readline(min(most - 1, self.left))
        self.left -= len(line)
        return line

    def close(self) -> None:
        """Close it."""
        self._file.close()


def message_id(key: str, sender: str) -> str:
    """Return the Message-ID of an announcement: mail programs show one that they have only once."""
    name = hashlib.sha256(key.encode()).hexdigest()[:32]
    return f"<{name}@{sender.rpartition('@')[2]}>"


def _expect(answer: tuple[int, Any]) -> None:
    code, words = answer
    if not 200 <= code < 300:  # noqa: PLR2004 - 2xx: it is done
        raise smtplib.SMTPResponseException(code, words)


def _is_for_good(code: int) -> bool:
    return 500 <= code < 600  # noqa: PLR2004 - 5xx: permanent
