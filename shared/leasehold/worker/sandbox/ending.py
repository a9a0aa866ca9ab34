"""How a process ended."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process ended; neither is known where its fork server ended before it could say so.

    Args:
        exit_code: what it exited with.
        signal: what killed it.
    """

    exit_code: int | None = None
    signal: int | None = None

    @property
    def is_known(self) -> bool:
        """Whether anybody saw it end."""
        return self.exit_code is not None or self.signal is not None

    @classmethod
    def of_report(cls, number: int) -> Ending:
        """Return what a fork server reported: an exit code, or the negative of a signal."""
        return cls(signal=-number) if number < 0 else cls(exit_code=number)
