"""The log records of a child, logged here as if they were made here."""

from __future__ import annotations

import logging
from typing import Final

from leasehold.logs.attempt import EVENT_FACTS, EVENTS_LOG, STEP_LOG
from leasehold.worker.sandbox.messages import LogLine

_MOST_LEVELS: Final = 200


def levels_in_force() -> dict[str, int]:
    """Return the levels that loggers of this process have; "" is that of all others."""
    loggers = list(logging.root.manager.loggerDict.items())
    set_here = {
        name: one.level for name, one in loggers if isinstance(one, logging.Logger) and one.level
    }
    named = dict(list(set_here.items())[:_MOST_LEVELS])
    return {"": logging.root.level, **named}


def relay(line: LogLine) -> None:
    """Log what a child has logged; its own loggers have decided that it is to be seen.

    It is a record of the attempt that the caller's lines are of, and no event of Leasehold's own:
    those are logged as they are.
    """
    name = STEP_LOG if line.logger == EVENTS_LOG else line.logger
    record = logging.makeLogRecord(
        {
            "name": name,
            "levelno": line.level,
            "levelname": logging.getLevelName(line.level),
            "msg": line.message,
            "args": (),
            "exc_text": line.error or None,
            "created": line.created,
            "msecs": line.created % 1 * 1000,
            "pathname": line.path,
            "filename": line.path.rpartition("/")[2],
            "lineno": line.line,
            "funcName": line.function,
            "threadName": line.thread,
        }
    )
    for fact, value in line.facts.items():
        # what a record is made of stays, and what makes it an event that alerts count is no child's
        if not fact.startswith("_") and fact != EVENT_FACTS and not hasattr(record, fact):
            setattr(record, fact, value)
    _logger_of(name).handle(record)


def _logger_of(name: str) -> logging.Logger:
    """Return the logger, or the one above it that is there: loggers stay for ever."""
    loggers = logging.root.manager.loggerDict
    while name:
        found = loggers.get(name)
        if isinstance(found, logging.Logger):
            return found
        name = name.rpartition(".")[0]
    return logging.root
