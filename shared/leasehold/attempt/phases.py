"""The two phases of an attempt: until its first tool call, and from there to its result."""

from __future__ import annotations

from leasehold.domain.notes import Phases, tool_name


class PhaseClock:
    """When the phases of an attempt began and ended; all times are in monotonic seconds.

    A process of a handler may note any time: none counts as before the lease, or after now.

    Args:
        leased_at: when the attempt got its lease.

    Attributes:
        is_cold: whether it is the first attempt of its process.
    """

    #: Of the class: many attempts have no other value to their end.
    is_cold = False
    _entered_at: float | None = None
    _booted_at: float | None = None
    _result_at: float | None = None
    _returned_at: float | None = None
    _first_tool = ""

    def __init__(self, leased_at: float) -> None:
        self._leased_at = leased_at

    def note_entered(self, at: float) -> None:
        """Note when its handler is entered."""
        self._entered_at = at

    def mark_bootstrap(self, tool: str, at: float) -> None:
        """Note the first tool call of the handler; later ones change nothing."""
        if self._booted_at is None:
            self._booted_at, self._first_tool = at, tool_name(tool)

    def mark_execution(self, at: float) -> None:
        """Note that there is a result; the first time counts. Without a first call: nothing."""
        if self._booted_at is not None and self._result_at is None:
            self._result_at = at

    def note_returned(self, at: float, *, has_result: bool) -> None:
        """Note when its handler is done; one that has a result may have said when it had it.

        An attempt that is ended in its clean-up took until then: it had no result that counts.
        """
        if self._returned_at is None:
            said_at = self._result_at if has_result else None
            self._returned_at = at if said_at is None else said_at

    def so_far(self, now: float) -> Phases | None:
        """Return how long they took so far; None: its handler was not entered."""
        if self._entered_at is None:
            return None
        booted_at = self._entered_at if self._booted_at is None else self._booted_at
        booted_at = min(max(booted_at, self._leased_at), now)
        ended_at = now if self._returned_at is None else min(self._returned_at, now)
        return Phases(
            round(booted_at - self._leased_at, 3),
            round(max(0.0, ended_at - booted_at), 3),
            self.is_cold,
            self._first_tool,
        )
