"""Signals: what is sent to a run from outside, and what the run waits for of it.

Sender and waiter write the same document, that of the run, so neither can miss the other: a signal
that comes before the wait is kept in the run, and one that comes after it has the run go on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from pydantic import AwareDatetime

from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.stored import Stored, replace

#: The code of a block that waits for a signal.
WAITING: Final = "waiting"
#: So many signals of a run are known by their ids, those that were taken included.
MAX_SIGNALS: Final = 100
#: No wait is shorter, nor longer than this: a run is a matter of a calendar, not of an archive.
MIN_SIGNAL_WAIT: Final = timedelta(seconds=1)
MAX_SIGNAL_WAIT: Final = timedelta(days=3660)
#: So many characters may a name and an id have.
MAX_SIGNAL_NAME_CHARS: Final = 128
NAME_WORDS: Final = f"1 to {MAX_SIGNAL_NAME_CHARS} of a-z A-Z 0-9 . _ -, and not . or .. alone"
_NAME: Final = re.compile(rf"[A-Za-z0-9_.-]{{1,{MAX_SIGNAL_NAME_CHARS}}}")
#: And so many are kept of the path of a model, and of why a signal was refused.
MAX_MODEL_PATH_CHARS: Final = 300
MAX_REFUSAL_CHARS: Final = 500


class Otherwise(StrEnum):
    """The end of a wait whose time is over without a signal."""

    BLOCK = "block"  # a person decides; a signal still counts
    CONTINUE = "continue"  # the run goes on without a value
    FAIL = "fail"  # it is an error that no retry can repair


class Signal(Stored):
    """A value that was sent to a run by name; or, `is_missed`, that a wait ended without one.

    `taken_by` names the step and trial that has it, which every attempt of it is given again; the
    value itself is dropped once that step is handed off. `digest` is that of the value: the same
    id counts once, and may not come with another value.
    """

    name: str
    id: str
    at: AwareDatetime
    digest: str = ""
    inline: str | None = None
    ref: str | None = None
    taken_by: str | None = None  # None: nothing has waited for it so far
    is_missed: bool | None = None  # None: it is a signal

    @property
    def value(self) -> KeptValue:
        """The value, or where it lies."""
        return KeptValue(text=self.inline, ref=self.ref)

    @property
    def size(self) -> int:
        """The bytes of the value in its manifest."""
        return 0 if self.inline is None else len(self.inline.encode())


class WaitRule(Stored):
    """A place of a plan that waits for the signal of its name: for how long, and what then."""

    timeout_s: float | None = None  # None: for any time
    otherwise: str = Otherwise.BLOCK.value
    model: str | None = None  # the path of the model that a signal has to fit; None: any value

    def begun(self, name: str, now: datetime) -> Wait:
        """Return the wait that begins now."""
        timeout = None if self.timeout_s is None else timedelta(seconds=self.timeout_s)
        return Wait(
            name=name,
            since=now,
            until=None if timeout is None else now + timeout,
            otherwise=self.otherwise,
            model=self.model,
        )


class Wait(Stored):
    """What the step at hand waits for: a signal, since when and until when, and what then."""

    name: str
    since: AwareDatetime
    until: AwareDatetime | None = None  # None: for any time
    otherwise: str = Otherwise.BLOCK.value
    model: str | None = None  # the path of the model that a signal has to fit; None: not known
    is_over: bool | None = None  # its time is over, and a person decides; None: it is not
    refused: str | None = None  # why the last signal did not count; None: none was refused

    @property
    def then(self) -> str:
        """The end of it once its time is over, in words."""
        return _THEN.get(self.otherwise, "a person decides")


_THEN: Final = {
    Otherwise.BLOCK.value: "a person decides",
    Otherwise.CONTINUE.value: "the run goes on without it",
    Otherwise.FAIL.value: "the wait fails",
}


def is_signal_name(text: object) -> bool:
    """Return whether a signal may have this name, or this id: it is a part of an address."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None and text not in (".", "..")


def place_of(step: str, trial: int) -> str:
    """Return what names a step and its trial as the taker of a signal."""
    return f"{step}-{trial}"


def signal_for(signals: Sequence[Signal] | None, name: str, taker: str) -> Signal | None:
    """Return the signal that a step is given for a name: the one it has, else the first free one.

    Args:
        signals: of the run, in the order in which they came.
        name: of the signal.
        taker: the step, as `place_of` names it.
    """
    named = [one for one in signals or () if one.name == name]
    taken = next((one for one in named if one.taken_by == taker), None)
    return taken or next((one for one in named if one.taken_by is None), None)


def with_taken(signals: Sequence[Signal], name: str, taker: str) -> tuple[Signal, ...]:
    """Return the signals with the one of that name noted as the step's own."""
    found = signal_for(signals, name, taker)
    return tuple(replace(one, taken_by=taker) if one is found else one for one in signals)


def with_missed(
    signals: Sequence[Signal] | None, name: str, taker: str, now: datetime
) -> tuple[Signal, ...]:
    """Return the signals with a note that a step waited for one in vain."""
    missed = Signal(name=name, id=f"missed-{taker}", at=now, taken_by=taker, is_missed=True)
    return bounded((*(signals or ()), missed))


def without_values_of(signals: Sequence[Signal], taker: str) -> tuple[Signal, ...]:
    """Return the signals without the values that a step had, which is done."""
    return tuple(
        replace(one, inline=None, ref=None) if one.taken_by == taker else one for one in signals
    )


def bounded(signals: Sequence[Signal]) -> tuple[Signal, ...]:
    """Return as many signals as a run keeps: the oldest go whose values nothing needs any more."""
    surplus = len(signals) - MAX_SIGNALS
    kept = []
    for one in signals:
        is_done = one.taken_by is not None and one.inline is None and one.ref is None
        if surplus > 0 and is_done and not one.is_missed:
            surplus -= 1
            continue
        kept.append(one)
    return tuple(kept)
