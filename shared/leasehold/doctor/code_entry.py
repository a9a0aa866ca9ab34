"""What is known of each kind of finding; the tables are `local/codes.py`, `deployed/codes.py`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from leasehold.doctor.finding import Kind


class Scope(StrEnum):
    """Where it is looked for."""

    HERE = "here"
    LIVE = "--live"


@dataclass(frozen=True, slots=True)
class CodeEntry:
    """A kind of finding.

    Args:
        code: for machines.
        scope: where it is looked for.
        meaning: what is wrong, and what that leads to.
        repair: what to do.
        kind: how much it counts.
    """

    code: str
    scope: Scope
    meaning: str
    repair: str
    kind: Kind = Kind.FINDING

    @property
    def key(self) -> str:
        """The name the row is found by."""
        return self.code
