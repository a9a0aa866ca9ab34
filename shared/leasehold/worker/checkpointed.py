"""Loops that keep what they have done: `ctx.checkpointed`, and `ctx.acheckpointed` of coroutines.

An attempt that comes later is given the items that are left, and the results of the others.
"""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any, Final, Generic, TypeVar, cast

from leasehold.attempt.stop import StopSignal
from leasehold.bounded_calls import in_thread
from leasehold.domain.printable import counted
from leasehold.errors import CheckpointMisusedError, ContinuedError, InvalidRequestError
from leasehold.worker.pace import Pace
from leasehold.worker.phases import Phase, Phases

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
                remedy="Give each loop a phase of its own: ctx.checkpointed(items, phase='…')",
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
        """End the attempt, now that all is kept; not for want of time before there is progress."""
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
