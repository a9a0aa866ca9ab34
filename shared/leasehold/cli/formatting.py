"""How times, states and values are said in one line."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from leasehold.domain.manifest import KeptValue, Manifest
from leasehold.domain.printable import printable
from leasehold.domain.status import RunStatus
from leasehold.domain.summary import Summary

SKULL: Final = "💀"

_STYLES: Final = {
    RunStatus.PENDING: "cyan",
    RunStatus.IN_PROGRESS: "blue",
    RunStatus.ERROR: "red",
    RunStatus.BLOCKED: "yellow",
    RunStatus.COMPLETED: "green",
}
_UNITS: Final = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_FEW_SECONDS: Final = 10


class Styled(NamedTuple):
    """A text, and how a terminal shows it: in which style, and in which other words."""

    text: str
    style: str = ""
    instead: str | None = None

    @property
    def shown(self) -> str:
        """The words of a terminal."""
        return self.text if self.instead is None else self.instead


def one_line(text: str, limit: int | None = None) -> str:
    """Return the text in one line that a terminal shows as it is, cut at `limit` characters.

    Everything that a command shows goes through here, whoever said it.
    """
    line = " ".join(printable(text).split())
    return line if limit is None or len(line) <= limit else f"{line[: limit - 1]}…"


def duration(passed: timedelta, units: int = 2) -> str:
    """Return a span in at most so many units: `0.4 s`, `12 s`, `3 min 5 s`, `2 d 4 h`."""
    seconds = max(0.0, passed.total_seconds())
    if seconds < _FEW_SECONDS:
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


def state_of(run: Manifest | Summary) -> Styled:
    """Return where a run stands: its status, and what lies over it."""
    if run.dead_lettered:
        return Styled(f"{run.status} dead-lettered", "bold red", f"{SKULL} dead-lettered")
    overlays = {"cancelled": run.cancelled, "paused": run.paused}
    words = [run.status.value, *(word for word, holds in overlays.items() if holds)]
    return Styled(" ".join(words), "dim" if run.cancelled else style_of(run.status))


def style_of(status: RunStatus) -> str:
    """Return how a terminal shows a status."""
    return _STYLES[status]


def value_in_short(kept: KeptValue | None, limit: int = 72) -> str:
    """Return a user's value, abbreviated; a large one by the name of its artifact."""
    if kept is None:
        return ""
    return f"artifact {kept.ref}" if kept.ref else one_line(kept.text or "null", limit)
