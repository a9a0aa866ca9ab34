"""The position of a run: the step at hand, and all that belongs to that step alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypedDict, Unpack

from pydantic import AwareDatetime

from leasehold.domain.kept_work import CallResult, Checkpoint
from leasehold.domain.manifest_parts import NONE_ENDED, Attempts, Dispatch, Lease, Settlement
from leasehold.domain.stored import Stored


class PositionUpdate(TypedDict, total=False):
    """What may be replaced of a `Position`."""

    step: str
    trial: int
    step_started_at: AwareDatetime | None
    heartbeat_at: AwareDatetime | None
    lease: Lease | None
    dispatch: Dispatch
    attempts: Attempts
    failures: int
    interruptions: int
    interrupted_at: AwareDatetime | None
    silences: int
    continuations: int
    last_settlement: Settlement | None
    checkpoint: Checkpoint | None
    calls: tuple[CallResult, ...]
    note: str | None


class AtStep(Stored):
    """What a position has beside its step. Each field's meaning: docs/manifest.md."""

    trial: int = 1
    step_started_at: AwareDatetime | None = None
    heartbeat_at: AwareDatetime | None = None
    dispatch: Dispatch
    lease: Lease | None = None
    last_settlement: Settlement | None = None
    attempts: Attempts = NONE_ENDED
    failures: int = 0  # since the last progress, as the counts below
    interruptions: int = 0
    interrupted_at: AwareDatetime | None = None  # the last shutdown that counted as one
    silences: int = 0  # those after which nothing was heard for too long
    continuations: int = 0
    checkpoint: Checkpoint | None = None
    calls: tuple[CallResult, ...] = ()  # of the step, and those that are kept
    note: str | None = None  # a person's words for the attempts of the step


class Position(AtStep):
    """Where a run stands: a step, its dispatch, and who works on it."""

    step: str

    if TYPE_CHECKING:

        def with_(self, **update: Unpack[PositionUpdate]) -> Self: ...  # noqa: D102

    @property
    def attempt(self) -> int:
        """The number of the attempt that runs or comes next, from 1, of this step and trial."""
        return self.attempts.ended + 1
