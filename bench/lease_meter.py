"""A meter of what is read and written while a handler holds a lease.

It is its own module because Python knows the benchmark under two names: as the program, and
as the module that the handler is in.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.sqlite import SqliteDocuments


@dataclass(slots=True)
class LeaseMeter:
    """How the handler counts, and what it counted while it held the lease."""

    taken: Callable[[], Counter[str]]
    counts: Mapping[str, int] = field(default_factory=dict)


METERS: Final[dict[str, LeaseMeter]] = {}  # by store; one run at a time on each


class MeteredSqlite(SqliteDocuments):
    """Counts the statements that read and write documents."""

    def __init__(self, path: Path) -> None:
        self._counts: Counter[str] = Counter()
        super().__init__(path, SystemClock())

    def taken(self) -> Counter[str]:
        """Return the counts so far, and begin again."""
        counts, self._counts = self._counts, Counter()
        return counts

    def _connect(self) -> sqlite3.Connection:
        connection = super()._connect()
        connection.set_trace_callback(self._count)
        return connection

    def _count(self, statement: str) -> None:
        kind = statement.partition(" ")[0].upper()
        if kind in ("INSERT", "UPDATE", "DELETE"):
            self._counts["writes"] += 1
        elif kind == "SELECT":
            self._counts["reads"] += 1
