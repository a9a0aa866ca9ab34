"""Our handler stays on the root logger, whatever a module of a user's sets up for stderr.

`logging.basicConfig(force=True)` in a handler's module takes every handler away, and its own form
has neither run nor step. A process of ours has one form of its lines, so that one gives way again.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from leasehold.logs.attempt import AttemptLogRecord

_kept: list[logging.Handler] = []


def keep(handler: logging.Handler) -> None:
    """Have this handler get what all loggers of this process say, from now on.

    A plain handler of the root logger for stderr or stdout gives way to it, unless its format has
    the run. Others stay, and so does the level: those are someone's choice.
    """
    _kept[:] = [handler]
    logging.root.addHandler(handler)
    if logging.getLogRecordFactory() in (logging.LogRecord, AttemptLogRecord):
        logging.setLogRecordFactory(_record)


def _record(*args: Any, **options: Any) -> logging.LogRecord:
    """Make a record; its handlers are looked for only after that."""
    for plain in [each for each in logging.root.handlers if gives_way(each)]:
        for kept in _kept:
            logging.root.addHandler(kept)
        logging.root.removeHandler(plain)
    return AttemptLogRecord(*args, **options)


def gives_way(handler: logging.Handler) -> bool:
    """Return whether it is a plain one for stderr or stdout whose lines would name no run."""
    if type(handler) is not logging.StreamHandler:
        return False
    if handler.stream not in (sys.stderr, sys.stdout, sys.__stderr__, sys.__stdout__):
        return False
    form = handler.formatter
    return form is None or (type(form) is logging.Formatter and "(run_id)" not in str(form._fmt))  # noqa: SLF001 - there is no other way to ask for it
