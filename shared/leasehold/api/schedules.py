"""`/schedules`: pipelines that are started at the times of a clock."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from leasehold.api import request_model as rules
from leasehold.api.request_model import RequestModel, ResponseModel
from leasehold.domain.schedule import ScheduleLine
from leasehold.services.request_bounds import MAX_REASON_CHARS
from leasehold.services.schedules import ScheduleReport


class PauseScheduleBody(RequestModel):
    """`POST /schedules/{name}:pause`."""

    why: Annotated[str, rules.printable(MAX_REASON_CHARS)]


class TriggerBody(RequestModel):
    """`POST /schedules/{name}:trigger`. The same `id` is one run; without it, one is made up."""

    id: Annotated[str, rules.printable()] | None = None


class BackfillBody(RequestModel):
    """`POST /schedules/{name}:backfill`: its times in this span, both ends included."""

    first: Annotated[str, rules.moment()]
    last: Annotated[str, rules.moment()]


class ScheduleResponse(ResponseModel):
    """A schedule, and what became of its last times.

    A schedule that the catalog has no more is `removed`: nothing starts it.
    """

    name: str
    state: Literal["active", "paused", "removed"]
    pipeline: str | None
    cron: str | None
    tz: str | None
    overlap: str | None
    catch_up_s: float | None
    next_at: datetime | None
    last_run_id: str | None
    paused_by: str
    paused_at: datetime | None
    why: str
    problem: str
    lines: tuple[ScheduleLine, ...]

    @classmethod
    def of(cls, report: ScheduleReport) -> ScheduleResponse:
        """Return it as it is answered; its newest record comes first."""
        entry, state = report.entry, report.state
        paused = state is not None and state.paused
        return cls(
            name=report.name,
            state="removed" if entry is None else "paused" if paused else "active",
            pipeline=None if entry is None else entry.pipeline,
            cron=None if entry is None else entry.cron,
            tz=None if entry is None else entry.tz,
            overlap=None if entry is None else entry.overlap,
            catch_up_s=None if entry is None else entry.catch_up.total_seconds(),
            next_at=report.next_at,
            last_run_id=None if state is None else state.last_run_id,
            paused_by="" if state is None else state.paused_by,
            paused_at=None if state is None else state.paused_at,
            why="" if state is None else state.why,
            problem="" if state is None else state.problem,
            lines=() if state is None else state.lines[::-1],
        )


class SchedulesResponse(ResponseModel):
    """`GET /schedules`: all of the catalog, and those that the store knows beside them."""

    schedules: list[ScheduleResponse]


class ScheduledRuns(ResponseModel):
    """`POST /schedules/{name}:trigger` and `:backfill`: the runs, by their times."""

    run_ids: list[str]
