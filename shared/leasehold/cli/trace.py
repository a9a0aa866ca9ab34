"""`leasehold trace`: all that happened to a run, oldest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from leasehold.cli.formatting import SKULL, Styled, duration, stamp
from leasehold.cli.run_readers import source_at
from leasehold.cli.stdout import Row, answer_json, answer_table
from leasehold.domain.trace import TraceEvent, TraceType

_COLUMNS: Final = ("AT", "AFTER", "EVENT", "STEP", "ATTEMPT", "WHY")
_STYLES: Final[Mapping[str, str]] = {
    TraceType.STEP_ERROR: "red",
    TraceType.STEP_TERMINATED: "yellow",
    TraceType.GATE_BLOCKED: "yellow",
    TraceType.STEP_UNKNOWN: "yellow",
    TraceType.STEP_DEAD_LETTERED: "bold red",
    TraceType.RUN_COMPLETED: "green",
}


def trace(run_id: str, *, url: str | None, as_json: bool) -> None:
    """Answer with the timeline of the run."""
    with source_at(url) as source:
        events = source.trace(run_id)
    if as_json:
        answer_json({"events": events})
    else:
        answer_table(_COLUMNS, _rows(events))


def _rows(events: Sequence[TraceEvent]) -> list[Row]:
    return [_row(event, events[0].at) for event in events]


def _row(event: TraceEvent, start: datetime) -> Row:
    return (
        Styled(at := stamp(event.at), "dim", instead=at.partition("T")[2]),
        f"+{duration(event.at - start)}",
        _type(event),
        event.step or "",
        "" if event.attempt is None else str(event.attempt),
        ": ".join(part for part in (_by(event), event.reason, event.detail, _into(event)) if part),
    )


def _type(event: TraceEvent) -> Styled:
    said = str(event.type)
    is_end = event.type is TraceType.STEP_DEAD_LETTERED
    return Styled(said, _STYLES.get(event.type, ""), f"{SKULL} {said}" if is_end else None)


def _by(event: TraceEvent) -> str:
    """Return who asked for it, where a person did."""
    actor = (event.model_extra or {}).get("actor")
    return f"by {actor}" if actor else ""


def _into(event: TraceEvent) -> str:
    """Return which run was made of this one."""
    made = (event.model_extra or {}).get("recreatedAs")
    return f"as {made}" if made else ""
