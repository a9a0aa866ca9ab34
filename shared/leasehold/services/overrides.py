"""People set limits for a step type until a time, look at them, and end them before."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from leasehold.domain.notes import said
from leasehold.domain.override import (
    Override,
    StoredOverride,
    override_ref,
    seconds_of,
    stored_override,
    to_document,
    whole_milliseconds,
)
from leasehold.domain.stored import Document, Write
from leasehold.domain.timestamps import moment_text
from leasehold.errors import InvalidRequestError, StoreUnavailableError
from leasehold.frozen import dataclass
from leasehold.registry.dispatch import (
    StepDispatchEntry,
    deadline_cap,
    is_step_type,
    ladder_problem,
)
from leasehold.services.engine import Engine
from leasehold.services.request_bounds import MAX_NAME_CHARS, MAX_REASON_CHARS


@dataclass(frozen=True, slots=True, kw_only=True)
class OverrideRequest:
    """What a person asks for; it replaces every earlier limit of the step.

    Args:
        step_type: the step.
        timeout_s: seconds in place of its agent timeout; None: as it would be without.
        deadline_s: seconds in place of its dispatch deadline; None: as it would be without.
        until: when it ends.
        why: the reason; kept with it, and shown to all who read it.
        actor: who asks.
    """

    step_type: str
    timeout_s: float | None
    deadline_s: int | None
    until: datetime
    why: str
    actor: str


def list_overrides(engine: Engine) -> list[dict[str, Any]]:
    """Return all overrides of the store as JSON values, also those that are over or refused.

    Raises:
        StoreUnavailableError: they cannot be read.
    """
    return [override_report(engine, stored) for stored in engine.overrides.read()]


def set_override(engine: Engine, request: OverrideRequest) -> dict[str, Any]:
    """Set what is requested; it is in force at the next dispatch.

    Returns:
        What is set now and what was before, as JSON values: it may have been another person's.

    Raises:
        UnknownKeyError: there is no such step.
        InvalidRequestError: with the entry of the step it breaks the time ladder, its time is
            past, or its texts cannot be used. In each case nothing was written.
        StoreUnavailableError: it may have been set or not; the same may be given again.
    """
    override = _checked(engine, _entry(engine, request.step_type), request)
    ref = override_ref(request.step_type)
    stored, before = engine.documents.transact(ref, partial(_set, request, override)).answer
    _look_again(engine)
    return _change(engine, request.step_type, stored, before)


def clear_override(engine: Engine, step_type: str) -> dict[str, Any]:
    """Delete the override of a step, if there is one; return as `set_override`.

    Raises:
        UnknownKeyError: no step can have that name.
        StoreUnavailableError: it may have been deleted or not.
    """
    if not is_step_type(step_type):
        _entry(engine, step_type)
    ref = override_ref(step_type)
    found = engine.documents.get(ref)
    engine.documents.delete(ref)
    _look_again(engine)
    before = None
    if found is not None:
        before = stored_override(step_type, found.document, found.read_at)
    return _change(engine, step_type, None, before)


def override_report(engine: Engine, stored: StoredOverride) -> dict[str, Any]:
    """Return an override as JSON values: what it says, and whether it holds."""
    return _report(stored, problem=None if stored.is_over else _problem(engine, stored))


def _report(stored: StoredOverride, *, problem: str | None) -> dict[str, Any]:
    found = stored.override
    return {
        "stepType": stored.step_type,
        "state": "over" if stored.is_over else "refused" if problem else "in_force",
        "timeoutS": None if found is None else _seconds(found.timeout),
        "deadlineS": None if found is None else _seconds(found.deadline),
        "until": None if found is None else found.until,
        "why": "" if found is None else found.why,
        "setBy": "" if found is None else found.set_by,
        "setAt": None if found is None else found.set_at,
        "problem": problem,
    }


def _entry(engine: Engine, step_type: str) -> StepDispatchEntry:
    """Return the entry of a step, or raise UnknownKeyError; its name may be any text."""
    return engine.catalog.steps[step_type[:MAX_NAME_CHARS]]


def _checked(engine: Engine, entry: StepDispatchEntry, request: OverrideRequest) -> Override:
    """Return what is to be stored: with the entry of its step it keeps to the time ladder."""
    for field, text in (("why", request.why), ("actor", request.actor)):
        if not 0 < len(text) <= MAX_REASON_CHARS or not text.isprintable():
            allowed = f"1 to {MAX_REASON_CHARS} printable characters"
            raise InvalidRequestError(field=field, value=text[:MAX_REASON_CHARS], allowed=allowed)
    if request.timeout_s is None and request.deadline_s is None:
        raise InvalidRequestError(field="timeoutS", value=None, allowed="this, deadlineS, or both")
    override = Override(
        timeout=None if request.timeout_s is None else whole_milliseconds(request.timeout_s),
        deadline=None if request.deadline_s is None else timedelta(seconds=request.deadline_s),
        until=request.until,
        why=said(request.why),
        set_by=request.actor,
    )
    _check_ladder(entry, override, deadline_cap(entry, on_platform=engine.rules.on_platform))
    return override


def _check_ladder(entry: StepDispatchEntry, override: Override, longest: timedelta) -> None:
    timeout = entry.agent_timeout if override.timeout is None else override.timeout
    deadline = entry.dispatch_deadline if override.deadline is None else override.deadline
    if problem := ladder_problem(timeout, deadline, longest):
        field, _, allowed = problem
        if field == "agent_timeout" and override.timeout is not None:
            limit = ("timeoutS", override.timeout)
        else:
            limit = ("deadlineS", deadline)
            if field == "agent_timeout":  # it is the entry's, and the deadline was given
                allowed = f"above the agent timeout ({timeout}), or a timeoutS below it as well"
        raise InvalidRequestError(field=limit[0], value=seconds_of(limit[1]), allowed=allowed)


def _set(
    request: OverrideRequest, override: Override, document: Document | None, now: datetime
) -> Write[tuple[StoredOverride, StoredOverride | None]]:
    """Write it in place of any earlier document; answer with both."""
    if override.until <= now:
        until = moment_text(override.until)
        raise InvalidRequestError(field="until", value=until, allowed="a time to come")
    set_, step_type = replace(override, set_at=now), request.step_type
    before = None if document is None else stored_override(step_type, document, now)
    return Write((StoredOverride(step_type, set_), before), to_document(set_))


def _change(
    engine: Engine, step_type: str, now: StoredOverride | None, before: StoredOverride | None
) -> dict[str, Any]:
    return {
        "stepType": step_type,
        "override": None if now is None else override_report(engine, now),
        "replaced": None if before is None else _report(before, problem=before.refused or None),
    }


def _look_again(engine: Engine) -> None:
    """Have this process dispatch by the new document, and not by the earlier one."""
    with contextlib.suppress(StoreUnavailableError):  # it will, in 10 s
        engine.overrides.read()


def _problem(engine: Engine, stored: StoredOverride) -> str | None:
    """Return why an override, or a part of it, does not hold; None: it does."""
    if stored.refused:
        return stored.refused
    settings = engine.rules.settings_for(stored.step_type)
    if settings is None and not len(engine.catalog.steps):
        return None  # a process without a catalog cannot say
    if settings is None:
        return f"overrides/{stored.step_type} refused: this deploy has no such step."
    of_it = f"overrides/{stored.step_type} "
    return next((sentence for sentence in settings.refused if of_it in sentence), None)


def _seconds(limit: timedelta | None) -> float | None:
    return None if limit is None else seconds_of(limit)
