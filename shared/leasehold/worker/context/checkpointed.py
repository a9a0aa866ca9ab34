"""Loops that keep what they have done: `ctx.checkpointed`, and `ctx.acheckpointed` of coroutines.

An attempt that comes later is given the items that are left, and the results of the others.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, Final, Generic, TypeVar, cast

from leasehold.attempt.calls import AttemptFacts
from leasehold.attempt.stop import StopSignal
from leasehold.bounded_calls import in_thread
from leasehold.domain.kept_checkpoint import is_further
from leasehold.domain.printable import counted
from leasehold.errors import CheckpointMisusedError, ContinuedError, InvalidRequestError

T = TypeVar("T")

_NO_MORE: Final = object()
_OTHER: Final = "It is none of ctx.checkpointed: an earlier version of the handler kept it."


class Loops:
    """The loops of one attempt.

    Args:
        keep: keeps a checkpoint: the count of iterations, partial results, and the phase.
        reject: says why the checkpoint of an earlier attempt cannot be used.
        pace: of the attempt.
        stop: given when the attempt should end.
    """

    def __init__(
        self,
        *,
        keep: Callable[[int, Any, str], object],
        reject: Callable[[str], object],
        pace: Pace,
        stop: StopSignal,
    ) -> None:
        self.pace = pace
        self.stop = stop
        self.reject = reject
        self._keep = keep
        self._phases = Phases()
        self._begun: list[Phase] = []
        self._iterator: weakref.ref[Any] | None = None

    def restore(self, kept: Any) -> None:
        """Go on from what an earlier attempt kept; from nothing, where that is of other loops."""
        phases = Phases.restored(kept)
        if phases is None:
            self.reject(_OTHER)
        else:
            self._phases = phases

    def loop(self, every: int, phase: str) -> Loop:
        """Return a loop that keeps a checkpoint after so many items."""
        return Loop(self, self._phases[phase], every)

    def begin(self, phase: Phase, iterator: Any) -> None:
        """Begin a loop; the one before it is over, also if it was left by a `break`.

        Raises:
            CheckpointMisusedError: that one runs still, or this one was begun before.
        """
        last = self._begun[-1] if self._begun else None
        if last is not None and not last.is_over and self._iterator and self._iterator():
            raise CheckpointMisusedError(
                problem=f"ctx.checkpointed of phase {phase.name!r} begins within the loop of phase "
                f"{last.name!r}, and only one loop at a time is kept",
                remedy="Make one list of items of the two",
            )
        if any(phase is one for one in self._begun):
            raise CheckpointMisusedError(
                problem=f"ctx.checkpointed of phase {phase.name!r} begins twice in one attempt",
                remedy="Give each loop its own phase: ctx.checkpointed(items, phase='…')",
            )
        if last is not None:
            last.is_over = True
        self._begun.append(phase)
        self._iterator = weakref.ref(iterator)

    def keep(self, phase: Phase) -> None:
        """Keep what all phases have done, as a checkpoint of this one."""
        done = phase.done
        self._keep(done, self._phases.to_json(), phase.name)
        phase.kept = done

    def keep_rest(self) -> None:
        """Keep what is done and not kept yet: an item, or what came after, has raised."""
        for phase in self._begun:
            if phase.has_new:
                self.keep(phase)


class Loop:
    """One loop, whether a `for` or an `async for`."""

    def __init__(self, loops: Loops, phase: Phase, every: int) -> None:
        self.phase = phase
        self._loops = loops
        self._every = every

    def begin(self, iterator: Any) -> None:
        """Begin it; raises as `Loops.begin`."""
        self._loops.begin(self.phase, iterator)

    def is_as_kept(self, count: int) -> bool:
        """Return whether there are as many items as are done; else they are all to be done.

        Args:
            count: how many of those that are done there are.
        """
        phase = self.phase
        if count == phase.done:
            return True
        done = counted(phase.done, "item")
        self._loops.reject(f"Phase {phase.name!r} has done {done}, and now has {count}.")
        phase.begin_anew()
        return False

    def is_due(self) -> bool:
        """Note that an item is done; return whether to keep what is new now."""
        self.phase.finish_item()
        is_enough = self.phase.done - self.phase.kept >= self._every
        return is_enough or self._loops.stop.is_requested

    def may_end(self) -> bool:
        """Return whether the attempt should end before the next item."""
        self._loops.pace.beat()
        return self._loops.stop.is_requested or self._loops.pace.is_short()

    def keep(self) -> None:
        """Keep what is done."""
        self._loops.keep(self.phase)

    def end(self) -> None:
        """End the attempt, now that all is kept; not without progress, even if time is short."""
        if self._loops.stop.is_requested or self._loops.pace.came_further:
            raise ContinuedError(at_checkpoint=True)


class Checkpointed(Generic[T]):
    """The items of a loop, of which those that are done are left out.

    Attributes:
        results: what the handler has made of the items so far. It appends to it; what is in it is
            kept with each checkpoint, as JSON values.
    """

    def __init__(self, items: Iterable[T], loop: Loop) -> None:
        if not isinstance(items, Iterable):
            raise InvalidRequestError(
                field="items",
                value=type(items).__name__,
                allowed="an iterable; of an async one: async for … in ctx.acheckpointed(items)",
            )
        self.results = loop.phase.results
        self._items = items
        self._loop = loop

    def __iter__(self) -> Iterator[T]:
        """Begin the loop."""
        turns = self._turns()
        self._loop.begin(turns)
        return turns

    def _turns(self) -> Iterator[T]:
        loop = self._loop
        if loop.phase.is_over:
            return
        for item in self._left():
            if loop.may_end():
                if loop.phase.has_new:
                    loop.keep()
                loop.end()
            yield item
            if loop.is_due():
                loop.keep()
        loop.phase.is_over = True
        if loop.phase.has_new:
            loop.keep()

    def _left(self) -> Iterator[T]:
        items = iter(self._items)
        done = list(islice(items, self._loop.phase.done))
        return items if self._loop.is_as_kept(len(done)) else chain(done, items)


class AsyncCheckpointed(Generic[T]):
    """The same for `async for`; its items may be an iterable or an async one."""

    def __init__(self, items: Iterable[T] | AsyncIterable[T], loop: Loop) -> None:
        if not isinstance(items, Iterable | AsyncIterable):
            raise InvalidRequestError(
                field="items", value=type(items).__name__, allowed="an iterable, or an async one"
            )
        self.results = loop.phase.results
        self._items = items
        self._loop = loop

    def __aiter__(self) -> AsyncIterator[T]:
        """Begin the loop."""
        turns = self._turns()
        self._loop.begin(turns)
        return turns

    async def _turns(self) -> AsyncIterator[T]:
        loop = self._loop
        if loop.phase.is_over:
            return
        async for item in self._left():
            if loop.may_end():
                if loop.phase.has_new:
                    await in_thread(loop.keep)
                loop.end()
            yield item
            if loop.is_due():
                await in_thread(loop.keep)
        loop.phase.is_over = True
        if loop.phase.has_new:
            await in_thread(loop.keep)

    async def _left(self) -> AsyncIterator[T]:
        items, count = _async(self._items), self._loop.phase.done
        done: list[T] = []
        while len(done) < count and (item := await anext(items, _NO_MORE)) is not _NO_MORE:
            done.append(cast(T, item))
        if not self._loop.is_as_kept(len(done)):
            for one in done:
                yield one
        async for one in items:
            yield one


async def _async(items: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
        return
    for item in items:
        yield item


# The pace of an attempt: how long it is from checkpoint to checkpoint, and so when to end at one.
#
# An attempt that goes on until its limit fails there, and does again what it did since its last
# checkpoint. One that ends at a checkpoint, just before, loses nothing: the next one goes on.


#: Time is short where less is left to the soft limit than this share of the hard one,
_MIN_MARGIN_SHARE: Final = 0.05
#: or than this much of the longest time between two checkpoints,
_NEXT_ONE: Final = 1.2
#: and never where more is left than this share: the first checkpoint may have been a late one.
_MAX_MARGIN_SHARE: Final = 0.5


class Pace:
    """Measures an attempt.

    Args:
        attempt: its limits, and how far the step ever was.
        time_left: returns the seconds until the hard limit.
        thread: the handler's own.
        beat: what was left when the handler began.

    Attributes:
        looks_back: whether the handler has asked for what an earlier attempt kept; one that never
            does begins at the beginning each time, and nothing is won by ending it.
        came_further: whether this attempt brought the step further than it ever was.
    """

    def __init__(
        self, attempt: AttemptFacts, time_left: Callable[[], float], thread: int, beat: float
    ) -> None:
        self.looks_back = False
        self.came_further = False
        self._attempt = attempt
        self._time_left = time_left
        self._furthest = dict(attempt.furthest)
        self._thread = thread
        self._longest = 0.0
        self._beat = beat

    def note(self, iteration_count: int, phase: str) -> bool:
        """Note a checkpoint that is kept; return whether the step was never as far."""
        further = is_further(self._furthest, phase, iteration_count)
        if further:
            self._furthest[phase] = iteration_count
            self.came_further = True
        return further

    def beat(self) -> None:
        """Measure the time since the last beat: from one place where it may end to the next."""
        left = self._time_left()
        self._longest = max(self._longest, self._beat - left)
        self._beat = left

    def note_work(self, seconds: float) -> None:
        """Note how long one piece of work took that was done beside others."""
        self._longest = max(self._longest, seconds)

    def is_short(self) -> bool:
        """Return whether the time to the soft limit may not be enough until the next beat.

        Only in the handler's own thread: an error in another one may be lost.
        """
        if threading.get_ident() != self._thread or not self.looks_back:
            return False
        hard = self._attempt.hard_s
        margin = min(
            max(_MIN_MARGIN_SHARE * hard, _NEXT_ONE * self._longest), _MAX_MARGIN_SHARE * hard
        )
        return self._time_left() - self._attempt.cleanup_s < margin


# What the loops of a handler have done, phase by phase, as their checkpoints keep it.


#: The one field of what they keep: it tells their checkpoints from any other.
_FIELD: Final = "checkpointed"


class Phase:
    """The progress of one loop.

    Args:
        name: which loop it is.
        done: how many items an earlier attempt has done.
        results: what that made of them.

    Attributes:
        results: what was made of the items, also of one that is not done yet.
        is_over: whether there is nothing left to do, however many items there are.
        kept: how many items are done of those that are kept.
    """

    def __init__(
        self, name: str, done: int = 0, results: list[Any] | None = None, *, is_over: bool = False
    ) -> None:
        self.name = name
        self.results = [] if results is None else results
        self.is_over = is_over
        self.kept = done
        self._finished = done, len(self.results)

    @property
    def done(self) -> int:
        """How many items are done."""
        return self._finished[0]

    @property
    def has_new(self) -> bool:
        """Whether there is finished work without a checkpoint."""
        return self.done > self.kept

    def finish_item(self) -> None:
        """Note that one more item is done, and what is in the results by now is made of them."""
        self._finished = self.done + 1, len(self.results)  # at once: a limit may be given anywhere

    def begin_anew(self) -> None:
        """Forget all that was done."""
        self.results.clear()
        self._finished, self.kept = (0, 0), 0

    def to_json(self) -> Mapping[str, Any]:
        """Return it as it is kept: without what was made of an item that is not done."""
        done, made = self._finished
        results = self.results if self.is_over else self.results[:made]
        return {"phase": self.name, "done": done, "isOver": self.is_over, "results": results}


class Phases:
    """All phases of a handler that have begun, in any attempt of its step."""

    def __init__(self) -> None:
        self._by_name: dict[str, Phase] = {}

    def __getitem__(self, name: str) -> Phase:
        """Return a phase; a new one, unless an earlier attempt has begun it."""
        return self._by_name.setdefault(name, Phase(name))

    def to_json(self) -> Any:
        """Return them as they are kept; a phase that has done nothing is not."""
        begun = [one for one in self._by_name.values() if one.done or one.results or one.is_over]
        return {_FIELD: [phase.to_json() for phase in begun]}

    @classmethod
    def restored(cls, kept: Any) -> Phases | None:
        """Return the phases that are kept; None: it is not what `to_json` returns."""
        phases = cls()
        found = kept.get(_FIELD) if isinstance(kept, dict) and len(kept) == 1 else None
        if not isinstance(found, list):
            return None
        for one in found:
            phase = _restored(one)
            if phase is None:
                return None
            phases._by_name[phase.name] = phase
        return phases


def _restored(kept: Any) -> Phase | None:
    if not isinstance(kept, dict) or kept.keys() != {"phase", "done", "isOver", "results"}:
        return None
    name, done, results, is_over = (kept[key] for key in ("phase", "done", "results", "isOver"))
    fits = isinstance(name, str) and isinstance(results, list) and isinstance(is_over, bool)
    is_count = type(done) is int and done >= 0
    return Phase(name, done, results, is_over=is_over) if fits and is_count else None
