"""Outages: a store that is away is asked again for a while, and recognised behind other errors."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from leasehold.errors import StoreUnavailableError
from leasehold.worker.error_chain import came_from, members_of

T = TypeVar("T")

_SHORTAGES: Final = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_NO_THREAD: Final = ("can't start new thread", "unable to start watchdog thread")

#: The waits between two tries; they double.
_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 2.0


def outlast(
    call: Callable[[], T],
    *,
    now: Callable[[], float],
    until: Callable[[], float],
    wait: Callable[[float], bool],
    report: Callable[[StoreUnavailableError | None], object] = lambda _: None,
) -> T:
    """Return what `call` returns; a store that is away is asked again, with growing waits.

    Args:
        call: may be made any number of times.
        now: monotonic seconds.
        until: when to give up, likewise; asked before each wait, as it may move. No try is begun
            that would end later, if it took as long as the one before.
        wait: waits so many seconds; True: give up now.
        report: given each outage that is met, and None once it is over or nobody asks any more.

    Raises:
        StoreUnavailableError: the store was away for all that time.
    """
    begun = tried_at = now()
    waited, pause = 0.0, _FIRST_WAIT_S
    try:
        while True:
            try:
                return call()
            except StoreUnavailableError as outage:
                report(outage)
                passed = max(waited, now() - begun)  # a clock may stand still
                took = now() - tried_at  # the next try may take as long
                left = until() - begun - passed - took
                pause = min(pause, left / 2)  # a short lease is renewed often, or over soon
                if left < _FIRST_WAIT_S or wait(pause):
                    raise
            waited += pause
            pause = min(2 * max(pause, _FIRST_WAIT_S), _LONGEST_WAIT_S)
            tried_at = now()
    finally:
        report(None)


def outage_in(error: BaseException) -> StoreUnavailableError | None:
    """Return the outage that led to an error, or None.

    It may be the error itself, one of a group, or what was being handled when it was raised;
    `raise … from None` says that it has nothing to do with what was being handled.
    """
    found = (one for one in _all_behind(error) if isinstance(one, StoreUnavailableError))
    try:
        return next(found, None)
    except Exception:  # noqa: BLE001 - a class of the user's may do anything when it is looked at
        return None


def lacked_memory(error: BaseException | None) -> bool:
    """Return whether it is, or came from, a MemoryError."""
    return error is not None and any(isinstance(one, MemoryError) for one in _all_behind(error))


def shortage_in(error: BaseException) -> BaseException | None:
    """Return what says, of all that led to an error, that the machine has run short; or None.

    It has no memory, no process, no thread, or no descriptor to give.
    """
    return next((one for one in _all_behind(error) if _is_shortage(one)), None)


def _is_shortage(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in _SHORTAGES
    return isinstance(error, MemoryError) or (
        type(error) is RuntimeError and str(error) in _NO_THREAD
    )


def _all_behind(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, what it came from, and the members of groups; each of them once."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        found = waiting.pop()
        if id(found) not in seen:
            yield found
            seen.add(id(found))
            waiting += _behind(found)


def _behind(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        yield from members_of(error)
    older, _ = came_from(error)
    if older is not None:
        yield older
