"""A log that does not say the same again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: What the sweep finds wrong it finds wrong again each second; a person needs it less often.
REPEAT_AFTER_S: Final = 600.0
_MAX_LINES: Final = 1000


def without_repeats(
    log: Callable[[str], object], monotonic: Callable[[], float]
) -> Callable[[str], None]:
    """Return a log that leaves out a line it was given before, for REPEAT_AFTER_S.

    Args:
        log: takes a line.
        monotonic: returns seconds that only grow.
    """
    logged_at: dict[str, float] = {}  # the line, and when it was logged

    def log_once(line: str) -> None:
        now = monotonic()
        if line in logged_at and now - logged_at[line] < REPEAT_AFTER_S:
            return
        if len(logged_at) >= _MAX_LINES:
            logged_at.clear()  # rather log something twice than keep it forever
        logged_at[line] = now
        log(line)

    return log_once
