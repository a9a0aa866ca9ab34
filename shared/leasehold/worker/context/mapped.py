"""Many recorded calls, some at a time (`StepContext.map` and its kin).

What was begun ends, and is recorded, before anything else is raised: a sibling that is paid for is
never thrown away. One thread, or one task, decides: that of the handler. It begins items, and takes
what became of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sized
from datetime import timedelta
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, NamedTuple, TypedDict, TypeVar

import pydantic_core

from leasehold.attempt.calls import ContextCalls
from leasehold.bounded_calls import KeptThreads
from leasehold.domain.json_text import canonical
from leasehold.domain.retry import Backoff, growing
from leasehold.errors import ContinuedError, InvalidRequestError, LeaseholdError
from leasehold.frozen import dataclass
from leasehold.registry.dispatch import RetryPolicy
from leasehold.worker.context.checkpointed import Pace
from leasehold.worker.context.once import CallsMadeOnce, OnceCall, name_of
from leasehold.worker.failures.retry_hints import is_permanent, retry_after_of

I = TypeVar("I")  # noqa: E741 - an item
R = TypeVar("R")

#: So many calls may be under way at once.
MAX_CALLS_AT_ONCE: Final = 64
MAX_TRIES: Final = 100

_MAX_NAME_CHARS: Final = 80
_MARK: Final = 24
_PROGRESS_EVERY_S: Final = 0.5
#: How often a call that waits for its next try looks whether it is to end.
_STOP_POLL_S: Final = 0.25
#: At a soft limit, so much of the time to clean up is left to the handler.
_RESERVE: Final = 0.25


@dataclass(frozen=True, slots=True)
class CallRetry:
    """How often one call of a map is tried, within its attempt.

    The waits are `first`, `first * factor`, and so on up to `max`. One that an error asks for
    (`Retry-After`) is kept to, where it is longer.

    Args:
        tries: how often in all; 1 to 100.
        first: the wait after the first failure.
        factor: how much longer each wait is than the one before; 1 to 100.
        max: no wait of its own is longer.
        non_retryable: errors that no try repairs, as those of a `RetryPolicy`.
    """

    tries: int = 3
    first: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    max: timedelta = timedelta(minutes=1)
    non_retryable: tuple[type[BaseException] | str, ...] = ()


class MapOptions(TypedDict, Generic[I], total=False):
    """The options of a map.

    Attributes:
        at_once: how many calls may be under way, each in its own thread; 1 to 64. Else 10.
        retry: how often each call is tried within this attempt: a `CallRetry`, or a number of
            tries, with waits of 1 s, 2 s, 4 s and so on; `Retry-After` is kept to. Else once.
        key: names an item, where it says itself what it is. A changed item under the same key is
            paid for again. Without it, the key follows from the item as JSON.
        name: tells this map from another one of the step with the same function.
        keep: as of `once`.
    """

    at_once: int
    retry: CallRetry | int | None
    key: Callable[[I], str] | None
    name: str
    keep: bool


@dataclass(frozen=True, slots=True)
class Mapped(Generic[R]):
    """The result of one item, or its error.

    Args:
        index: the number of the item, from 0.
        item: the item.
        result: of the call; None, if it failed.
        error: of the call; None: it did not fail.
    """

    index: int
    item: Any
    result: R | None = None
    error: Exception | None = None


class _Job(NamedTuple):
    number: int
    item: Any
    asked: OnceCall


class _End(NamedTuple):
    """The end of a job: its result, or what it raised; `is_put_off`: it waits for a later try."""

    job: _Job
    result: Any = None
    error: BaseException | None = None
    is_put_off: bool = False
    took_s: float = 0.0


class MappedCalls(Generic[R]):
    """One map.

    Args:
        call: what is called with each item.
        items: the items; they are taken one by one.
        once: makes the calls.
        pace: knows whether the time of the attempt is short.
        calls: the attempt.
        report: is told the share that is done, and a word on it.
        at_once: how many calls may be under way.
        retry: how often each is tried; a number of tries; None: once.
        key: returns the name of an item, which its result is recorded under; None: it follows from
            the item.
        name: begins the keys, in place of the name of the call.
        keep: whether the results outlast the step.
        tolerant: whether a call may fail without ending the others.

    Raises:
        InvalidRequestError: an argument is not what it may be; nothing was called.
    """

    def __init__(
        self,
        call: Callable[[Any], Any],
        items: Iterable[Any],
        *,
        once: CallsMadeOnce,
        pace: Pace,
        calls: ContextCalls,
        report: Callable[[float, str], object],
        at_once: int = 10,
        retry: CallRetry | int | None = None,
        key: Callable[[Any], str] | None = None,
        name: str = "",
        keep: bool = False,
        tolerant: bool = False,
    ) -> None:
        if not isinstance(items, Iterable):
            _refuse("items", type(items).__name__, "an iterable")
        if type(at_once) is not int or not 1 <= at_once <= MAX_CALLS_AT_ONCE:
            _refuse("at_once", at_once, f"a whole number from 1 to {MAX_CALLS_AT_ONCE}")
        self._retry = _checked_retry(retry)
        self._rule = RetryPolicy(
            self._retry.first, self._retry.factor, self._retry.max, self._retry.non_retryable
        ).in_force(Backoff())
        self._call, self._items, self._at_once = call, iter(items), at_once
        self._total = len(items) if isinstance(items, Sized) else None
        self._once, self._pace, self._calls, self._report = once, pace, calls, report
        self._key, self._keep, self._tolerant = key, keep, tolerant
        self._name = name or _name_of(call)
        self._seen: Counter[str] = Counter()
        self._begun = self._done = self._failed = 0
        self._reported_at = 0.0
        self._error: BaseException | None = None
        self._put_off: BaseException | None = None
        self._is_ending = False
        pace.looks_back = True  # what is recorded takes the place of calls

    # --- in threads ---

    def run(self) -> Iterator[Mapped[R]]:
        """Make the calls, and yield what becomes of each as it comes."""
        threads, ends = KeptThreads("map"), SimpleQueue[_End]()
        under_way = 0
        try:
            while True:
                while under_way < self._at_once and (job := self._next()):
                    work = partial(self._run, job, ends)
                    under_way += 1
                    if threads.start_call(work) is None:
                        work()  # the system has no thread for it
                if not under_way:
                    break
                end = ends.get()
                under_way -= 1
                if (mapped := self._taken(end)) is not None:
                    yield mapped
        finally:
            self._is_ending = True
            while under_way and (left := self._time_for_siblings()) > 0:
                try:
                    self._taken(ends.get(timeout=min(left, _STOP_POLL_S)))
                    under_way -= 1
                except Empty:
                    continue
            threads.close()
        self._conclude()

    def _run(self, job: _Job, ends: SimpleQueue[_End]) -> None:
        begun = self._calls.time_left()
        for tried in range(1, self._retry.tries + 1):
            try:
                result = self._once.make(job.asked)
            except BaseException as error:  # noqa: BLE001 - it is raised in the handler's thread
                wait = self._wait_after(error, tried)
                if wait is None or not self._waited(wait):
                    took_s = begun - self._calls.time_left()
                    ends.put(_End(job, None, error, wait is not None, took_s))
                    return
            else:
                ends.put(_End(job, result, took_s=begun - self._calls.time_left()))
                return

    def _waited(self, seconds: float) -> bool:
        """Wait for the next try; False: there is to be none in this attempt."""
        if not self._has_time_for(seconds):
            return False
        while seconds > 0 and not self._is_ending:
            if self._calls.stop.wait(min(seconds, _STOP_POLL_S)):
                return False
            seconds -= _STOP_POLL_S
            self._tell()
        return not self._is_ending

    # --- in a loop ---

    async def arun(self) -> AsyncGenerator[Mapped[R]]:
        """Do as `run`, in the loop of the handler."""
        tasks: set[asyncio.Task[_End]] = set()
        try:
            while True:
                while len(tasks) < self._at_once and (job := self._next()):
                    tasks.add(asyncio.create_task(self._arun(job)))
                if not tasks:
                    break
                ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                tasks -= ended
                found = [mapped for end in ended if (mapped := self._taken(end.result()))]
                for mapped in sorted(found, key=_index_of):
                    yield mapped
        finally:
            self._is_ending = True
            if tasks:
                await self._await_siblings(tasks)
        self._conclude()

    async def _await_siblings(self, tasks: set[asyncio.Task[_End]]) -> None:
        """Wait for what is under way, which is paid for; who is in more of a hurry asks again."""
        try:
            ended, left = await asyncio.wait(tasks, timeout=max(0.0, self._time_for_siblings()))
            for end in ended:
                self._taken(end.result())
        except BaseException:
            left = tasks
            raise
        finally:
            for task in left:
                task.cancel()

    async def _arun(self, job: _Job) -> _End:
        begun, tried = self._calls.time_left(), 0
        while True:
            tried += 1
            try:
                result = await self._once.amake(job.asked)
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # noqa: BLE001 - it is raised where the map is awaited
                wait = self._wait_after(error, tried)
                if wait is None or not await self._awaited(wait):
                    took_s = begun - self._calls.time_left()
                    return _End(job, None, error, wait is not None, took_s)
            else:
                return _End(job, result, took_s=begun - self._calls.time_left())

    async def _awaited(self, seconds: float) -> bool:
        """Do as `_waited`, without blocking the loop."""
        if not self._has_time_for(seconds):
            return False
        while seconds > 0 and not self._is_ending:
            if await self._calls.stop.wait_async(min(seconds, _STOP_POLL_S)):
                return False
            seconds -= _STOP_POLL_S
            self._tell()
        return not self._is_ending

    # --- what both do ---

    def _next(self) -> _Job | None:
        """Return the next item as a job; None: none is to be begun now, or any more."""
        if self._is_ending:
            return None
        self._pace.beat()
        if self._calls.stop.is_requested or (self._once.made and self._pace.is_short()):
            self._is_ending = True
            return None
        try:
            item = next(self._items)
        except StopIteration:
            self._total = self._begun
            return None
        except BaseException as error:  # noqa: BLE001 - siblings end first
            self._end_by(error)
            return None
        try:
            job = _Job(self._begun, item, self._asked(item))
        except Exception as error:  # noqa: BLE001 - as above
            self._end_by(error)
            return None
        self._begun += 1
        return job

    def _asked(self, item: Any) -> OnceCall:
        key = self._key_of(item)
        request = None if self._key is None else _text_of(item)
        return OnceCall(key, self._call, (item,), request=request, keep=self._keep)

    def _key_of(self, item: Any) -> str:
        """Return the key of an item: it does not depend on the order of the items."""
        if self._key is not None:
            key = self._key(item)
            self._seen[key] += 1
            if self._seen[key] > 1:
                _refuse("key", key, "another key for each item")
            return key
        mark = hashlib.sha256(_text_of(item).encode()).hexdigest()[:_MARK]
        self._seen[mark] += 1
        count = self._seen[mark]
        return f"{self._name}:{mark}" if count == 1 else f"{self._name}:{mark}:{count}"

    def _wait_after(self, error: BaseException, tried: int) -> float | None:
        """Return how long to wait for the next try, in seconds; None: there is none."""
        is_ours = not isinstance(error, Exception) or isinstance(error, LeaseholdError)
        if is_ours or tried >= self._retry.tries or is_permanent(error, self._rule):
            return None
        retry = self._retry
        wait_s = growing(retry.first, retry.factor, retry.max, tried).total_seconds()
        return max(wait_s, retry_after_of(error) or 0.0)

    def _has_time_for(self, seconds: float) -> bool:
        return seconds < self._calls.time_left() - self._calls.facts.cleanup_s

    def _taken(self, end: _End) -> Mapped[R] | None:
        """Take the end of a job; return what became of it, unless that ends the map."""
        self._pace.note_work(end.took_s)
        error = end.error
        if end.is_put_off:
            self._is_ending, self._put_off = True, self._put_off or error
            return None
        if error is not None and not (self._tolerant and _is_of_call(error)):
            self._end_by(error)
            return None
        self._done += 1
        self._failed += error is not None
        self._tell()
        result = None if error is not None else end.result
        failure = error if isinstance(error, Exception) else None
        return Mapped(end.job.number, end.job.item, result, failure)

    def _end_by(self, error: BaseException) -> None:
        """End the map by an error: the first counts."""
        self._error = self._error or error
        self._is_ending = True

    def _tell(self) -> None:
        """Report how far it is, also while calls wait for their next try: they are not silent."""
        now, total = time.monotonic(), self._total
        if self._done != total and now - self._reported_at < _PROGRESS_EVERY_S:
            return
        self._reported_at = now
        failed = f", {self._failed:,} failed" if self._failed else ""
        words = f"{self._done:,} done" if total is None else f"{self._done:,} of {total:,}"
        self._report(self._done / total if total else 0.0, f"{words}{failed}")

    def _time_for_siblings(self) -> float:
        """Return how long those that are under way may be waited for, in seconds."""
        return self._calls.time_left() - _RESERVE * self._calls.facts.cleanup_s

    def _conclude(self) -> None:
        """Raise what ended the map; nothing, if all items are done."""
        if self._error is not None:
            raise self._error
        if not self._is_ending_early:
            return
        if self._put_off is not None and not (self._once.made or self._calls.stop.is_requested):
            raise self._put_off
        raise ContinuedError(at_checkpoint=True)

    @property
    def _is_ending_early(self) -> bool:
        return self._put_off is not None or self._done != self._total


def _index_of(mapped: Mapped[Any]) -> int:
    return mapped.index


def _is_of_call(error: BaseException) -> bool:
    """Return whether the call itself has failed; what the engine says always ends a map."""
    return isinstance(error, Exception) and not isinstance(error, LeaseholdError)


def _text_of(item: Any) -> str:
    """Return an item as JSON text, the same in each attempt."""
    try:
        return canonical(pydantic_core.to_jsonable_python(item))
    except Exception:  # noqa: BLE001 - a serializer of the user's may raise anything
        problem = InvalidRequestError(
            field="items", value=type(item).__name__, allowed="JSON values, or models of them"
        )
        raise problem from None


def _name_of(call: Callable[..., Any]) -> str:
    name = "".join(each for each in name_of(call) if each.isprintable())
    return name[-_MAX_NAME_CHARS:]


def _checked_retry(retry: Any) -> CallRetry:
    if retry is None:
        return CallRetry(tries=1)
    asked = CallRetry(tries=retry) if type(retry) is int else retry
    if not isinstance(asked, CallRetry):
        _refuse("retry", type(retry).__name__, "a CallRetry, or a number of tries")
    if type(asked.tries) is not int or not 1 <= asked.tries <= MAX_TRIES:
        _refuse("retry.tries", asked.tries, f"a whole number from 1 to {MAX_TRIES}")
    policy = RetryPolicy(asked.first, asked.factor, asked.max, asked.non_retryable)
    for usable, field, value, allowed in policy.checks():
        if not usable:
            _refuse(field, value, allowed)
    return asked


def _refuse(field: str, value: object, allowed: str) -> Any:
    raise InvalidRequestError(field=field, value=str(value)[:200], allowed=allowed)
