"""Rates: how many may begin in any minute, handed out to processes in shares.

A share counts for the whole five seconds in which it was taken, used or not, and may be used only
in these: any 60 seconds touch 13 such spans, which have the limit together. So a minute never has
more than the limit, and a little less where it is used steadily: 12 spans of every 13.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, NamedTuple

from pydantic import AwareDatetime

from leasehold.domain.slots import slots_of
from leasehold.domain.stored import Ref, Stored, make, replace

SPAN_S: Final = 5
_SPANS: Final = 13

#: So much a minute has one document: one write a second, if each turn is taken by itself.
PER_DOCUMENT: Final = 60
#: So long after its turn a run that leads may come before another one is called in its place.
LATE_TURN_S: Final = 10


class GrantedSpan(Stored):
    """How many turns were handed out in one span, by its number since 1970."""

    span: int
    count: int


class Rate(Stored):
    """A part of a rate: what was handed out of it lately, and whose turn is next."""

    key: str
    granted: tuple[GrantedSpan, ...] = ()
    lead_at: AwareDatetime | None = None  # when the run that leads has its turn

    @property
    def used_at(self) -> datetime | None:
        """When a turn of it was handed out the last time, or is to be; None: never."""
        spans = [_start_of(one.span) for one in self.granted]
        return max([*spans, *filter(None, [self.lead_at])], default=None)


class Grant(NamedTuple):
    """Turns that were handed out; where there are none, `next_at` says when there are some.

    They may be used before `until`. `is_changed` says whether the rate is to be stored.
    """

    turns: int
    until: datetime
    next_at: datetime
    rate: Rate
    is_changed: bool


def rate_ref(key: str, part: int) -> Ref:
    """Return the name of the document of a part of a rate."""
    return Ref("slots", f"{slots_of(key)[:-1]}r{part}")


def parts_of(most: int, lowered_to: int | None = None) -> list[int]:
    """Return how many a minute each part of a rate has, of as many as there may be now."""
    count, room = -(-most // PER_DOCUMENT), most if lowered_to is None else lowered_to
    return [room // count + (part < room % count) for part in range(count)]


def grant(rate: Rate, now: datetime, most: int, wanted: int) -> Grant:
    """Hand out up to so many turns of a part that has `most` a minute.

    What was handed out later than now, by a clock that was set back since, counts as of now: so it
    is over in a minute, and not when the clock is there again.
    """
    span = int(now.timestamp()) // SPAN_S
    if is_set_back := any(one.span > span for one in rate.granted):
        count = sum(one.count for one in rate.granted if one.span >= span)
        before = [one for one in rate.granted if one.span < span]
        rate = replace(rate, granted=(*before, make(GrantedSpan, span=span, count=count)))
    recent = [one for one in rate.granted if one.span > span - _SPANS]
    room = most - sum(one.count for one in recent)
    count = max(0, min(wanted, room))
    if not count:
        next_at = _start_of(min(one.span for one in recent) + _SPANS)
        return Grant(0, _start_of(span + 1), next_at, rate, is_set_back)
    if recent and recent[-1].span == span:
        recent[-1] = replace(recent[-1], count=recent[-1].count + count)
    else:
        recent.append(make(GrantedSpan, span=span, count=count))
    granted = replace(rate, granted=tuple(recent))
    return Grant(count, _start_of(span + 1), now, granted, True)


def is_led(rate: Rate, now: datetime) -> bool:
    """Return whether a run has its turn about now, and calls the others of its line.

    No turn is as far ahead as a minute and a bit: one that is, is of a clock that was set back.
    """
    if rate.lead_at is None:
        return False
    ahead_s = (rate.lead_at - now).total_seconds()
    return -LATE_TURN_S < ahead_s <= _SPANS * SPAN_S


def _start_of(span: int) -> datetime:
    return datetime.fromtimestamp(span * SPAN_S, UTC)
