"""The settings in force for a step type: environment over entry, each value with its source."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from leasehold.domain.dispatch import StepSettings
from leasehold.domain.retry import Backoff
from leasehold.registry.dispatch import REMOTE, StepDispatchEntry, ladder_problem

_ENTRY: Final = "entry"
_MAX_DIGITS: Final = 9


def effective_settings(
    entry: StepDispatchEntry,
    environ: Mapping[str, str],
    *,
    max_retries: int,
    backoff: Backoff = Backoff(),  # noqa: B008 - a frozen value
    heartbeat: timedelta | None = None,
    longest_heartbeat: timedelta = timedelta.max,
) -> StepSettings:
    """Resolve the settings of a step type as they are at this moment.

    A value that is not a whole number above 0, or that breaks the time ladder, is refused: one
    sentence in `refused`, and the entry applies.

    Args:
        entry: the registry entry.
        environ: the environment now.
        max_retries: the threshold, for an entry without one.
        backoff: the waits, for what a retry policy leaves out.
        heartbeat: PIPELINE_HEARTBEAT_S where it is set; an entry without heartbeat stays without.
        longest_heartbeat: a third of PIPELINE_LEASE_TTL_S: a lease must outlast a lost renewal.
    """
    refused: list[str] = []
    timeout_name, deadline_name = entry.env_overrides
    timeout = _whole(environ, timeout_name, timedelta(milliseconds=1), refused)
    deadline = _whole(environ, deadline_name, timedelta(seconds=1), refused)
    timeout, deadline = _on_the_ladder(entry, timeout, deadline, refused)
    sources = {
        "agentTimeout": _ENTRY if timeout is None else timeout_name,
        "dispatchDeadline": _ENTRY if deadline is None else deadline_name,
        "maxRetries": "threshold" if entry.max_retries is None else _ENTRY,
        "heartbeat": _ENTRY,
    }
    interval = entry.heartbeat_interval
    if interval is not None and heartbeat is not None:
        interval, sources["heartbeat"] = heartbeat, "PIPELINE_HEARTBEAT_S"
    elif interval is not None and interval > longest_heartbeat:
        interval, sources["heartbeat"] = longest_heartbeat, "PIPELINE_LEASE_TTL_S"
    if entry.retry is not None:
        sources["retry"] = _ENTRY
    return StepSettings(
        step_type=entry.step_type,
        agent_timeout=timeout or entry.agent_timeout,
        dispatch_deadline=deadline or entry.dispatch_deadline,
        max_retries=max_retries if entry.max_retries is None else entry.max_retries,
        retry=None if entry.retry is None else entry.retry.in_force(backoff),
        cleanup_ttl=entry.cleanup_ttl,
        memory_limit=entry.memory_limit,
        heartbeat=interval,
        queue=entry.queue_id,
        remote=entry.handler == REMOTE,
        schedule_to_start=entry.schedule_to_start,
        sources=sources,
        refused=tuple(refused),
    )


def _on_the_ladder(
    entry: StepDispatchEntry,
    timeout: timedelta | None,
    deadline: timedelta | None,
    refused: list[str],
) -> tuple[timedelta | None, timedelta | None]:
    """Return the overrides that hold together with the entry: both, one, or none of them."""
    problem = None
    for pair in ((timeout, deadline), (timeout, None), (None, deadline), (None, None)):
        broken = ladder_problem(pair[0] or entry.agent_timeout, pair[1] or entry.dispatch_deadline)
        problem = problem or broken
        if broken is None:
            break
    if problem is not None:
        field, value, allowed = problem
        given = zip(entry.env_overrides, (timeout, deadline), pair, strict=True)
        dropped = [name for name, was, kept in given if was is not None and kept is None]
        refused.append(
            f"{' and '.join(dropped)} refused: {field} would be {value}; allowed: {allowed}."
        )
    return pair


def _whole(
    environ: Mapping[str, str], name: str, unit: timedelta, refused: list[str]
) -> timedelta | None:
    text = environ.get(name)
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS and int(text) > 0:
        return int(text) * unit
    words = "seconds" if unit == timedelta(seconds=1) else "milliseconds"
    refused.append(f"{name} refused: it is {text!r}; allowed: whole {words} above 0.")
    return None
