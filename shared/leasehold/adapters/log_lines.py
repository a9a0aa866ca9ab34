"""Log lines for a terminal, where nobody has set up another log."""

from __future__ import annotations

import logging

from leasehold.domain.printable import printable


class PrintableFormatter(logging.Formatter):
    """Keeps the lines of a traceback, and spells out what would steer the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as lines that are safe to show."""
        return "\n".join(map(printable, super().format(record).split("\n")))


def print_printable_logs() -> None:
    """Have the log of last resort, which writes to stderr, show no control characters."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(PrintableFormatter())
