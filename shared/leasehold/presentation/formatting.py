"""Texts with a style, and times."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

_UNITS: Final = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_DECIMALS_BELOW_S: Final = 10


class StyledText(NamedTuple):
    """A text, its style, and a form of it for eyes alone.

    Args:
        text: the whole of it, for programs as well.
        style: a colour, `bold`, `dim`, or several of them, with blanks between.
        short_form: for a screen, with icons; None: the text.
    """

    text: str
    style: str = ""
    short_form: str | None = None

    @property
    def on_screen(self) -> str:
        """The form for a screen."""
        return self.text if self.short_form is None else self.short_form


def duration(span: timedelta, units: int = 2) -> str:
    """Return a span in a limited number of units: `0.4 s`, `12 s`, `3 min 5 s`, `2 d 4 h`."""
    seconds = max(0.0, span.total_seconds())
    if seconds < _DECIMALS_BELOW_S:
        return f"{seconds:.1f} s"
    left = round(seconds)
    parts: list[tuple[int, str]] = []
    for size, unit in _UNITS:
        if (count := left // size) or parts:
            parts.append((count, unit))
        left %= size
    return " ".join(f"{count} {unit}" for count, unit in parts[:units] if count)


def ago(at: datetime, now: datetime) -> str:
    """Return how long ago that was, or how soon it will be."""
    return f"in {duration(at - now, 1)}" if at > now else f"{duration(now - at, 1)} ago"


def stamp(at: datetime) -> str:
    """Return the time in RFC 3339, UTC, to the millisecond."""
    with contextlib.suppress(OverflowError):  # the first or last hours that a calendar has
        at = at.astimezone(UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
