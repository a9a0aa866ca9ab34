"""A pause of one step type, or of all: nothing of it begins until a person resumes it.

It is kept beside the overrides, so that a process that dispatches reads it with those. No step type
has an id like that of a pause.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from pydantic import AwareDatetime

from leasehold.domain.printable import printable
from leasehold.domain.stored import Document, Ref, Stored, UnreadableDocument
from leasehold.frozen import dataclass

_PREFIX: Final = "pause:"
#: The id of the pause of all steps.
PAUSE_OF_ALL: Final = f"{_PREFIX}*"
#: How long a run is held before it is looked whether the pause is gone without a resume.
HOLD_LOOK: Final = timedelta(hours=1)
#: Characters of a reason that a person gives: of a pause, an override, an operation.
MAX_WHY_CHARS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPause:
    """A pause as it is stored.

    Args:
        id: of its document, which runs that are held name.
        why: the reason.
        set_by: who did it; empty: the document does not say.
        set_at: when; None: as above.
        resumed_at: when a person ended it; it holds nothing then, and runs are being released.
    """

    id: str
    why: str = ""
    set_by: str = ""
    set_at: datetime | None = None
    resumed_at: datetime | None = None

    @property
    def step_type(self) -> str | None:
        """The step type; None: all of them."""
        return None if self.id == PAUSE_OF_ALL else self.id.removeprefix(_PREFIX)

    @property
    def words(self) -> str:
        """The pause in words: of which step, by whom, since when and why."""
        return _words(self.step_type, self.set_by, self.set_at, self.why)


class Hold(Stored):
    """A dispatch that is held: by which pause, whose, and why. It ends with the dispatch."""

    pause: str
    since: AwareDatetime
    set_by: str = ""
    set_at: AwareDatetime | None = None
    why: str = ""

    @property
    def step_type(self) -> str | None:
        """The step type that is paused; None: all of them."""
        return None if self.pause == PAUSE_OF_ALL else self.pause.removeprefix(_PREFIX)

    @property
    def brief(self) -> str:
        """By whom and why, in short."""
        by = f"by {self.set_by}" if self.set_by else ""
        return ": ".join(filter(None, (by, self.why)))

    @property
    def words(self) -> str:
        """As that of the pause."""
        return _words(self.step_type, self.set_by, self.set_at, self.why)


def pause_id(step_type: str | None) -> str:
    """Return the id of the pause of a step type; None: of all."""
    return PAUSE_OF_ALL if step_type is None else f"{_PREFIX}{step_type}"


def pause_ref(id_: str) -> Ref:
    """Return where the pause of this id is stored."""
    return Ref("overrides", id_)


def is_pause(id_: str) -> bool:
    """Return whether a document of `overrides` is a pause."""
    return id_.startswith(_PREFIX)


def pause_document(pause: StepPause) -> Document:
    """Return the document that keeps a pause."""
    given = {
        "why": pause.why,
        "setBy": pause.set_by,
        "setAt": pause.set_at,
        "resumedAt": pause.resumed_at,
    }
    return {name: value for name, value in given.items() if value is not None}


def stored_pause(id_: str, document: Document) -> StepPause:
    """Read a document, which a person may have written: whatever is in it, it pauses."""
    if isinstance(document, UnreadableDocument):
        return StepPause(id=id_)
    return StepPause(
        id=id_,
        why=_text(document, "why"),
        set_by=_text(document, "setBy"),
        set_at=_time(document, "setAt"),
        resumed_at=_time(document, "resumedAt"),
    )


def hold_of(pause: StepPause, now: datetime) -> Hold:
    """Return what the dispatch of a run notes that is held from now on."""
    return Hold(pause=pause.id, since=now, set_by=pause.set_by, set_at=pause.set_at, why=pause.why)


def resume_command(step_type: str | None) -> str:
    """Return the command that ends the pause of a step type; None: of all."""
    return f"leasehold resume {'--all' if step_type is None else f'--step {step_type}'}"


def _words(step_type: str | None, set_by: str, set_at: datetime | None, why: str) -> str:
    what = "all steps are paused" if step_type is None else f"step {step_type} is paused"
    by = f" by {set_by}" if set_by else ""
    since = "" if set_at is None else f" since {set_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return f"{what}{by}{since}{f': {why}' if why else ''}"


def _text(document: Mapping[str, object], field: str) -> str:
    value = document.get(field)
    return printable(value[:MAX_WHY_CHARS]) if isinstance(value, str) else ""


def _time(document: Mapping[str, object], field: str) -> datetime | None:
    value = document.get(field)
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    return value if isinstance(value, datetime) and value.tzinfo is not None else None
