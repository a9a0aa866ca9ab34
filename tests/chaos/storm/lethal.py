"""What stands between the guard and its ports in a process that is to die: by chance, seeded.

A claim draws what befalls its process by its delivery and token alone, so that the same storm does
the same whichever process has the claim.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from typing import Any, Final

from leasehold.domain.delivery import Delivery, DeliveryState
from leasehold.domain.stored import Answer, DecideDocument, Document, Ref
from leasehold.ports.channel import Channel
from leasehold.ports.documents import Committed, Documents
from tests.chaos.storm.chance import KILLS, REFUSED, Kill, draw, roll, subject_of
from tests.chaos.storm.sender import post
from tests.worlds.wrapped import Wrapped

#: What the provider may take to note whom it is to kill.
PATIENCE_S: Final = 30.0


class Fate:
    """The fate of this process in its claims.

    Args:
        seed: of the storm.
        url: the provider's, which kills in the middle of a request.
        frozen_s: longer than a claim is good for.
    """

    def __init__(self, seed: int, url: str, frozen_s: float) -> None:
        self._seed = seed
        self._url = url
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
            post(f"{self._url}/kill", json.dumps(order).encode(), {}, PATIENCE_S)

    def is_refused(self, delivery: Delivery) -> bool:
        """Return whether a request reaches no server."""
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


class LethalDocuments(Wrapped[Documents]):
    """The documents port of a process that may die as it claims or has recorded a delivery."""

    def __init__(self, inner: Documents, fate: Fate) -> None:
        super().__init__(inner)
        self._fate = fate

    def transact(
        self, ref: Ref, decide: DecideDocument[Answer], **options: Any
    ) -> Committed[Answer]:
        """Do as the store does, and die afterwards where that is its fate."""
        committed: Committed[Answer] = self.inner.transact(ref, decide, **options)
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
        deaf: the same, to an address without a listener.
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


def _subject_of(delivery: Document) -> str:
    return f"{delivery['runId']}:{delivery['occurrence']}:{delivery['channel']}"


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
