"""Effects: what must happen outside the store once a commit stands. The manifest is the outbox.

A kind of effect is a value, such as `Task`, and a row of `OWED`: the function that reads from a
manifest what it still owes of that kind. The process that carries an effect out records it in
the manifest by another commit; until then the alarm of the run stands, and the sweep publishes it
again.

Temporary files of a live run are the exception: no alarm rings for them, and whatever could not be
deleted is deleted by the archive, at the end of the run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import field
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from leasehold.domain.announcing import deliveries_of, state_event
from leasehold.domain.artifact_name import checkpoints_folder, is_artifact_name, step_folder
from leasehold.domain.event_message import EventMessage
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Lease
from leasehold.domain.recorded_calls import kept_files, owed_prefix
from leasehold.domain.status import RunStatus
from leasehold.domain.traceparent import trace_of_run
from leasehold.frozen import dataclass

#: How long after the end of a lease its wake task comes.
WAKE_DELAY: Final = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class Task:
    """One message to `execute_step`.

    Args:
        name: unique for what it announces, so that announcing it twice gives one task.
        queue: the queue it goes to.
        run_id: the run.
        generation: the dispatch it belongs to.
        not_before: when it may be delivered.
        deadline: how long the queue listens for the answer.
        traceparent: the trace of the run, for a header; empty: it was begun with none.
    """

    name: str
    queue: str
    run_id: str
    generation: int
    not_before: datetime
    deadline: timedelta
    traceparent: str = ""


def dispatch_task(manifest: Manifest) -> Task:
    """Return the task that announces the dispatch of the manifest."""
    dispatch = manifest.position.dispatch
    name = _hashed(manifest.run_id, dispatch.nonce, str(dispatch.generation))
    not_before = dispatch.not_before
    if manifest.parent is not None and manifest.parent.since and not manifest.fencing_token:
        not_before = min(not_before, manifest.parent.since)  # what began first is joined first
    return _task(manifest, name, not_before)


def wake_task(manifest: Manifest, lease: Lease) -> Task:
    """Return the task that looks again once `lease` must be over; one a lease and end."""
    name = _hashed(manifest.run_id, lease.lease_id, lease.expires_at.isoformat())
    return _task(manifest, name, lease.expires_at + WAKE_DELAY)


def question_task(manifest: Manifest) -> Task:
    """Return the task that asks a run that waits whether its children are through."""
    at = manifest.position
    asked = f"{at.dispatch.generation} {manifest.updated_at.isoformat()}"
    return _task(manifest, _hashed(manifest.run_id, at.dispatch.nonce, asked), manifest.updated_at)


@dataclass(frozen=True, slots=True)
class Telling:
    """What a run has to tell its children: the last word of people on it.

    Args:
        run_id: the run.
        word: the number of the word; a child that has heard a later one does nothing.
        say: `pause`, `resume`, `cancel` or `retry`.
    """

    run_id: str
    word: int
    say: str


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """The end of a child, or its wait for a person: its parent is asked whether all are through.

    A hint, as tasks are: the alarm of the parent asks as well. A lane that is through takes over
    half of what another one has to do, if that is worth it, and then asks nothing.

    Args:
        child: the run.
        is_repeated: whether this is no news: who ended it may have been killed before it asked.
    """

    child: Manifest
    is_repeated: bool = False

    @property
    def question(self) -> Task:
        """The task that asks the parent; one for each end."""
        run = self.child
        at, parent = run.position, run.parent
        assert parent is not None  # noqa: S101 - only children have such ends
        end = f"{run.run_id} {at.dispatch.nonce} {at.dispatch.generation} {run.status.value}"
        return Task(
            name=_hashed(parent.run_id, parent.nonce, end),
            queue=parent.queue,
            run_id=parent.run_id,
            generation=parent.generation,
            not_before=parent.since or run.updated_at,
            deadline=timedelta(seconds=parent.deadline_s),
        )


def child_ends(manifest: Manifest, *, is_repeated: bool = False) -> tuple[ChildEnd, ...]:
    """Return the end of a child, of which its parent is to hear; none, where it goes on."""
    stands = manifest.status is RunStatus.BLOCKED and manifest.look_at is None
    if manifest.parent is None or not (manifest.is_terminal or stands):
        return ()
    return (ChildEnd(manifest, is_repeated),)


def _task(manifest: Manifest, name: str, not_before: datetime) -> Task:
    is_traced = manifest.traceparent is not None
    return Task(
        name=name,
        queue=manifest.position.dispatch.queue,
        run_id=manifest.run_id,
        generation=manifest.position.dispatch.generation,
        not_before=not_before,
        deadline=timedelta(seconds=manifest.position.dispatch.deadline_s),
        traceparent=trace_of_run(manifest, manifest.traceparent).traceparent if is_traced else "",
    )


def _hashed(*parts: str) -> str:
    """Cloud Tasks slows down on sequential names; a hash spreads them."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:40]


_NO_TIME: Final = timedelta()


@dataclass(frozen=True, slots=True)
class Deletion:
    """What a step of a live run leaves that is over: temporary files, and recorded calls.

    Args:
        run_id: the run.
        folders: of the files.
        calls: what the names of the recorded calls begin with.
    """

    run_id: str
    folders: tuple[str, ...]
    calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Archive:
    """What is done once an ended run was announced; see `services/archive_run.py`.

    Args:
        run_id: the run.
        life: its mark; see `domain/artifact_name.py`.
        kept: temporary files that stay: a run that is made of it goes on from them.
        has_files: whether there may be files that handlers stored: looking for them costs a list.
        has_temporary: whether there may be temporary files; likewise.
        outputs: the texts of its outputs: people open the files whose addresses stand there.
        has_calls: whether there may be recorded calls that are not needed any more.
        trial_folder: that of the temporary files which recorded calls may refer to, known to the
            run or not: another run may go on from those. Empty: no run can.
    """

    run_id: str
    life: str
    kept: tuple[str, ...] = ()
    has_files: bool = field(default=False, compare=False)
    has_temporary: bool = field(default=False, compare=False)
    outputs: tuple[str, ...] = field(default=(), compare=False, repr=False)
    has_calls: bool = field(default=False, compare=False)
    trial_folder: str = field(default="", compare=False)


#: All that a run can owe.
Effect: TypeAlias = Task | EventMessage | Deletion | Archive | Telling | ChildEnd


def owed_effects(manifest: Manifest) -> tuple[Effect, ...]:
    """Return what the run still owes, as far as its manifest knows: nothing under a lease."""
    if manifest.position.lease is not None:
        return ()
    owed = tuple(effect for owed in OWED for effect in owed(manifest))
    return owed if manifest.position.children is None else (*owed, *owed_tellings(manifest))


def owed_tellings(manifest: Manifest) -> tuple[Telling, ...]:
    """Return the word that not all children of a run are known to have heard."""
    children = manifest.position.children
    if children is None or children.say is None or children.told >= children.word:
        return ()
    return (Telling(manifest.run_id, children.word, children.say),)


def is_awaited(effect: Effect) -> bool:
    """Return whether a run waits for an effect; a message is owed by its own delivery."""
    return not isinstance(effect, EventMessage | Deletion | Archive | ChildEnd)


def owed_tasks(manifest: Manifest) -> tuple[Task, ...]:
    """Return the task of a dispatch that waits for a worker and is not known to be enqueued."""
    return () if manifest.position.dispatch.enqueued else waiting_tasks(manifest)


def waiting_tasks(manifest: Manifest) -> tuple[Task, ...]:
    """Return the task of a dispatch that waits for a worker; a claimed or held one has none."""
    dispatch = manifest.position.dispatch
    if not manifest.waits_for_worker or dispatch.remote or dispatch.held is not None:
        return ()
    if manifest.position.slot_wait is not None and manifest.awaits_slot:
        return ()
    return (dispatch_task(manifest),)


def owed_messages(manifest: Manifest) -> tuple[EventMessage, ...]:
    """Return the messages of the last announcement of a run that has not moved on since.

    Deliveries have their own alarms: this is for a process that looks before those ring. Each knows
    whether it was made, so a message that comes again does no harm.
    """
    told = manifest.announcement
    if told is None or told.event != state_event(manifest):  # an older version took it further
        return ()
    if manifest.block is not None and manifest.block.looks > 0:  # it was announced long ago
        return ()
    return tuple(map(EventMessage, deliveries_of(manifest, _NO_TIME)))


def owed_deletions(manifest: Manifest) -> tuple[Deletion, ...]:
    """Return the deletion of the temporary files that are not needed any more.

    While a worker holds the run, `left_behind` is for that worker to carry out.
    """
    if manifest.is_terminal or manifest.position.lease is not None:
        return ()
    return left_behind(manifest)


def left_behind(manifest: Manifest) -> tuple[Deletion, ...]:
    """Return the deletion of the temporary files of the step, or trial, before the current one.

    Those before it were tried to be deleted then; what is left of them goes with the run's end.
    """
    if not manifest.owed:
        return ()
    over = _owed_of_others(manifest)
    last = [each for each in over if _trial_of(each) == _trial_of(over[-1])]
    if not last:
        return ()
    has_just_begun = _step_before(manifest) == _trial_of(last[0]).rpartition("-")[0]
    calls = [owed_prefix(manifest, each) for each in last if has_just_begun]
    return (Deletion(manifest.run_id, _own(manifest, last), tuple(filter(None, calls))),)


def owed_archives(manifest: Manifest) -> tuple[Archive, ...]:
    """Return the archive of a run that ended, and is not archived."""
    if not manifest.owes_archive:
        return ()
    outputs = tuple(step.output for step in manifest.steps.values() if step.output is not None)
    within = f"{checkpoints_folder(manifest)}/"
    kept = tuple(name for name in kept_files(manifest) if name.startswith(within))
    at, is_completed = manifest.position, manifest.status is RunStatus.COMPLETED
    goes_on = not is_completed and at.step_started_at is not None
    return (
        Archive(
            manifest.run_id,
            manifest.life,
            kept,
            has_files=_may_have_files(manifest),
            has_temporary=_may_have_temporary_files(manifest),
            outputs=outputs,
            has_calls=is_completed and any(owed_prefix(manifest, each) for each in manifest.owed),
            trial_folder=step_folder(manifest, at.step, at.trial) if goes_on else "",
        ),
    )


def leaves_artifacts(manifest: Manifest) -> bool:
    """Return whether a run that ended may have left artifacts that its archive has to see to."""
    return manifest.has_files or bool(manifest.owed) or _was_cut_short(manifest)


def _may_have_files(manifest: Manifest) -> bool:
    """Return whether handlers may have stored files, known to the run or not."""
    return manifest.has_files or _was_cut_short(manifest)


def _may_have_temporary_files(manifest: Manifest) -> bool:
    """Return whether a run that ended may have left temporary files, known to it or not.

    Each is owed from the commit on that refers to it, or the next one of its attempt. A worker that
    was cut short before that leaves an attempt without an output, or a run that was cancelled.
    Leftovers of a remote worker are owed with its lease.
    """
    within = f"{checkpoints_folder(manifest)}/"
    is_owed = any(each.startswith(within) for each in manifest.owed)
    return is_owed or _was_cut_short(manifest)


def _was_cut_short(manifest: Manifest) -> bool:
    """Return whether an attempt of the run may have ended without a word of what it had stored."""
    if manifest.cancelled or manifest.dead_lettered:
        return True
    return any(record.attempts.ended for record in manifest.steps.values())


def _owed_of_others(manifest: Manifest) -> tuple[str, ...]:
    """Return what is owed of trials of steps before the current one."""
    current = f"{manifest.position.step}-{manifest.position.trial}"
    return tuple(each for each in manifest.owed if _trial_of(each) != current)


def _trial_of(folder: str) -> str:
    """Return step and trial of an owed folder."""
    return folder.rpartition("/")[2]


def _step_before(manifest: Manifest) -> str | None:
    """Return the step that was handed off before the current one had any attempt; None: it had.

    To look for recorded calls costs reads.
    """
    at = manifest.position
    began_at = None if at.lease is None else at.lease.acquired_at
    if at.step_started_at != began_at:
        return None
    looped = manifest.looped_steps
    is_another_trial = at.trial > 1 and at.step in looped[:1]
    return looped[-1] if is_another_trial else manifest.plan[manifest.plan.index(at.step) - 1]


def _own(manifest: Manifest, folders: Sequence[str]) -> tuple[str, ...]:
    """Return those folders of temporary files that are the run's own."""
    if not folders:
        return ()
    within = f"{checkpoints_folder(manifest)}/"
    return tuple(each for each in folders if each.startswith(within) and is_artifact_name(each))


#: The effects of each kind: tasks first, then messages, and last those that nothing waits for.
OWED: Final[tuple[Callable[[Manifest], tuple[Effect, ...]], ...]] = (
    owed_tasks,
    owed_messages,
    owed_deletions,
    owed_archives,
)
