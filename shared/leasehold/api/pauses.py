"""`/pauses`: step types of which nothing begins, until a person resumes them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from leasehold.api import request_model as rules
from leasehold.api.request_model import RequestModel, ResponseModel
from leasehold.domain.step_pause import StepPause
from leasehold.errors import InvalidRequestError
from leasehold.services.pauses import ReleasedRuns
from leasehold.services.request_bounds import MAX_NAME_CHARS, MAX_REASON_CHARS

_WHICH = "step, or all: true"


class ResumePauseBody(RequestModel):
    """`POST /pauses:clear`: `step`, or `all`; the runs that it held go on at once."""

    step: Annotated[str, rules.printable(MAX_NAME_CHARS)] | None = None
    all: Annotated[bool, rules.flag()] = False

    @property
    def step_type(self) -> str | None:
        """The step type; None: all of them.

        Raises:
            InvalidRequestError: it names neither, or both.
        """
        if (self.step is None) is not self.all:
            raise InvalidRequestError(field="step", value=self.step, allowed=_WHICH)
        return self.step


class PauseBody(ResumePauseBody):
    """`POST /pauses:set`: `step`, or `all`, and `why`."""

    why: Annotated[str, rules.printable(MAX_REASON_CHARS)]


class PauseReport(ResponseModel):
    """A pause: of a step type, or of all where `step` is null."""

    step: str | None
    why: str
    set_by: str
    set_at: datetime | None

    @classmethod
    def of(cls, pause: StepPause) -> PauseReport:
        """Return it as it is answered."""
        return cls(step=pause.step_type, why=pause.why, set_by=pause.set_by, set_at=pause.set_at)


class PausesResponse(ResponseModel):
    """`GET /pauses`: what is paused, with who did it and why."""

    pauses: list[PauseReport]


class PauseChange(ResponseModel):
    """`POST /pauses:set`: what is paused now, and the pause that was in its place."""

    pause: PauseReport
    replaced: PauseReport | None


class ResumedPause(ResponseModel):
    """`POST /pauses:clear`: the pause that was ended, if there was one, and the runs that go on.

    With `more`, further runs may be held still: the sweep releases them.
    """

    pause: PauseReport | None
    released: int
    more: bool

    @classmethod
    def of(cls, resumed: ReleasedRuns) -> ResumedPause:
        """Return it as it is answered."""
        ended = None if resumed.pause is None else PauseReport.of(resumed.pause)
        return cls(pause=ended, released=resumed.released, more=resumed.more)
