"""The log of a process of ours: who writes it to stderr, in which form, and from which level on."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any, Final

from leasehold.logs.for_cloud import JsonFormatter
from leasehold.logs.for_people import LineFormatter
from leasehold.logs.kept_handler import gives_way, keep

#: The handler of functions-framework under LOG_EXECUTION_ID, which Cloud Functions sets unless the
#: deploy does: it writes warnings as plain text, and no event of the level INFO at all.
#: https://github.com/GoogleCloudPlatform/functions-framework-python/pull/320
_OF_THE_FRAMEWORK: Final = "wsgi"


class StderrHandler(logging.Handler):
    """Writes to what stderr is at that time: a display that is drawn there keeps lines apart."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record."""
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001 - a line that cannot be written ends no step
            self.handleError(record)


def log_to_stderr() -> None:
    """Have all loggers of this process write to stderr, in the form of LEASEHOLD_LOG_FORMAT."""
    log_by(_formatter(_setting("LEASEHOLD_LOG_FORMAT")))


def log_as_json() -> None:
    """Have all loggers of this process write entries to stderr, where Cloud Run reads them.

    What functions-framework has set up is not someone's choice, and gives way.
    """
    for handler in list(logging.root.handlers):
        if handler.get_name() == _OF_THE_FRAMEWORK:
            logging.root.removeHandler(handler)
    log_by(JsonFormatter())


def log_by(formatter: logging.Formatter) -> None:
    """Have all loggers of this process write to stderr, unless someone has set them up.

    LEASEHOLD_LOG_LEVEL says from which level on each of them does.
    """
    if any(not gives_way(handler) for handler in logging.root.handlers):
        return
    handler = StderrHandler()
    handler.setFormatter(formatter)
    keep(handler)
    for logger, level in _setting("LEASEHOLD_LOG_LEVEL").items():
        logging.getLogger(logger).setLevel(level)


def _formatter(form: str) -> logging.Formatter:
    if form == "json":
        return JsonFormatter()
    return LineFormatter(is_terminal=sys.stderr.isatty(), is_uniform=form == "text")


def _setting(name: str) -> Any:
    from leasehold.registry.settings import SETTINGS  # noqa: PLC0415 - not for each command

    entry = SETTINGS[name]
    try:
        return entry.read(os.environ.get(entry.name, entry.default))
    except ValueError:  # who reads the settings says so
        return entry.read(entry.default)
