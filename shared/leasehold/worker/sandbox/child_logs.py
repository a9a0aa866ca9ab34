"""The log of a child: each record is sent to the worker, which logs it as its own."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from leasehold.logs.kept_handler import keep
from leasehold.worker.kept_text import cut
from leasehold.worker.sandbox.link import Link
from leasehold.worker.sandbox.messages import LogLine

_LONGEST: Final = 8000
_LONGEST_NAME: Final = 200
_MOST_FACTS: Final = 20

_OF_EVERY_RECORD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class ChildLogs(logging.Handler):
    """Sends records; before it has a link, and in a fork of the child, it prints warnings."""

    def __init__(self) -> None:
        super().__init__()
        self._link: Link | None = None
        self._levels: set[str] = set()

    def install(self) -> None:
        """Take what every logger of this process says."""
        keep(self)

    def send_by(self, link: Link, levels: Mapping[str, int]) -> None:
        """Send all from now on, from the levels on that the worker has; "" is that of all."""
        self._link = link
        for name, level in levels.items():
            logger = logging.getLogger(name)
            if not name or logger.level == logging.NOTSET or name in self._levels:
                logger.setLevel(level)
                self._levels.add(name)

    def emit(self, record: logging.LogRecord) -> None:
        """Send the record."""
        try:
            if self._link is not None and self._link.is_here:
                self._link.say(_line_of(record))
            elif record.levelno >= logging.WARNING:
                sys.stderr.write(f"{self.format(record)}\n")
        except Exception:  # noqa: BLE001 - a line that cannot be sent ends no step
            self.handleError(record)


def _line_of(record: logging.LogRecord) -> LogLine:
    return LogLine(
        logger=cut(record.name, _LONGEST_NAME),
        level=min(max(record.levelno, 0), 1000),
        message=cut(record.getMessage(), _LONGEST),
        error=cut("\n".join(_error_lines(record)), _LONGEST),
        created=record.created,
        path=cut(record.pathname, 2 * _LONGEST_NAME),
        line=max(record.lineno or 0, 0),
        function=cut(record.funcName or "", _LONGEST_NAME),
        thread=cut(record.threadName or "", _LONGEST_NAME),
        facts=dict(_facts(record)),
    )


def _error_lines(record: logging.LogRecord) -> Iterator[str]:
    if record.exc_info:
        yield logging.Formatter().formatException(record.exc_info)
    elif record.exc_text:
        yield record.exc_text
    if record.stack_info:
        yield record.stack_info


def _facts(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    """Yield what the caller gave with `extra`, as far as it is plain."""
    given = [(name, one) for name, one in vars(record).items() if name not in _OF_EVERY_RECORD]
    for name, one in given[:_MOST_FACTS]:
        if isinstance(one, str):
            yield cut(name, _LONGEST_NAME), cut(one, _LONGEST_NAME * 5)
        elif one is None or isinstance(one, bool | int | float):
            yield cut(name, _LONGEST_NAME), one


LOGS: Final = ChildLogs()
