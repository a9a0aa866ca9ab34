"""What befalls a request or a claim in the storm: by chance, and the same for the same seed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeVar


class Weather(StrEnum):
    """What a provider does with a request; without any it takes it and says so."""

    ERROR = "500"
    BUSY = "429 with Retry-After"
    SILENT = "taken, and no answer"
    SLOW = "taken, and a slow answer"


class Kill(StrEnum):
    """Where the process that delivers is killed."""

    AFTER_CLAIM = "between claim and send"
    MEANWHILE = "between send and answer"
    AFTER_ANSWER = "between answer and record"
    AFTER_RECORD = "after the record"
    FROZEN = "frozen until its claim is over"  # and not killed


#: 20 % of all requests fail or are answered late: these, and those that find nobody listening.
WEATHER: Final[Mapping[Weather, float]] = dict.fromkeys(Weather, 0.04)
REFUSED: Final = 0.04

KILLS: Final[Mapping[Kill, float]] = {
    Kill.AFTER_CLAIM: 0.03,
    Kill.MEANWHILE: 0.03,
    Kill.AFTER_ANSWER: 0.03,
    Kill.AFTER_RECORD: 0.03,
    Kill.FROZEN: 0.01,
}

#: Of senders that leave it to the provider, at the first request of a delivery.
ENDS_OF_SENDERS: Final[Mapping[Kill, float]] = {Kill.MEANWHILE: 0.1, Kill.AFTER_ANSWER: 0.1}

#: How many of the messages that are published never come.
LOST: Final = 0.1

Kind = TypeVar("Kind")


def draw(shares: Mapping[Kind, float], *names: object) -> Kind | None:
    """Return one of the kinds, each in its share of all names; None: nothing happens."""
    rolled = roll(*names)
    for kind, share in shares.items():
        if rolled < share:
            return kind
        rolled -= share
    return None


def roll(*names: object) -> float:
    """Return a number from 0 to 1 that depends on the names alone."""
    digest = hashlib.sha256(":".join(map(str, names)).encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64


def subject_of(key: str) -> str:
    """Return which delivery a key is of: the run's mark differs from storm to storm."""
    return ":".join(key.split(":")[:3])
