"""Whether a process could work now: its store takes a write, and its artifacts can be reached."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Final

from leasehold.domain.stored import Document, Ref, Write
from leasehold.errors import LeaseholdError, NotReadyError
from leasehold.services.engine import Engine

#: The longest wait: the caller has its own time limit, often of some seconds.
MAX_READINESS_S: Final = 3.0

#: One small document for all who ask; it is no note that a process lives, and stands in no list.
_PROBE: Final = Ref("workers", "ready")
#: No run has a file of this name: only whether the store answers is asked.
_NO_FILE: Final = "runs/ready"


def check_ready(engine: Engine) -> None:
    """Read and write the store, and try the artifacts out; a disk that is full takes no write.

    Raises:
        NotReadyError: with the obstacle.
    """
    problems: list[str] = []
    if not engine.threads.errand(partial(_try, engine, problems), MAX_READINESS_S):
        raise NotReadyError(problem=f"the stores do not answer within {MAX_READINESS_S:g} s")
    if problems:
        raise NotReadyError(problem=problems[0])


def artifacts_outage(engine: Engine) -> str | None:
    """Return in a sentence why no file can be read or stored; None: it can, as far as it is known.

    Nothing is written.
    """
    problems: list[str] = []
    if not engine.threads.errand(partial(_look, engine, problems), MAX_READINESS_S):
        return f"The store of artifacts does not answer within {MAX_READINESS_S:g} s."
    return problems[0] if problems else None


def _look(engine: Engine, problems: list[str]) -> None:
    try:
        engine.artifacts.exists(_NO_FILE)
    except LeaseholdError as error:
        problems.append(error.message)


def _try(engine: Engine, problems: list[str]) -> None:
    try:
        engine.documents.transact(_PROBE, _written, within=MAX_READINESS_S)
        engine.artifacts.try_out()
    except LeaseholdError as error:
        problems.append(error.message.rstrip("."))


def _written(_: Document | None, now: datetime) -> Write[None]:
    return Write(None, {"askedAt": now})
