"""When a limit that adapts is halved, and how it grows again.

Nothing counts up: the number at a time follows from the document of the last halving, the
only time that it is written.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Final

from pydantic import AwareDatetime

from leasehold.domain.slots import slots_of
from leasehold.domain.stored import Ref, Stored, make, replace
from leasehold.domain.timestamps import stamp

#: The ids of these documents begin so: who looks at all keys that are lowered reads no others.
LOWERED: Final = "lowered-"

#: So much of its limit it grows by, each time that so long has passed.
GROWTH: Final = 1 / 8
GROWS_EVERY: Final = timedelta(minutes=1)
#: Whatever a provider asks for, a limit begins to grow after this.
MAX_LOWERED_WINDOW: Final = timedelta(hours=1)
#: Of any share, it is whole again after this; and for as long once more, those that end attempts
#: call more runs than one: the line is to learn of the room.
_WHOLE_AFTER: Final = GROWS_EVERY / GROWTH


class LoweredLimit(Stored):
    """The last halving of the limit of a key, or the last look that put its growth off.

    Until `grows_from`, one window, it is not halved again: its provider asked for that time.
    """

    key: str
    share: float  # of the limit, from then on
    lowered_at: AwareDatetime  # the last halving
    grows_from: AwareDatetime

    @property
    def used_at(self) -> datetime:
        """The last time at which it was as low as it is here."""
        return self.grows_from

    def share_at(self, now: datetime) -> float:
        """Return which share of the limit holds."""
        steps = max(0, math.floor((now - self.grows_from) / GROWS_EVERY))
        return min(1.0, self.share + steps * GROWTH)

    def most_at(self, now: datetime, most: int) -> int:
        """Return how many of `most` there may be now."""
        return max(1, int(most * self.share_at(now)))

    def is_over(self, now: datetime) -> bool:
        """Return whether nothing is left of it to see to."""
        return now >= self.grows_from + 2 * _WHOLE_AFTER

    def words(self, now: datetime, most: int, *, is_rate: bool) -> str:
        """Return what it comes to now, as a sentence; empty: nothing."""
        room = self.most_at(now, most)
        if room == most:
            return ""
        what = "a minute" if is_rate else "at once"
        return (
            f"The limit is lowered to {room} {what}, as its provider took no more at "
            f"{stamp(self.lowered_at)}; from {stamp(self.grows_from)} on it grows again."
        )


def lowered_ref(key: str) -> Ref:
    """Return the name of the document of a key."""
    return Ref("slots", f"{LOWERED}{slots_of(key)[:-1]}")


def lowered(
    before: LoweredLimit | None,
    now: datetime,
    *,
    key: str,
    most: int,
    began: datetime,
    retry_after: timedelta,
) -> LoweredLimit | None:
    """Return what a limit comes to once its provider takes no more; None: what it is.

    It is halved once in the time that the provider asks for, and only by what began under the
    number that holds: many attempts that are refused at one moment are one piece of news. One that
    began before the last halving only puts its growth off.

    Args:
        before: what holds; None: all of it.
        now: the store's time.
        key: of the limit.
        most: its number; the higher one, where it has two.
        began: when the attempt or the call that was refused began.
        retry_after: the time that the provider asks for.
    """
    if before is not None and now < before.grows_from:
        return None
    share = 1.0 if before is None else before.share_at(now)
    grows_from = now + min(max(retry_after, timedelta()), MAX_LOWERED_WINDOW)
    is_news = before is None or began >= before.lowered_at
    if is_news and int(most * share) > 1:
        return make(LoweredLimit, key=key, share=share / 2, lowered_at=now, grows_from=grows_from)
    return None if before is None else replace(before, share=share, grows_from=grows_from)
