"""One attempt whose handler runs in a child: its worker's thread serves it and holds the clock.

Nothing that this thread does can wait for the child or for a store, so every limit is kept.
"""

from __future__ import annotations

import math
import select
import time
from collections.abc import Callable, Container
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Final, Self

from leasehold.attempt.attempt import Attempt
from leasehold.attempt.calls import AttemptCalls
from leasehold.attempt.silence import Silence
from leasehold.domain.manifest_parts import Progress
from leasehold.domain.notes import ThreadStack
from leasehold.domain.spend import spend_of
from leasehold.domain.status import Termination
from leasehold.frozen import dataclass
from leasehold.worker.sandbox.call_server import CallServer
from leasehold.worker.sandbox.child.soft_limit import STACKS_SIGNAL
from leasehold.worker.sandbox.forking.child import Child
from leasehold.worker.sandbox.output_lines import Prints, relay
from leasehold.worker.sandbox.stacks import Stacks
from leasehold.worker.sandbox.wire.frames import Channel, Frame, GarbledError
from leasehold.worker.sandbox.wire.messages import (
    BootstrapNote,
    Call,
    ContinuedNote,
    DeferredNote,
    Ending,
    ExecutionNote,
    FailedNote,
    FinishedNote,
    Imported,
    Job,
    LeftNote,
    LogLine,
    ProgressNote,
    SoftLimitNote,
    SpendNote,
    StacksNote,
    Stop,
    UnableNote,
)

# The limits of one attempt, on the clock that a worker shares with its child.


#: A handler of a worker that is shut down is ended by who shuts it down; at the latest, then.
_SHUTDOWN_S: Final = 10.0

#: So long before the dispatch deadline it is killed: at that itself the attempt is ended without
#: what the handler was doing.
_KILL_BEFORE_DEADLINE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """When an attempt is to end, in monotonic seconds, and how much memory it may take.

    The time of a handler begins when its module is imported; until then only that is limited.

    Args:
        begun_at: when the process was there.
        soft_at: when the handler is asked to end; while it is imported: never.
        hard_at: when it is killed; while it is imported: when that has taken too long.
        timeout_s: the agent timeout: how long the handler may take.
        deadline_at: the dispatch deadline, which comes first where the attempt began late.
        cleanup_s: how long a handler may take to end that is asked to.
        memory: in bytes; None: no limit.
        silence: how long the handler may say nothing; None: there is no limit.
    """

    begun_at: float
    soft_at: float
    hard_at: float
    timeout_s: float
    deadline_at: float
    cleanup_s: float
    memory: int | None
    silence: timedelta | None

    @classmethod
    def of(cls, held: Attempt, now: float, import_s: float) -> Self:
        """Return the limits of an attempt whose process is there now.

        Args:
            held: the attempt.
            now: monotonic seconds.
            import_s: how long the import of the handler may take.
        """
        dispatch = held.manifest.position.dispatch
        soft, hard = dispatch.soft_limit.total_seconds(), dispatch.hard_limit.total_seconds()
        deadline_at = held.answer_by - _KILL_BEFORE_DEADLINE_S
        return cls(
            begun_at=now,
            soft_at=math.inf,
            hard_at=min(now + import_s, deadline_at),
            timeout_s=hard,
            deadline_at=deadline_at,
            cleanup_s=hard - soft,
            memory=dispatch.memory_limit_bytes,
            silence=dispatch.silence_limit,
        )

    def from_import(self, now: float) -> Self:
        """Return the limits of a handler that is imported now."""
        hard_at = now + self.timeout_s
        return replace(self, soft_at=hard_at - self.cleanup_s, hard_at=hard_at)

    def from_soft(self, now: float) -> Self:
        """Return the limits of a handler that is given its soft limit now."""
        return replace(self, soft_at=now, hard_at=min(self.hard_at, now + self.cleanup_s))

    def kill_at(self, reason: Termination | None, held: Attempt, now: float) -> float:
        """Return the time of the kill if a handler is asked to stop now."""
        if reason is Termination.INSTANCE_SHUTDOWN:
            return now + _SHUTDOWN_S
        if reason is Termination.DISPATCH_DEADLINE_EXCEEDED:
            return now
        if reason is Termination.LEASE_EXPIRED:  # another worker may have the run then
            return min(now + self.cleanup_s, max(now, held.ends_at))
        return now + self.cleanup_s


#: How long a child may take to end that has said its last word, and to die that was killed.
_EXIT_TIMEOUT_S: Final = 1.0
_DEATH_TIMEOUT_S: Final = 2.0

_WAKES: Final = 4096
_MAX_LOOK_EVERY_S: Final = 1.0  # at the latest
_MEMORY_LOOK_EVERY_S: Final = 0.05
_THREAD_LOOK_EVERY_S: Final = 0.05  # a call waits for a thread

#: So long it listens to a child that never stops talking, before it looks at the clock.
_MAX_LISTEN_S: Final = 0.05

#: How long a child has to hear of its soft limit, and to write its stacks at a signal; they are
#: whole when nothing follows for a moment.
_LIMIT_HEARD_S: Final = 0.5
_STACKS_TIMEOUT_S: Final = 0.15
_STACKS_QUIET_S: Final = 0.02

#: While it goes on, its threads have so long to write them; a signal could disturb a call of C.
_LIVE_STACKS_S: Final = 0.7
#: So long a thread that wants them waits for the one that serves the child.
_LIVE_STACKS_TIMEOUT_S: Final = 1.0


class _LiveStack:
    """The stacks of a child that goes on: asked for, then signalled for, and read as they come.

    Args:
        stacks: where they are collected.
    """

    def __init__(self, stacks: Stacks) -> None:
        self.stacks = stacks
        self.taken: Future[ThreadStack] = Future()
        self.look_at = 0.0  # in monotonic seconds; first at once
        self.is_requested = self.is_signalled = False

    def read(self, now: float) -> None:
        """Read what came; they are whole when nothing follows for a moment."""
        if not self.stacks.read():  # it has closed the pipe: nothing follows at all
            self.look_at, self.is_signalled = now, True
        if self.stacks.has_any:
            self.look_at = min(self.look_at, now + _STACKS_QUIET_S)

    def end(self) -> None:
        """Give what there is to the thread that waits for it."""
        self.taken.set_result(ThreadStack(self.stacks.text(), self.stacks.origin()))


class SandboxedAttempt:
    """Serves a child from its first word to its end.

    Args:
        held: the attempt.
        child: its process.
        limits: when it is to end, from its import on.
        calls: what answers the calls of its context.
        stacks: what it writes of its stacks.
        note_fit: called when a process that has imported the handler may be forked.

    Attributes:
        limits: when it is to end.
        is_imported: whether its handler is imported and may be called, so that its time has begun.
        last: what the child said last, if it came so far.
        limit: the limit at which it was killed; None: none.
        soft_limit: the limit that its soft one was for: of its time, or of its silence.
        garbled: what was wrong with what it sent; empty: nothing.
        taken: the memory that it took when it was killed for that.
        left: what it has left in its process, in words; None: it did not come so far.
    """

    def __init__(
        self,
        held: Attempt,
        child: Child,
        limits: Limits,
        *,
        calls: AttemptCalls,
        stacks: Stacks,
        note_fit: Callable[[], object],
    ) -> None:
        self.limits = limits
        self.is_imported = False
        self.last: tuple[Ending, bytes] | None = None
        self.limit: Termination | None = None
        self.soft_limit = Termination.AGENT_TIMEOUT_EXCEEDED
        self.garbled = ""
        self.taken = 0
        self.left: str | None = None
        self.stacks = stacks
        self.prints = Prints(child.output)
        self._held = held
        self._child = child
        self._calls = calls
        self._note_fit = note_fit
        self._woken, self._waker = child.alarm
        self._channel = Channel(child.call)
        self._desk = CallServer(calls, self._wake)
        self._kill_at: float | None = None
        self._is_soft_given = False
        self._silence: Silence | None = None
        self._live: _LiveStack | None = None
        self._ready: set[int] = set()  # by the last poll: each look at a descriptor takes a switch

    @property
    def was_stopped(self) -> bool:
        """Whether it was asked to stop before it reached a limit."""
        return self._kill_at is not None

    @property
    def is_past_soft_limit(self) -> bool:
        """Whether its soft limit was given to it."""
        return self._is_soft_given

    @property
    def never_began(self) -> bool:
        """Whether nothing was called, for no reason that its process could name, or any other."""
        return not (self.is_imported or self.last or self._held.stop.is_requested)

    @property
    def is_clean(self) -> bool:
        """Whether it is over, and nothing of it is left in its process."""
        is_at_rest = self._channel.is_at_rest and not self._desk.is_busy and self._live is None
        return self.left == "" and not (self.limit or self.garbled) and is_at_rest

    @property
    def has_ended(self) -> bool:
        """Whether its process has, as far as the last poll said."""
        return self._child.status in self._ready and self._child.ending() is not None

    def serve(self, job: Job, given: bytes) -> None:
        """Give the child its job, and serve it until it has ended, or was killed."""
        forget = self._held.stop.listen(self._wake)
        self._held.stack_of_process = self._live_stack
        try:
            self._channel.send(job, given)
            while not self._is_over():
                self._turn()
            self._wind_up()
        finally:
            forget()
            self._held.stack_of_process = None
            if self._live is not None:
                self._live.end()
            if not self.is_clean:
                self._child.kill()

    def _is_over(self) -> bool:
        return bool(self.last or self.limit or self.garbled or self.has_ended)

    def _turn(self) -> None:
        try:
            self._wait(self._next_look() - time.monotonic())
            self._read()
            for message, body in self._desk.look():
                self._channel.send(message, body)
            if self.last is None:
                self._keep_time(time.monotonic())
        except GarbledError as error:
            self.garbled = str(error)

    def _wait(self, seconds: float) -> None:
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        poll.register(self._child.status, select.POLLIN)
        if not self._channel.is_over:
            hears = select.POLLIN if self._may_hear else 0
            wants = select.POLLOUT if self._channel.has_unsent else 0
            if hears | wants:
                poll.register(self._child.call, hears | wants)
        if not self.prints.is_over:
            poll.register(self._child.output, select.POLLIN)
        is_for_stacks = self.last is not None or self._live is not None  # else others wait for them
        if is_for_stacks and not self.stacks.is_over:
            poll.register(self._child.stacks, select.POLLIN)
        self._ready = {descriptor for descriptor, _ in poll.poll(max(0.0, seconds) * 1000)}
        if self._woken.fileno() in self._ready:
            with suppress(BlockingIOError):
                self._woken.recv(_WAKES)

    def _next_look(self) -> float:
        limits, now = self.limits, time.monotonic()
        ends = [now + _MAX_LOOK_EVERY_S, limits.hard_at, limits.deadline_at]
        if limits.memory is not None:
            ends.append(now + _MEMORY_LOOK_EVERY_S)
        if self._desk.has_waiting:
            ends.append(now + _THREAD_LOOK_EVERY_S)
        if self._kill_at is not None:
            ends.append(self._kill_at)
        elif not self._is_soft_given:
            ends.append(limits.soft_at)
            if self._silence is not None:
                ends.append(now + self._silence.left_s)
        if self._live is not None:
            ends.append(self._live.look_at)
        return min(ends)

    def _read(self) -> None:
        if self._child.output in self._ready:
            self._note_sign()
            self.prints.read(time.monotonic() + _MAX_LISTEN_S)
        if self._live is not None and self._child.stacks in self._ready:
            self._live.read(time.monotonic())
        if self._channel.has_unsent:
            self._channel.flush()
        if self._may_hear and self._child.call.fileno() in self._ready:
            for frame in self._channel.received(time.monotonic() + _MAX_LISTEN_S):
                self._note_sign()
                self._hear(frame)
        if self._channel.is_over and not self.last and not self._has_ended_within(_EXIT_TIMEOUT_S):
            raise GarbledError("it closed its connection to the worker")

    @property
    def _may_hear(self) -> bool:
        """Whether there is room for more calls: what they carry and are answered is kept here."""
        return not (self._channel.is_behind or self._desk.is_full)

    def _note_sign(self) -> None:
        if self._silence is not None:
            self._silence.hear()

    def _hear(self, frame: Frame) -> None:
        if self.last is not None:  # it had said its last word
            if isinstance(frame.message, LeftNote):
                self.left = frame.message.what
            return
        match frame.message:
            case Call() as call:
                self._desk.take(call, frame.body)
            case (
                FinishedNote() | FailedNote() | UnableNote() | DeferredNote() | ContinuedNote()
            ) as last:
                self.last = last, frame.body
                has_result = isinstance(last, FinishedNote)
                self._held.phases.note_returned(time.monotonic(), has_result=has_result)
            case ProgressNote() | SpendNote() as note:
                self._note(note)
            case BootstrapNote() | ExecutionNote() as mark:
                self._mark(mark)
            case LogLine() as line:
                relay(line)
            case Imported(is_fit=is_fit, at=at) if not self.is_imported:
                self.is_imported = True
                begun_at = min(at, time.monotonic())
                self.limits = self.limits.from_import(begun_at)
                self._held.phases.note_entered(begun_at)
                self._silence = Silence(self.limits.silence, begun_at)
                if is_fit:
                    self._note_fit()

    def _note(self, note: ProgressNote | SpendNote) -> None:
        match note:
            case ProgressNote(fraction=fraction, message=message):
                self._calls.note_progress(Progress(fraction=fraction, message=message))
            case SpendNote(tokens=tokens, usd=usd):
                self._calls.note_spend(spend_of(tokens, usd))

    def _mark(self, mark: BootstrapNote | ExecutionNote) -> None:
        if isinstance(mark, BootstrapNote):
            self._held.phases.mark_bootstrap(mark.tool, mark.at)
        else:
            self._held.phases.mark_execution(mark.at)

    def _keep_time(self, now: float) -> None:
        stop, limits = self._held.stop, self.limits
        if stop.is_requested and self._kill_at is None and stop.reason is not None:
            self._kill_at = limits.kill_at(stop.reason, self._held, now)
            self._channel.send(Stop(reason=stop.reason))
        if self._kill_at is not None and (stop.is_forced or self._kill_at <= now):
            self._kill(stop.reason)
        elif limits.deadline_at <= now:
            self._kill(Termination.DISPATCH_DEADLINE_EXCEEDED)
        elif limits.hard_at <= now:
            self._kill(self.soft_limit)
        elif limits.memory is not None and self._child.memory() > limits.memory:
            self.taken = self._child.memory()
            self._kill(Termination.MEMORY_LIMIT_EXCEEDED)
        elif not self._is_soft_given and not self.was_stopped:
            if limits.soft_at <= now:
                self._give_soft_limit(now)
            elif self._is_silent(now):
                self.soft_limit = Termination.SILENCE_LIMIT_EXCEEDED
                self._give_soft_limit(now)

        if self._live is not None and self._live.look_at <= now:
            self._take_live(self._live, now)

    def _is_silent(self, now: float) -> bool:
        """Return whether the handler has said nothing for too long; its calls may wait here."""
        silence, waits = self._silence, self._desk.is_busy or self._held.outage is not None
        if silence is None or not silence.listen(now, waits=waits):
            return False
        self._wait(0.0)  # this worker may have been frozen since the last poll
        self._read()
        return silence.listen(now)

    def _give_soft_limit(self, now: float) -> None:
        self._is_soft_given = True
        self.limits = limits = self.limits.from_soft(now)
        self.stacks.clear()
        self._channel.send(SoftLimitNote(reason=self.soft_limit, hard_at=limits.hard_at))
        if not self._has_stacks_within(min(_LIMIT_HEARD_S, (limits.hard_at - now) / 4)):
            self._take_stacks()

    def _take_live(self, live: _LiveStack, now: float) -> None:
        """Have a child that goes on write its stacks, by and by more urgently."""
        if not live.is_requested:
            live.is_requested, live.look_at = True, now + _LIVE_STACKS_S
            live.stacks.clear()
            self._channel.send(StacksNote(by=live.look_at))
        elif not live.stacks.has_any and not live.is_signalled:
            live.is_signalled, live.look_at = True, now + _STACKS_TIMEOUT_S
            self._child.signal(STACKS_SIGNAL)
        else:
            self._live = None
            live.end()

    def _live_stack(self) -> ThreadStack:
        """Return what the child does now; nothing, if it does not say within a second.

        For any thread but the one that serves the child, which reads what that writes.
        """
        self._live = live = _LiveStack(self.stacks.apart())
        self._wake()
        with suppress(TimeoutError):
            return live.taken.result(_LIVE_STACKS_TIMEOUT_S)
        return ThreadStack()

    def _kill(self, reason: Termination | None) -> None:
        self.limit = reason
        is_asked_for = self.was_stopped and reason is not Termination.MEMORY_LIMIT_EXCEEDED
        if not is_asked_for and not self._is_soft_given:
            self._take_stacks()
        self._held.is_killed = True
        self._child.kill()

    def _take_stacks(self) -> None:
        """Have the child write its stacks, whatever it does, and read them."""
        self.stacks.clear()
        self._child.signal(STACKS_SIGNAL)
        self._has_stacks_within(_STACKS_TIMEOUT_S)

    def _has_stacks_within(self, seconds: float) -> bool:
        """Read the stacks that the child writes; return whether there are any."""
        over_at = time.monotonic() + seconds
        while (left := over_at - time.monotonic()) > 0:
            if not self.stacks.wait(_STACKS_QUIET_S if self.stacks.has_any else left):
                break
            if not self.stacks.read():
                break
        return self.stacks.has_any

    def _wind_up(self) -> None:
        """See to it that the child ends, and take what it still said."""
        if self.garbled:
            self._child.kill()
        if not self._has_ended_within(_EXIT_TIMEOUT_S, or_clean=True):
            self._child.kill()
            self._child.is_unreported = not self._has_ended_within(_DEATH_TIMEOUT_S)
        if not self.is_clean:
            self._take_the_rest()
        self.prints.end()

    def _has_ended_within(self, seconds: float, *, or_clean: bool = False) -> bool:
        """Wait for the end of the child, and take what it says: it may have to say it to end.

        Of one that is clean, nothing runs on that would have to be waited for.
        """
        over_at = time.monotonic() + seconds
        while True:
            left, was_clean = over_at - time.monotonic(), or_clean and self.is_clean
            self._wait(0.0 if was_clean else left)
            self._take_the_rest(self._ready)
            # what it printed before it said that it is clean, the poll after that tells
            if self.has_ended or (was_clean and self.is_clean):
                return True
            if left <= 0:
                return False

    def _take_the_rest(self, ready: Container[int] | None = None) -> None:
        """Take all that is there, of those that are ready by the last poll; None: of any."""
        if ready is None or self._child.output in ready:
            self.prints.read()
        if ready is None or self._child.stacks in ready:
            self.stacks.read()
        if ready is not None and self._child.call.fileno() not in ready:
            return
        try:
            for frame in self._channel.received():
                self._hear(frame)
        except GarbledError as error:
            if self.limit is None:
                self.garbled = str(error)

    def _wake(self) -> None:
        with suppress(OSError):  # it is awake already, or over
            self._waker.send(b"w")
