"""Who hears of what an engine does; by default the log."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from leasehold.domain.change import Change
from leasehold.logs.attempt import EVENT_FACTS, EVENTS_LOG, EventFacts
from leasehold.services.reporting import ENDS, Facts

LOG: Final = logging.getLogger("leasehold")
_EVENTS: Final = logging.getLogger(EVENTS_LOG)


def log_report(facts: Facts) -> None:
    """Log one line of JSON, which Cloud Logging takes as a structured entry; a terminal a sentence.

    Its severity stands in the line. Python writes no line below WARNING unless it is set up to, as
    in servers: a command that cancels a run need not say that its attempt ended with it.
    """
    level = logging.getLevelNamesMapping()[facts["severity"]]
    least = logging.INFO if facts["event"] in ENDS else logging.WARNING
    line = json.dumps(facts, ensure_ascii=False)
    _EVENTS.log(max(level, least), line, extra={EVENT_FACTS: EventFacts(facts)})


@dataclass(frozen=True, slots=True)
class Hooks:
    """Who hears of what an engine does.

    Args:
        observe: given each change whose commit stands.
        may_continue: whether a worker that hands a step off may take the next one at once.
        warn: given each override and threshold that is refused, once.
        report: given dead letters, refused outputs and announcements to the log, as facts.
    """

    observe: Callable[[Change], None] = lambda _: None
    may_continue: Callable[[], bool] = lambda: False
    warn: Callable[[str], object] = LOG.warning
    report: Callable[[Facts], object] = log_report
