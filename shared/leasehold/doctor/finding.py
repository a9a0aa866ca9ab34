"""A finding: something that is wrong, in one line, and the command that repairs it."""

from __future__ import annotations

from enum import StrEnum

from leasehold.frozen import dataclass


class Kind(StrEnum):
    """How much a finding counts."""

    FINDING = "finding"  # it is wrong
    WARNING = "warning"  # it may be meant so
    PROPOSAL = "proposal"  # it is right, and could be better


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong.

    Args:
        code: for machines: a row of docs/doctor.md, or the code of an error.
        message: what it is and what it leads to, in one line.
        repair: a command that repairs it, or shows more; empty: the message says what to do.
        file: where, as a path; None: it is in no file.
        line: the line there.
        kind: how much it counts.
    """

    code: str
    message: str
    repair: str = ""
    file: str | None = None
    line: int | None = None
    kind: Kind = Kind.FINDING

    @property
    def sentence(self) -> str:
        """The message, and what to type."""
        return f"{self.message} Type: {self.repair}" if self.repair else self.message
