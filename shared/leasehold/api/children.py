"""`/runs/{id}/children`: the small runs that a run waits for, and how far they are."""

from __future__ import annotations

from typing import Self

from pydantic import AwareDatetime

from leasehold.api.request_model import ResponseModel
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import RunStatus
from leasehold.services.read_children import ReadChildren


class ChildReport(ResponseModel):
    """A child: a run that can be shown and explained by its id."""

    run_id: str
    name: str
    status: RunStatus
    state: str  # with what lies over the status
    item: int | None = None  # the number of the item at hand
    done: int = 0
    failed: int = 0
    left: int = 0
    attempt: int
    finding: str | None = None  # why it is blocked
    created_at: AwareDatetime
    updated_at: AwareDatetime

    @classmethod
    def of(cls, run: Manifest) -> Self:
        """Return a child as it is answered."""
        lane = run.lane
        return cls(
            run_id=run.run_id,
            name="" if run.parent is None else run.parent.name,
            status=run.status,
            state=run.state,
            item=lane.unit[0] if lane is not None and lane.ahead else None,
            done=0 if lane is None else lane.done,
            failed=0 if lane is None else lane.failed,
            left=0 if lane is None else lane.left,
            attempt=run.position.attempt,
            finding=None if run.block is None else run.block.finding,
            created_at=run.created_at,
            updated_at=run.updated_at,
        )


class ChildrenResponse(ResponseModel):
    """`GET /runs/{id}/children`: those of the place that the run is at; none, if it has none."""

    kind: str  # each, parallel or child; empty: the run waits for none
    items: int  # 0: the children have none
    done: int
    failed: int
    fraction: float
    words: str
    children: list[ChildReport]

    @classmethod
    def of(cls, read: ReadChildren) -> Self:
        """Return children as they are answered."""
        return cls(
            kind=read.kind,
            items=read.items,
            done=read.done,
            failed=read.failed,
            fraction=round(read.fraction, 4),
            words=read.words,
            children=[ChildReport.of(run) for run in read.runs],
        )
