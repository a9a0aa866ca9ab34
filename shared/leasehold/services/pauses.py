"""People pause a step type, or all of them, and resume it; the runs that it held go on at once.

A run is held by the process that gets its hint, and found by an index once its step is resumed. One
that is held while the step is resumed is let go by that same process, which looks once more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from leasehold.domain import lifecycle
from leasehold.domain.change import Change
from leasehold.domain.manifest import manifest_of
from leasehold.domain.notes import said
from leasehold.domain.status import Outcome
from leasehold.domain.step_pause import (
    StepPause,
    pause_document,
    pause_id,
    pause_ref,
    stored_pause,
)
from leasehold.domain.stored import Document, Write
from leasehold.errors import (
    InvalidRequestError,
    LeaseholdError,
    StoreUnavailableError,
    UnreadableRunError,
    VersionConflictError,
)
from leasehold.frozen import dataclass
from leasehold.ports.documents import KnownRun, Query
from leasehold.services.engine import Engine
from leasehold.services.paging import WHOLE_RUNS, pages
from leasehold.services.request_bounds import MAX_NAME_CHARS, MAX_REASON_CHARS

#: How long a resume releases runs; what is left then, sweeps release.
MAX_RELEASE_S: Final = 60.0
#: So long after its end a pause is looked for still: a process that did not know of the end yet may
#: hold a run, and be killed before it looks once more.
_FORGOTTEN_AFTER: Final = timedelta(seconds=30)
#: How many runs are released at once.
_RELEASES_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class ReleasedRuns:
    """The outcome of a resume.

    Args:
        pause: the pause that was ended; None: there was none.
        released: how many runs it held that go on.
        more: whether further ones may be held: sweeps release them.
    """

    pause: StepPause | None
    released: int
    more: bool


def list_pauses(engine: Engine) -> Sequence[StepPause]:
    """Return the pauses of the store that hold something, by their ids.

    Raises:
        StoreUnavailableError: they cannot be read.
    """
    engine.overrides.read()
    return [one for _, one in sorted(engine.rules.pauses.items()) if one.resumed_at is None]


def pause_step(
    engine: Engine, step_type: str | None, *, why: str, actor: str
) -> tuple[StepPause, StepPause | None]:
    """Pause a step type, or all; return the pause, and the one that was in its place.

    Every process begins none of its attempts within 10 s; those that run end as they like.

    Args:
        engine: the parts.
        step_type: the step type; None: all of them.
        why: the reason, shown to all who look.
        actor: who asks.

    Raises:
        UnknownKeyError: the catalog has no such step.
        InvalidRequestError: the reason cannot be used.
        StoreUnavailableError: it may be paused or not; the same may be given again.
    """
    if step_type is not None:
        engine.catalog.steps[step_type[:MAX_NAME_CHARS]]
    for field, text in (("why", why), ("actor", actor)):
        if not 0 < len(text) <= MAX_REASON_CHARS or not text.isprintable():
            allowed = f"1 to {MAX_REASON_CHARS} printable characters"
            raise InvalidRequestError(field=field, value=text[:MAX_REASON_CHARS], allowed=allowed)
    wanted = StepPause(id=pause_id(step_type), why=said(why), set_by=actor)
    answer = engine.documents.transact(pause_ref(wanted.id), partial(_set, wanted)).answer
    _look_again(engine)
    return answer


def resume_step(engine: Engine, step_type: str | None) -> ReleasedRuns:
    """End the pause of a step type, or that of all, and have the runs that it held go on.

    It may be called again: whatever is still held by that pause goes on.

    Args:
        engine: the parts.
        step_type: the step type, also one that the catalog does not know; None: that of all.

    Raises:
        StoreUnavailableError: some may be held still; call it again, or leave them to a sweep.
    """
    id_ = pause_id(step_type if step_type is None else step_type[:MAX_NAME_CHARS])
    ended = engine.documents.transact(pause_ref(id_), partial(_end, id_)).answer
    _look_again(engine)
    released, more = release_held(engine, id_)
    return ReleasedRuns(ended, released, more)


def release_held(engine: Engine, id_: str, *, seconds: float = MAX_RELEASE_S) -> tuple[int, bool]:
    """Have the runs go on that an ended pause holds; forget it once there can be none.

    Args:
        engine: the parts.
        id_: the pause.
        seconds: how long runs are released.

    Returns:
        How many were released, and whether more may be held.
    """
    over_at = engine.clock.monotonic() + seconds
    released: list[str] = []
    failed: list[str] = []
    calls = (
        partial(_release, engine, id_, found, released, failed)
        for found in _held_by(engine, id_)
        if engine.clock.monotonic() < over_at
    )
    engine.threads.side_by_side(lambda: next(calls, None), _RELEASES_AT_ONCE)
    more = bool(failed) or engine.clock.monotonic() >= over_at
    if not more:
        _forget(engine, id_)
    return len(released), more


def continue_resumes(engine: Engine, seconds: float) -> None:
    """Go on with resumes whose process was cut short; where no pause is known, nothing is read."""
    if not engine.rules.pauses:
        return
    engine.overrides.refresh()
    for pause in tuple(engine.rules.pauses.values()):
        if pause.resumed_at is not None:
            release_held(engine, pause.id, seconds=seconds)


def let_go_if_resumed(engine: Engine, change: Change) -> Change:
    """Return the change that held a run; if its step was resumed meanwhile, what lets it go.

    The resume may have looked for held runs before this one was held.
    """
    held = change.manifest.held
    if held is None or not change.changed or change.outcome is not Outcome.PARKED:
        return change
    found = engine.documents.get(pause_ref(held.pause))
    if found is not None and stored_pause(held.pause, found.document).resumed_at is None:
        return change
    _look_again(engine)
    let_go = partial(lifecycle.release_hold, rules=engine.rules, pause=held.pause)
    return engine.commit(change.manifest.run_id, let_go).answer


def _release(
    engine: Engine, id_: str, found: KnownRun, released: list[str], failed: list[str]
) -> None:
    run_id = found.manifest.run_id
    let_go = partial(lifecycle.release_hold, rules=engine.dispatch_rules(), pause=id_)
    try:
        try:
            change = engine.commit(run_id, let_go, known=found).answer
        except VersionConflictError:  # a person paused or cancelled it meanwhile
            change = engine.commit(run_id, let_go).answer
        engine.publish_or_leave(change)
    except LeaseholdError as error:
        failed.append(run_id)
        engine.listeners.log(f"run {run_id} is held still, and a sweep releases it: {error}")
    else:
        if change.changed:
            released.append(run_id)


def _held_by(engine: Engine, id_: str) -> Iterator[KnownRun]:
    """Yield the runs that a pause holds, longest first."""
    query = Query("runs", order_by="alarmAt", equal={"claimable": id_}, limit=WHOLE_RUNS)
    for page in pages(engine.documents, query):
        for found in page:
            with contextlib.suppress(UnreadableRunError):  # the sweep logs it
                yield KnownRun(manifest_of(found.ref.id, found.document), found)


def _set(
    wanted: StepPause, document: Document | None, now: datetime
) -> Write[tuple[StepPause, StepPause | None]]:
    before = None if document is None else stored_pause(wanted.id, document)
    set_ = replace(wanted, set_at=now)
    was_on = before is not None and before.resumed_at is None
    return Write((set_, before if was_on else None), pause_document(set_))


def _end(id_: str, document: Document | None, now: datetime) -> Write[StepPause | None]:
    if document is None:
        return Write(None)
    pause = stored_pause(id_, document)
    if pause.resumed_at is not None:
        return Write(None)
    return Write(pause, pause_document(replace(pause, resumed_at=now)))


def _forget(engine: Engine, id_: str) -> None:
    """Delete a pause that can hold nothing any more, unless it was set again meanwhile."""
    found = engine.documents.get(pause_ref(id_))
    ended_at = None if found is None else stored_pause(id_, found.document).resumed_at
    if found is None or ended_at is None or found.read_at < ended_at + _FORGOTTEN_AFTER:
        return
    with contextlib.suppress(VersionConflictError):
        engine.documents.delete(found.ref, if_version=found)


def _look_again(engine: Engine) -> None:
    """Have this process dispatch by the new document, and not by the earlier one."""
    with contextlib.suppress(StoreUnavailableError):  # it will, in 10 s
        engine.overrides.read()
