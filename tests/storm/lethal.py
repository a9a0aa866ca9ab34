"""What stands between the guard and its ports in a process that is to die: by chance, seeded.

A claim draws what befalls its process by its delivery and token alone, so that the same storm does
the same whichever process has the claim.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from http.client import HTTPConnection
from typing import Any

from leasehold.domain.delivery import Delivery, DeliveryState
from leasehold.domain.document import Answer, DecideDocument, Document, Ref
from leasehold.errors import ChannelUnansweredError, ChannelUnavailableError
from leasehold.ports.channel import Channel
from leasehold.ports.documents import Committed, Documents
from leasehold.registry.channels import ChannelEntry
from tests.storm.chance import KILLS, REFUSED, Kill, draw, roll, subject_of
from tests.storm.provider import TIMEOUT_S


class Fate:
    """What befalls this process in its claims.

    Args:
        seed: of the storm.
        provider: the port of the provider, which kills in the middle of a request.
        frozen_s: longer than a claim is good for.
    """

    def __init__(self, seed: int, provider: int, frozen_s: float) -> None:
        self._seed = seed
        self._provider = provider
        self._frozen_s = frozen_s
        self._is_recorded_next = False

    def after_claim(self, delivery: Document) -> None:
        """Hear that a delivery is claimed by this process."""
        kill = self._of(_subject_of(delivery), delivery["token"])
        if kill is Kill.AFTER_CLAIM:
            _die()
        elif kill is Kill.FROZEN:
            threading.Event().wait(self._frozen_s)

    def before_send(self, delivery: Delivery) -> None:
        """Hear that a request begins."""
        if self._of(subject_of(delivery.key), delivery.token) is Kill.MEANWHILE:
            order = {"subject": subject_of(delivery.key), "pid": os.getpid()}
            post(self._provider, "/kill", json.dumps(order).encode())

    def is_refused(self, delivery: Delivery) -> bool:
        """Return whether nobody listens to a request."""
        return roll(self._seed, "refused", subject_of(delivery.key), delivery.token) < REFUSED

    def after_answer(self, delivery: Delivery) -> None:
        """Hear that the provider has answered."""
        kill = self._of(subject_of(delivery.key), delivery.token)
        if kill is Kill.AFTER_ANSWER:
            _die()
        self._is_recorded_next = kill is Kill.AFTER_RECORD

    def after_record(self) -> None:
        """Hear that a delivery is recorded as announced by this process."""
        if self._is_recorded_next:
            _die()

    def _of(self, subject: str, token: int) -> Kill | None:
        return draw(KILLS, self._seed, "kill", subject, token)


class LethalDocuments:
    """The documents port of a process that may die as it claims or has recorded a delivery."""

    def __init__(self, inner: Documents, fate: Fate) -> None:
        self._inner = inner
        self._fate = fate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def transact(
        self, ref: Ref, decide: DecideDocument[Answer], **options: Any
    ) -> Committed[Answer]:
        """Do as the store does, and die afterwards where that is its fate."""
        committed: Committed[Answer] = self._inner.transact(ref, decide, **options)
        if ref.collection == "deliveries" and committed.snapshot is not None:
            document = committed.snapshot.document
            if document["state"] == DeliveryState.CLAIMED:
                self._fate.after_claim(document)
            elif document["state"] == DeliveryState.ANNOUNCED:
                self._fate.after_record()
        return committed


class LethalChannel:
    """The channel port of a process that may die before, in and after each request.

    Args:
        inner: what sends.
        deaf: the same, to an address where nobody listens.
        fate: what befalls this process.
    """

    def __init__(self, inner: Channel, deaf: Channel, fate: Fate) -> None:
        self._inner = inner
        self._deaf = deaf
        self._fate = fate

    def send(self, delivery: Delivery, *, timeout: float) -> str | None:
        """Send, and die where that is the fate of this process."""
        if self._fate.is_refused(delivery):
            return self._deaf.send(delivery, timeout=timeout)
        self._fate.before_send(delivery)
        answer = self._inner.send(delivery, timeout=timeout)
        self._fate.after_answer(delivery)
        return answer


class HttpSender:
    """A sender of a user's own: one request to the provider, which takes keys."""

    def __init__(self, entry: ChannelEntry, port: int) -> None:
        self._name = entry.name
        self._port = port

    def send(self, delivery: Delivery, *, timeout: float) -> str | None:
        """Send one request."""
        seconds = min(timeout, TIMEOUT_S)
        try:
            status, wait = post(self._port, "/", b"{}", {"webhook-id": delivery.key}, seconds)
        except ConnectionRefusedError as error:
            raise ChannelUnavailableError(channel=self._name, problem=str(error)) from error
        except OSError as error:
            raise ChannelUnansweredError(channel=self._name, problem=str(error)) from error
        if status != 200:
            problem, after = f"answered {status}", None if wait is None else float(wait)
            raise ChannelUnavailableError(channel=self._name, problem=problem, retry_after_s=after)
        return None


def post(
    port: int,
    path: str,
    body: bytes,
    headers: dict[str, str] | None = None,
    timeout: float = TIMEOUT_S * 20,
) -> tuple[int, str | None]:
    """Return the status of an answer and its Retry-After."""
    connection = HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("POST", path, body, headers or {})
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.headers["retry-after"]
    finally:
        connection.close()


def _subject_of(delivery: Document) -> str:
    return f"{delivery['runId']}:{delivery['occurrence']}:{delivery['channel']}"


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
