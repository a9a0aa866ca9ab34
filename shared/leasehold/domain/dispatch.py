"""The settings in force for one attempt, and the dispatch that freezes them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import datetime, timedelta
from typing import Any, Final

from leasehold.domain.announcement import AnnouncedEvent
from leasehold.domain.deadlines import MIN_DEADLINE
from leasehold.domain.delivery_rules import DeliveryRules
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import DEFAULT_CLEANUP, ENTRY_OPTIONS, Dispatch, RetryRule
from leasehold.domain.retry import Backoff
from leasehold.domain.step_pause import PAUSE_OF_ALL, StepPause, pause_id
from leasehold.domain.stored import LATEST, replace
from leasehold.errors import UnknownKeyError
from leasehold.frozen import dataclass

#: Those of an entry that says nothing of them.
_DEFAULT_OPTIONS: Final[Mapping[str, Any]] = {
    "cleanup_ms": DEFAULT_CLEANUP // timedelta(milliseconds=1)
}


@dataclass(frozen=True)
class StepSettings:
    """The settings of a step type at one moment, with the source of each.

    Args:
        step_type: the step type.
        agent_timeout: the hard limit of the handler.
        dispatch_deadline: after this Cloud Tasks stops listening.
        max_retries: how often a failed attempt is repeated.
        retry: its own retry policy; None: the waits of all steps.
        heartbeat: how often the lease is renewed; None: never, and the lease runs to its cap.
        queue: the queue its tasks go to.
        remote: a remote worker claims the step; no task announces it.
        schedule_to_start: how long a remote step may wait to be claimed.
        sources: for each field the place of its value: `entry`, `threshold`, a variable's name;
            if the run sets it, `run`.
        refused: one sentence for each value that was set but cannot be used.
        own_task: whether each attempt has its own task, also where the worker of the step before
            could go on.
        options: what the entry says alone, by the `ENTRY_OPTIONS` of a dispatch.
        tail: the settings of a tail probe, under the longest limits; None: there are none.
        is_tail: whether an attempt is one, by its run, step and generation.
    """

    step_type: str
    agent_timeout: timedelta
    dispatch_deadline: timedelta
    max_retries: int
    heartbeat: timedelta | None
    queue: str
    remote: bool
    schedule_to_start: timedelta
    sources: Mapping[str, str]
    refused: tuple[str, ...] = ()
    retry: RetryRule | None = None
    own_task: bool = False
    options: Mapping[str, Any] = field(default_factory=lambda: _DEFAULT_OPTIONS)
    tail: StepSettings | None = None
    is_tail: Callable[[str, str, int], bool] = lambda *_: False

    @functools.cached_property
    def frozen(self) -> Dispatch:
        """The dispatch that has these settings, before it is that of an attempt: made once."""
        heartbeat = self.heartbeat
        claimed_within = self.schedule_to_start if self.remote else None
        return Dispatch(
            generation=0,
            step=self.step_type,
            trial=0,
            not_before=LATEST,  # until it is that of an attempt
            timeout_ms=_milliseconds(self.agent_timeout),
            deadline_s=round(self.dispatch_deadline.total_seconds()),
            max_retries=self.max_retries,
            retry=self.retry,
            heartbeat_s=None if heartbeat is None else heartbeat.total_seconds(),
            queue=self.queue,
            remote=self.remote,
            schedule_to_start_s=None
            if claimed_within is None
            else round(claimed_within.total_seconds()),
            sources=self.sources,
            nonce="",
            **self.options,
        )


@dataclass(frozen=True, slots=True)
class Rules:
    """The facts that transitions need beyond the manifest.

    Args:
        settings_for: the settings in force for a step type; None: this deploy does not know it.
        lease_ttl: how long a lease runs that is renewed.
        on_platform: whether Cloud Tasks calls the steps, which listens for 30 minutes at most.
        max_failures: how often a step may fail in all, with progress in between; more retries of it
            go over this.
        max_interruptions: how often a step may be interrupted or lose its lease without progress,
            and how many of its tasks may be lost without a lease in between.
        stuck_timeout: how long nothing may be heard of a step before that is a silence; never
            shorter than the lease that is held.
        recovery_window: how long after a failure the next attempt may begin.
        backoff: the waits between failed attempts.
        grace: how long after its time a task may still come before the sweep looks for it.
        channels_for: the channels that get an event of runs of a pipeline; None: not known
            here, where there is no catalog.
        delivery: how patient deliveries to them are.
        code_hash: of the user's code as this process loaded it; empty: not known.
        pauses: of step types and of all, by their ids, as they are known now.
    """

    settings_for: Callable[[str], StepSettings | None]
    lease_ttl: timedelta = timedelta(seconds=30)
    on_platform: bool = False
    max_failures: int = 100
    max_interruptions: int = 10
    stuck_timeout: timedelta = timedelta(minutes=15)
    recovery_window: timedelta = timedelta(hours=1)
    backoff: Backoff = field(default_factory=Backoff)
    grace: timedelta = timedelta(seconds=60)
    channels_for: Callable[[str, AnnouncedEvent], tuple[str, ...] | None] = lambda *_: ()
    delivery: DeliveryRules = field(default_factory=DeliveryRules)
    code_hash: str = ""
    pauses: Mapping[str, StepPause] = field(default_factory=dict)

    def pause_of(self, step_type: str) -> StepPause | None:
        """Return what pauses a step type now: its own pause, or that of all; None: nothing does."""
        for id_ in (pause_id(step_type), PAUSE_OF_ALL):
            found = self.pauses.get(id_)
            if found is not None and found.resumed_at is None:
                return found
        return None

    def known_settings(self, step_type: str) -> StepSettings:
        """Return the settings in force, or raise UnknownKeyError."""
        settings = self.settings_for(step_type)
        if settings is None:
            known = "those this deploy has"
            raise UnknownKeyError(registry="dispatch", key=step_type, known=known)
        return settings


def has_moved(manifest: Manifest, settings: StepSettings) -> bool:
    """Return whether a deploy gave the step to remote workers since its dispatch, or took it back.

    Whoever was to run it cannot any more, so it is dispatched again: no reason to give it up. So
    is one that was dispatched by who did not know the step, or its wait. A kept output is judged
    here.

    Args:
        manifest: the run.
        settings: those in force for its step.
    """
    is_remote, dispatch = settings.remote, manifest.position.dispatch
    if is_remote and manifest.has_unjudged_output:
        is_remote = False
    if dispatch.provisional or dispatch.remote is not is_remote:
        return True
    return manifest.places is not None and manifest.has_wait_to_begin


def as_dispatched(rules: Rules, dispatch: Dispatch) -> Rules:
    """Return the rules for a reader without a catalog: the step as its dispatch has it."""
    heartbeat, claimed_within = dispatch.heartbeat_s, dispatch.schedule_to_start_s
    settings = StepSettings(
        step_type=dispatch.step,
        agent_timeout=timedelta(milliseconds=dispatch.timeout_ms),
        dispatch_deadline=timedelta(seconds=dispatch.deadline_s),
        max_retries=dispatch.max_retries,
        heartbeat=None if heartbeat is None else timedelta(seconds=heartbeat),
        queue=dispatch.queue,
        remote=dispatch.remote,
        schedule_to_start=timedelta(seconds=claimed_within or 0),
        sources=dispatch.sources,
        retry=dispatch.retry,
        options={name: getattr(dispatch, name) for name in ENTRY_OPTIONS},
    )
    return replace(rules, settings_for=lambda _: settings)


def dispatch_of(
    settings: StepSettings,
    *,
    step: str,
    generation: int,
    trial: int,
    not_before: datetime,
    nonce: str,
    traceparent: str | None = None,
    max_retries: int | None = None,
) -> Dispatch:
    """Freeze the settings in force into the next dispatch; its run may say how often to retry.

    `settings` are those of the type of the step, `step` is its name in the plan.
    """
    if settings.tail is not None and settings.is_tail(nonce, settings.step_type, generation):
        settings = settings.tail
    dispatch = replace(
        settings.frozen,
        step=step,
        generation=generation,
        trial=trial,
        not_before=not_before,
        nonce=nonce,
    )
    if traceparent is not None:
        dispatch = replace(dispatch, traceparent=traceparent)
    if max_retries is None:
        return dispatch
    sources = {**settings.sources, "maxRetries": "run"}
    return replace(dispatch, max_retries=max_retries, sources=sources)


#: What a step has left behind its agent timeout where it runs in the request of the one before:
#: half of what its own deadline would leave, up to this.
_MAX_ROOM: Final = timedelta(seconds=30)


def dispatch_in_request(
    dispatch: Dispatch, settings: StepSettings, left: timedelta, task_of: int
) -> Dispatch | None:
    """Return the dispatch of a step that begins in the request of the one before; None: it may not.

    Its deadline is then that of the request, as the queue waits no longer.

    Args:
        dispatch: the one that it would have with its own task.
        settings: those in force for it.
        left: until the queue stops waiting for the request.
        task_of: the generation whose task the request is of.
    """
    left_s, hard = left // timedelta(seconds=1), dispatch.hard_limit
    is_short = timedelta(seconds=left_s) < MIN_DEADLINE  # its dispatch may get a task yet
    room = min((timedelta(seconds=dispatch.deadline_s) - hard) / 2, _MAX_ROOM)
    if settings.own_task or is_short or timedelta(seconds=left_s) < hard + room:
        return None
    if left_s >= dispatch.deadline_s:
        return replace(dispatch, task_of=task_of)
    sources = {**dispatch.sources, "dispatchDeadline": "request"}
    return replace(dispatch, deadline_s=left_s, sources=sources, task_of=task_of)


def provisional_dispatch(
    before: Dispatch, *, generation: int, step: str, trial: int, not_before: datetime
) -> Dispatch:
    """Return the dispatch of a step that is not known here, with the settings of the one before.

    Another attempt of the same step has the settings that it had. Those of a further step are not
    known: a process that knows it dispatches it again, to its own queue, before it takes the lease.
    """
    is_further = step != before.step
    return replace(
        before,
        generation=generation,
        step=step,
        trial=trial,
        not_before=not_before,
        remote=before.remote and not is_further,
        schedule_to_start_s=None if is_further else before.schedule_to_start_s,
        budget=None if is_further else before.budget,
        redispatched=0,
        lost_since=None,
        deferred=0,
        seen_at=None,
        enqueued=False,
        provisional=before.provisional or is_further,
        after_block=None,
        held=None,
        task_of=None,
    )


def _milliseconds(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)
