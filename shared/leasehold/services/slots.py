"""Limits: an attempt takes its slots before its handler begins, and who is next is called.

The lease comes first, then the slot, which names it: so a slot is free once that lease is over, and
nothing has to be given back. The worker that frees one calls the run that is next in its line; a
call is a hint, and the sweep looks at those that wait.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from leasehold.attempt.attempt import Attempt, LimitsOfAttempt
from leasehold.domain import lifecycle
from leasehold.domain.change import Change
from leasehold.domain.limit import MAX_ATTEMPTS_AT_ONCE, Bound, Limit, bounds_of
from leasehold.domain.manifest import Manifest, manifest_of, read_as, to_document
from leasehold.domain.manifest_parts import ErrorRecord
from leasehold.domain.rate import Grant, Rate, grant, is_led, parts_of, rate_ref
from leasehold.domain.result import Continued, Failed, Result, Unable, Waiting
from leasehold.domain.slots import (
    Slot,
    SlotWait,
    behind_group,
    group_of,
    is_ahead,
    just_behind,
    line_of,
    slot_ref,
    slots_of,
    takeable,
)
from leasehold.domain.status import BlockCode, Outcome
from leasehold.domain.stored import Document, Stored, Write, make, replace
from leasehold.errors import (
    LeaseholdError,
    LimitKeyError,
    StoreUnavailableError,
    UnknownLimitError,
    UnknownRunError,
    UnreadableRunError,
    VersionConflictError,
)
from leasehold.ports.documents import KnownRun, Query, Range, Snapshot
from leasehold.registry.dispatch import StepDispatchEntry
from leasehold.services.engine import Engine, find_run
from leasehold.services.lowered_limits import in_force, lower, words_of_lowered

#: A call meets as many others at most, each of which calls another run.
_MAX_CALL_TRIES: Final = MAX_ATTEMPTS_AT_ONCE
#: An attempt of so long may end behind runs that wait, though none did when it began.
_LONG: Final = timedelta(seconds=30)
#: With so many shares a process forgets those that are over: there may be a key for each tenant.
_MAX_SHARES: Final = 1000
#: So many runs are called at a time at most.
_MAX_RUNS_CALLED: Final = 100
#: So many runs ahead of one in a line are counted, and so many holders of slots named.
_MAX_AHEAD_COUNTED: Final = 1000
_MAX_HOLDERS_SHOWN: Final = 20


class HeldSlot(NamedTuple):
    """A slot that an attempt has.

    Args:
        bound: its limit.
        number: which one.
        group: of its run.
        called: the call of the run that is next, which is published once the slot is free.
    """

    bound: Bound
    number: int
    group: str
    called: Change | None = None


@dataclass(slots=True)
class Share:
    """The turns of a rate that this process has taken, and not used so far.

    Args:
        count: how many.
        until: when they are over, in monotonic seconds.
        used: how many of them were used; the next share has about as many.
        has_line: whether runs waited when it was taken: they have their turns first.
    """

    count: int
    until: float
    used: int
    has_line: bool


# Before the handler begins.


def take_slots(
    engine: Engine, attempt: Attempt, entry: StepDispatchEntry, given: str
) -> Waiting | Unable | None:
    """Take what the limits of a step want of an attempt, or return how it ends without it.

    Args:
        engine: the parts.
        attempt: the attempt; its lease is held.
        entry: its step.
        given: what that is given, JSON text.

    Raises:
        StoreUnavailableError: the store did not answer; what was taken goes with the lease.
    """
    run, waited = attempt.manifest, attempt.manifest.position.slot_wait
    attempt.slots = []
    attempt.limits = limits = HandlerLimits(engine, attempt, entry, given)
    wanted = [one for one in entry.limits if not one.per_call]
    try:
        keys = {limit: key_of(engine, entry, limit, run, given) for limit in wanted}
    except LimitKeyError as error:
        return Unable(BlockCode.LIMIT_UNUSABLE, ErrorRecord.of(error))
    bounds = [bound for limit in wanted for bound in bounds_of(limit, keys[limit])]
    try:
        for bound in sorted(bounds, key=lambda one: (one.is_rate, one.key)):  # a turn is not kept
            group = group_of(sorted({key for key in keys.values() if key != bound.key}))
            if take(engine, attempt, bound, group) is None:
                return Waiting(bound, group)
        if waited is not None and waited.called:
            limits.take_called(waited)
    except UnreadableRunError as error:  # a slot that was edited, or a newer version wrote
        return Unable(BlockCode.LIMIT_UNUSABLE, ErrorRecord.of(error))
    return None


def through_limits(attempt: Attempt, result: Result) -> Result:
    """Return the result of an attempt as it is, or that it waits: its handler ended for a limit.

    A provider that takes no more lowers the limits of the attempt that adapt.
    """
    limits = attempt.limits
    if not isinstance(limits, HandlerLimits):
        return result
    if isinstance(result, Failed) and result.error.rate_limited:
        limits.lower_for_attempt(result.error.retry_after_s)
    if limits.waiting is None:
        return result
    return limits.waiting if isinstance(result, Continued) else result


class HandlerLimits(LimitsOfAttempt):
    """The limits that a handler takes itself, by `ctx.limit`; any thread may call.

    Attributes:
        waiting: the limit that had no room: the attempt ends, and its run waits for it.
    """

    def __init__(
        self, engine: Engine, attempt: Attempt, entry: StepDispatchEntry, given: str
    ) -> None:
        self._engine, self._attempt, self._entry, self._given = engine, attempt, entry, given
        self._limits = {limit.key: limit for limit in entry.limits if limit.per_call}
        self._of_attempt = [one for one in entry.limits if one.adaptive and not one.per_call]
        self._began = attempt.store_time()
        self._taken: dict[str, list[HeldSlot]] = {}
        self._since: dict[str, list[datetime]] = {}  # blocks of a name are alike: the oldest first
        self._kept: dict[str, tuple[HeldSlot, ...]] = {}  # taken for the handler before it began
        self.waiting: Waiting | None = None

    def take_called(self, waited: SlotWait) -> None:
        """Take what the attempt before waited for: its turn would be over for another one."""
        limit = self._limits.get(waited.limit)
        if limit is not None and (slots := self._take(limit)) is not None:
            self._kept[limit.key] = slots

    def take(self, name: str) -> bool:
        """Take a limit; False: it has no room, and the attempt is to end."""
        self._attempt.check_lease()
        limit = self._limits.get(name)
        if limit is None:
            step, known = self._attempt.manifest.step_type, ", ".join(self._limits) or "none"
            raise UnknownLimitError(limit=name, step=step, known=known)
        slots = self._kept.pop(name, None)
        if slots is None:
            if (slots := self._take(limit)) is None:
                return False
            self._attempt.check_lease()  # a store may take longer: others have the slot by then
        self._taken.setdefault(name, []).extend(slots)
        self._since.setdefault(name, []).append(self._attempt.store_time())
        return True

    def free(self, name: str, retry_after_s: float | None = None) -> None:
        """Free a slot of a limit; where the store is away it goes with the lease.

        One that adapts is lowered where a provider took no more in its block.
        """
        since = self._since.get(name)
        began = since.pop(0) if since else None
        if retry_after_s is not None and began is not None:
            self._lower(self._limits[name], began, retry_after_s)
        held = self._taken.get(name)
        if held:
            with contextlib.suppress(StoreUnavailableError):
                give_back(self._engine, self._attempt, held.pop())

    def lower_for_attempt(self, retry_after_s: float | None) -> None:
        """Lower what the whole attempt had, where a provider took no more and says until when."""
        for limit in self._of_attempt if retry_after_s is not None else ():
            self._lower(limit, self._began, retry_after_s or 0.0)

    def _lower(self, limit: Limit, began: datetime, retry_after_s: float) -> None:
        if limit.adaptive:
            key = self._key_of(limit)
            lower(self._engine, self._attempt, limit, key, began=began, retry_after_s=retry_after_s)

    def _key_of(self, limit: Limit) -> str:
        return key_of(self._engine, self._entry, limit, self._attempt.manifest, self._given)

    def _take(self, limit: Limit) -> tuple[HeldSlot, ...] | None:
        """Return the slots of a limit; None: it has no room. Its turn comes last: none is kept."""
        key = self._key_of(limit)
        taken: list[HeldSlot] = []
        for bound in bounds_of(limit, key):
            found = take(self._engine, self._attempt, bound, "")
            if found is None:
                self.waiting = self.waiting or Waiting(bound)
                return None
            taken += found
        return tuple(taken)


def key_of(
    engine: Engine, entry: StepDispatchEntry, limit: Limit, run: Manifest, given: str
) -> str:
    """Return the key of a limit for a run, or raise LimitKeyError.

    Args:
        engine: the parts.
        entry: the step, whose model has values for fields that are not given.
        limit: the limit.
        run: the run.
        given: what its step is given, JSON text.
    """
    read: Callable[[], Any] = partial(json.loads, given)
    default = partial(engine.handlers.checks.value_at, entry, given)
    return limit.key_for(run.position.step, run.labels_by_name, read, default)


def take(engine: Engine, attempt: Attempt, bound: Bound, group: str) -> tuple[HeldSlot, ...] | None:
    """Take a slot, or a turn, which leaves nothing to hold; None: the attempt has to wait.

    A run that comes anew waits behind those of its own class that wait.
    """
    wait = attempt.manifest.position.slot_wait
    called = wait if wait is not None and wait.called and wait.name == bound.name else None
    if bound.is_rate:
        return () if _take_turn(engine, attempt, bound, called) else None
    if called is None and _has_to_wait(engine, attempt.manifest, bound):
        return None
    first = called.slot if called is not None else None
    number = take_slot(engine, attempt, bound, group, first)
    if number is None:
        return None
    held = HeldSlot(bound, number, group)
    attempt.slots = [] if attempt.slots is None else attempt.slots
    attempt.slots.append(held)  # at once, in whichever thread
    return (held,)


def _has_to_wait(engine: Engine, run: Manifest, bound: Bound) -> bool:
    head = _first_of(engine, bound.name, fields=("line",))
    return head is not None and is_ahead(head.document["line"], run.priority)


def take_slot(
    engine: Engine, attempt: Attempt, bound: Bound, group: str, first: int | None
) -> int | None:
    """Take a slot of those that are free; one is tried before all are read.

    Of a limit that is lowered all are read at once: those at work in other slots count as well.
    """
    bound = in_force(engine, bound)
    start = zlib.crc32(attempt.name.run_id.encode()) % bound.most
    if first is not None and first < bound.most:
        start = first
    slot, tried = _slot_of(attempt, bound.key, group), None
    if bound.lowered_to is None:
        tried, found = start, engine.documents.get(slot_ref(bound.key, start))
        if _is_free(engine, found) and _put(engine, bound, start, found, slot):
            return start
    for number, found in _free_slots(engine, bound):
        if number != tried and _put(engine, bound, number, found, slot):
            return number
    return None


def _slot_of(attempt: Attempt, key: str, group: str) -> Slot:
    return make(
        Slot,
        key=key,
        run_id=attempt.name.run_id,
        lease_id=attempt.fence.lease_id,
        fencing_token=attempt.fence.fencing_token,
        step=attempt.manifest.step_type,
        group=group,
    )


def slots_in(engine: Engine, bound: Bound) -> Iterator[tuple[int, Snapshot | None]]:
    """Yield each slot of a key by its number, as it is stored; None: it was never taken."""
    query = Query("slots", id_prefix=slots_of(bound.key), limit=MAX_ATTEMPTS_AT_ONCE)
    found = {snapshot.ref.id: snapshot for snapshot in engine.documents.query(query)}
    for number in range(bound.most):
        yield number, found.get(slot_ref(bound.key, number).id)


def _free_slots(engine: Engine, bound: Bound) -> Iterator[tuple[int, Snapshot | None]]:
    """Yield the slots of a key that may be taken."""
    free = (one for one in slots_in(engine, bound) if _is_free(engine, one[1]))
    if bound.lowered_to is None:
        yield from free
        return
    known = dict(free)
    for number in takeable([*known], bound.most, bound.lowered_to):
        yield number, known[number]


def _is_free(engine: Engine, found: Snapshot | None) -> bool:
    return found is None or holder_of(engine, found) is None


def _put(engine: Engine, bound: Bound, number: int, found: Snapshot | None, slot: Slot) -> bool:
    """Write a slot in place of one that is free; False: another was faster."""

    def taken(stored: Document | None, now: datetime) -> Write[bool]:
        if found is None and stored is not None:
            return Write(False)
        return Write(True, to_document(replace(slot, taken_at=now)))

    ref = slot_ref(bound.key, number)
    try:
        return engine.documents.transact(ref, taken, if_version=found).answer
    except VersionConflictError:
        return False


def holder_of(engine: Engine, found: Snapshot) -> Manifest | None:
    """Return the run that holds a slot; None: it is free, as that lease is over."""
    slot = read_as(Slot, found.ref.id, found.document)
    if not slot.run_id:
        return None
    try:
        known = find_run(engine, slot.run_id)
    except (UnknownRunError, UnreadableRunError):
        return None
    lease = known.manifest.position.lease
    if lease is None or lease.lease_id != slot.lease_id:
        return None
    return known.manifest if known.snapshot.read_at < lease.expires_at else None


def give_back(engine: Engine, attempt: Attempt, held: HeldSlot) -> None:
    """Give a slot back before the end of the attempt; one that another has is not touched."""
    mine = _slot_of(attempt, held.bound.key, held.group)

    def freed(stored: Document | None, _: datetime) -> Write[bool]:
        if stored is None:
            return Write(False)
        slot = Slot.model_validate(stored)
        if (slot.lease_id, slot.fencing_token) != (mine.lease_id, mine.fencing_token):
            return Write(False)
        free = make(Slot, key=slot.key, group=slot.group, taken_at=slot.taken_at)
        return Write(True, to_document(free))

    ref = slot_ref(held.bound.key, held.number)
    is_freed = engine.documents.transact(ref, freed).answer
    with contextlib.suppress(ValueError):  # until then the end of the attempt calls who is next
        (attempt.slots or []).remove(held)
    if is_freed:
        _call_for(engine, held.bound, held.number, held.group)


# After an attempt: who is next is called.


def call_ahead(engine: Engine, attempt: Attempt) -> None:
    """Call who is next before the attempt is settled; its task is created once the slot is free.

    A worker that is killed between the two leaves a run that is dispatched, which has its alarm, in
    place of a slot that no run knows to be free. An attempt that ends quickly, and came to no
    line, looks for none before its end; nor does one that is to stop soon.
    """
    run = attempt.manifest
    lease = run.position.lease
    is_quick = lease is None or attempt.store_time() - lease.acquired_at < _LONG
    if attempt.told_at is not None or (run.position.slot_wait is None and is_quick):
        return
    for place, held in enumerate(attempt.slots or ()):
        if held.bound.limit.adaptive:  # what is free, its end says
            continue
        with contextlib.suppress(LeaseholdError):  # it is called at the end
            change = _called_next(engine, held.bound, after=held.group, slot=held.number)
            if change is not None and attempt.slots is not None:
                attempt.slots[place] = held._replace(called=change)


def pass_on(engine: Engine, attempt: Attempt) -> None:
    """Call who is next for each slot of an attempt that is over.

    And where the run itself waits by now, look whether a slot came free before it stood in line:
    the worker that freed it saw no run there.

    What fails is left to the sweep: the attempt is settled, and its worker may have the next lease.
    """
    try:
        _pass_on(engine, attempt)
    except LeaseholdError as error:
        engine.listeners.log(f"those that wait for a limit are called later: {error}")


def _pass_on(engine: Engine, attempt: Attempt) -> None:
    for held in attempt.slots or ():
        if held.called is None:
            _call_for(engine, held.bound, held.number, held.group)
        else:
            engine.publish_or_leave(held.called)
    run = attempt.manifest
    wait = run.position.slot_wait
    if wait is None or not run.awaits_slot:
        return
    head = _first_of(engine, wait.name, fields=("line",))
    mine = line_of(run.priority, wait.group, wait.since)
    if head is not None and head.document["line"] >= mine:
        fill(engine, wait)


def pass_on_of(engine: Engine, run: Manifest) -> None:
    """Call who is next for each slot of a run whose worker is gone; its step has limits."""
    query = Query("slots", equal={"runId": run.run_id})
    for found in engine.documents.query(query):
        slot = read_as(Slot, found.ref.id, found.document)
        number = int(found.ref.id.rpartition("-")[2])
        entry = engine.catalog.steps.get(slot.step)
        for limit in () if entry is None else entry.limits:
            if limit.at_once is None or holder_of(engine, found) is not None:
                continue
            bound = Bound(limit, slot.key, is_rate=False, most=limit.at_once)
            _call_for(engine, bound, number, slot.group)


def _call_for(engine: Engine, bound: Bound, number: int, group: str) -> None:
    """Call who is next for a slot that came free.

    A limit that is lowered, or was lately, grows without a word: where it has room two are called.
    """
    bound = in_force(engine, bound)
    if bound.lowered_to is None:
        call_next(engine, bound, after=group, slot=number)
        return
    for free, _ in itertools.islice(_free_slots(engine, bound), 2):
        call_next(engine, bound, after=group, slot=free)


def fill(engine: Engine, wait: SlotWait) -> None:
    """Call as many as their limit has room for, of the runs that wait as this one does."""
    bound = bound_of(engine, wait)
    if bound.is_rate:
        _call_in_turn(engine, bound)
        return
    for number, _ in _free_slots(engine, in_force(engine, bound)):
        if not call_next(engine, bound, slot=number):
            return


class _Waits(Stored):
    slot_wait: SlotWait


class _InLine(Stored):
    """The fields that are read of a run to know its line."""

    position: _Waits


def lines(engine: Engine, is_over: Callable[[], bool]) -> Iterator[SlotWait]:
    """Yield each line in which runs wait, as one of them does; a process looks once a sweep.

    A worker that is killed between the end of an attempt and its call, a store that is away then, a
    person who pauses a run that was called: each leaves a slot that no run knows to be free. Runs
    that wait are looked at ever more seldom; a line costs a read, however many wait in it.

    Args:
        engine: the parts.
        is_over: whether nothing more is to be begun; the next look goes on there.
    """
    clock, now = engine.lines, engine.clock.monotonic()
    if now < clock.look_at or not any(entry.limits for entry in engine.catalog.steps):
        return
    while not is_over():
        name = Range("waitsIn", at_least=clock.behind)
        query = Query(
            "runs",
            order_by="waitsIn",
            then_by="line",
            range=name,
            limit=1,
            fields=("position.slotWait",),
        )
        found = next(iter(engine.documents.query(query)), None)
        if found is None:
            clock.behind = ""
            clock.look_at = now + (engine.rules.grace / 2).total_seconds()  # no sweep is on the dot
            return
        clock.behind = just_behind(found.document["waitsIn"])
        try:
            yield read_as(_InLine, found.ref.id, found.document).position.slot_wait
        except UnreadableRunError as error:
            engine.listeners.log(
                f"the line {found.document['waitsIn']!r} is not looked at: {error}"
            )


def bound_of(engine: Engine, wait: SlotWait) -> Bound:
    """Return the limit that a run waits for as the catalog has it now, or as it was."""
    for entry in engine.catalog.steps:
        for limit in entry.limits:
            most = limit.per_minute if wait.rate else limit.at_once
            if limit.key == wait.limit and most is not None:
                return Bound(limit, wait.key, wait.rate, most)
    return Bound(Limit(wait.limit), wait.key, wait.rate, wait.most)


def words_of_line(engine: Engine, run: Manifest) -> str:
    """Return the place of a run in its line, and who holds the slots, as sentences."""
    wait, place = run.position.slot_wait, run.place_in_line
    assert wait is not None and place is not None  # noqa: S101, PT018 - who asks has seen it
    name, line = place
    ahead = Query("runs", order_by="line", equal={"waitsIn": name}, range=Range("line", below=line))
    count = engine.documents.count(ahead, _MAX_AHEAD_COUNTED)
    more = "or more " if count == _MAX_AHEAD_COUNTED else ""
    words = f"{count} {more}{'run is' if count == 1 else 'runs are'} ahead of it in the line."
    bound = bound_of(engine, wait)
    words = " ".join([words, *words_of_lowered(engine, bound)])
    if wait.rate:
        return words
    found = [one for _, one in slots_in(engine, bound) if one is not None]
    runs = [holder_of(engine, one) for one in found]
    holders = [f"run {one.run_id} (step {one.position.step})" for one in runs if one is not None]
    shown = ", ".join(holders[:_MAX_HOLDERS_SHOWN]) or "no run"
    others = len(holders) - _MAX_HOLDERS_SHOWN
    return f"{words} The slots are held by {shown}{f' and {others} more' if others > 0 else ''}."


def call_next(
    engine: Engine,
    bound: Bound,
    *,
    after: str = "",
    slot: int | None = None,
    wait: timedelta = timedelta(),
    leads: bool = False,
) -> bool:
    """Call the run that is next in the line, and publish that; False: no run waits.

    Args:
        engine: the parts.
        bound: the limit.
        after: the group of the run before it: the next group has its turn.
        slot: the slot that is free.
        wait: until its turn.
        leads: whether it then calls others.
    """
    change = _called_next(engine, bound, after=after, slot=slot, wait=wait, leads=leads)
    if change is not None:
        engine.publish_or_leave(change)
    return change is not None


def _called_next(
    engine: Engine,
    bound: Bound,
    *,
    after: str,
    slot: int | None,
    wait: timedelta = timedelta(),
    leads: bool = False,
) -> Change | None:
    """Call the run that is next, and return what that owes; None: no run waits."""
    if slot is not None and slot >= bound.most:
        return None
    call = partial(
        lifecycle.call_run,
        rules=engine.dispatch_rules(),
        name=bound.name,
        slot=slot,
        wait=wait,
        leads=leads,
    )
    behind = ""
    for _ in range(_MAX_CALL_TRIES):
        found = _next_of(engine, bound.name, after, behind)
        if found is None:
            return None
        try:
            known = KnownRun(manifest_of(found.ref.id, found.document), found)
            change = engine.commit(found.ref.id, call, known=known).answer
        except VersionConflictError:  # another call was faster, or a person: the next one is asked
            continue
        except (UnknownRunError, UnreadableRunError):
            change = None
        if change is not None and change.outcome is Outcome.CALLED:
            return change
        if change is not None and change.changed:  # it had used up its budget
            engine.publish_or_leave(change)
        behind = just_behind(found.document["line"])  # who cannot be called keeps no other from it
    return None


def _next_of(engine: Engine, name: str, after: str, behind: str) -> Snapshot | None:
    """Return the run that is next: of the first class, the oldest of the group behind `after`."""
    head = _first_of(engine, name, at_least=behind)
    if head is None or not after:
        return head
    at_least, below = behind_group(head.document["line"], after)
    return _first_of(engine, name, at_least=max(at_least, behind), below=below) or head


def _first_of(
    engine: Engine,
    name: str,
    *,
    at_least: str = "",
    below: str | None = None,
    fields: tuple[str, ...] = (),
) -> Snapshot | None:
    query = Query(
        "runs",
        order_by="line",
        equal={"waitsIn": name},
        range=Range("line", at_least, below) if at_least else None,
        limit=1,
        fields=fields,
    )
    return next(iter(engine.documents.query(query)), None)


# Turns of a rate.


def _take_turn(engine: Engine, attempt: Attempt, bound: Bound, called: SlotWait | None) -> bool:
    """Take a turn: of those that this process has, or of a further share."""
    now, share = engine.clock.monotonic(), engine.shares.get(bound.name)
    may_spend = share is not None and (called is not None or not share.has_line)
    if share is not None and may_spend and share.count and now < share.until:
        share.count, share.used = share.count - 1, share.used + 1
        return True
    has_line = called is None and _has_to_wait(engine, attempt.manifest, bound)
    if has_line:
        return False
    wanted = 1 if share is None else max(1, share.used)
    granted = _granted(engine, bound, wanted)
    if not granted.turns:
        return False
    if called is not None and called.leads:
        _call_in_turn(engine, bound, is_lead=True)
    if len(engine.shares) >= _MAX_SHARES:
        for name in [name for name, one in [*engine.shares.items()] if one.until <= now]:
            engine.shares.pop(name, None)
    left = (granted.until - granted.next_at).total_seconds()
    engine.shares[bound.name] = Share(granted.turns - 1, now + left, 1, called is not None)
    return True


def _granted(engine: Engine, bound: Bound, wanted: int) -> Grant:
    """Return the turns that a part of the rate has, this process's own part first."""
    parts = parts_of(bound.most, in_force(engine, bound).lowered_to)
    first = zlib.crc32(engine.process.holder.encode()) % len(parts)
    next_at: Grant | None = None
    for place in range(len(parts)):
        part = (first + place) % len(parts)
        most = parts[part]

        def taken(stored: Document | None, now: datetime, most: int = most) -> Write[Grant]:
            rate = make(Rate, key=bound.key) if stored is None else read_as(Rate, bound.key, stored)
            found = grant(rate, now, most, min(wanted, max(1, most // 12)))
            return Write(found, to_document(found.rate) if found.is_changed else None)

        found = engine.documents.transact(rate_ref(bound.key, part), taken).answer
        if found.turns:
            return found
        if next_at is None or found.next_at < next_at.next_at:
            next_at = found
    assert next_at is not None  # noqa: S101 - a rate has a part
    return next_at


def _call_in_turn(engine: Engine, bound: Bound, *, is_lead: bool = False) -> None:
    """Call those that have their turn now, and the one that leads when there are turns again."""
    now, room, next_at = engine.clock.now(), 0, None
    for part, most in enumerate(parts_of(bound.most, in_force(engine, bound).lowered_to)):
        found = engine.documents.get(rate_ref(bound.key, part))
        rate = make(Rate, key=bound.key)
        if found is not None:
            now, rate = found.read_at, read_as(Rate, bound.key, found.document)
        granted = grant(rate, now, most, most)
        room += granted.turns
        if not granted.turns and (next_at is None or granted.next_at < next_at):
            next_at = granted.next_at
    if not _may_lead(engine, bound, next_at or now, is_lead=is_lead):
        return
    for _ in range(min(room, _MAX_RUNS_CALLED)):
        if not call_next(engine, bound):
            return
    wait = max((next_at or now) - now, timedelta(seconds=1))
    call_next(engine, bound, wait=wait, leads=True)


def _may_lead(engine: Engine, bound: Bound, at: datetime, *, is_lead: bool) -> bool:
    """Return whether no other run is about to call those that wait; note that one is now."""

    def noted(stored: Document | None, now: datetime) -> Write[bool]:
        rate = make(Rate, key=bound.key) if stored is None else read_as(Rate, bound.key, stored)
        if not is_lead and is_led(rate, now):
            return Write(False)
        return Write(True, to_document(replace(rate, lead_at=max(at, now))))

    return engine.documents.transact(rate_ref(bound.key, 0), noted).answer
