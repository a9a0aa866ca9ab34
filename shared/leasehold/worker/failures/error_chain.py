"""An error and those it came from: its causes, what was being handled, the members of a group.

Bounded, and read past what the classes of users make of themselves: the fields are those that the
interpreter set, not what a property of the same name says.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final

from leasehold.errors import StoreUnavailableError
from leasehold.frozen import dataclass

#: How many causes of causes, members of a group, and groups within groups are recorded.
MAX_CHAIN_ERRORS: Final = 8
MAX_GROUP_MEMBERS: Final = 10
MAX_GROUP_LEVELS: Final = 4
#: How many members of groups are looked at for what they say of a retry.
_MAX_MEMBERS_SEARCHED: Final = 1000

_CAUSE: Final = "The above exception was the direct cause of the following exception:"
_CONTEXT: Final = "During handling of the above exception, another exception occurred:"

_SHORTAGES: Final = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_NO_THREAD: Final = ("can't start new thread", "unable to start watchdog thread")

_FIELDS: Final = vars(BaseException)
_CLASS: Final = vars(type)


@dataclass(frozen=True, slots=True)
class ChainPart:
    """One of several errors that belong together.

    Args:
        error: the error; None: only words, for what is left out.
        depth: in how many groups it is.
        words: what stands before it: how it belongs to the one before.
        age: 0 for the error itself, more for what came before it or is within it.
    """

    error: BaseException | None
    depth: int = 0
    words: str = ""
    age: int = 0


def parts_of(error: BaseException, most: int) -> list[ChainPart]:
    """Return the error and those it came from, in the order in which Python shows them.

    Args:
        error: the error that was raised.
        most: how many errors at most; the others are counted.
    """
    return _Walk(most).parts_of(error, 0, "")


def leaves_of(error: BaseException) -> Iterator[BaseException]:
    """Yield the error; of a group all errors within it, and not the groups."""
    waiting = [error]
    for _ in range(_MAX_MEMBERS_SEARCHED):
        if not waiting:
            return
        found = waiting.pop()
        if isinstance(found, BaseExceptionGroup):
            waiting += reversed(members_of(found))
        else:
            yield found


def members_of(group: BaseExceptionGroup[Any]) -> tuple[BaseException, ...]:
    """Return the members of a group."""
    members: tuple[BaseException, ...] = vars(BaseExceptionGroup)["exceptions"].__get__(group)
    return members


def traceback_in(error: BaseException) -> TracebackType | None:
    """Return where the error was raised and passed through."""
    found: TracebackType | None = _FIELDS["__traceback__"].__get__(error)
    return found


def came_from(error: BaseException) -> tuple[BaseException | None, str]:
    """Return what the error came from, and how, in Python's own words; None: from nothing."""
    cause = _FIELDS["__cause__"].__get__(error)
    if cause is not None:
        return cause, _CAUSE
    if _FIELDS["__suppress_context__"].__get__(error):
        return None, ""
    return _FIELDS["__context__"].__get__(error), _CONTEXT


def class_name(error: BaseException) -> str:
    """Return the name of the class, whatever that answers itself."""
    return str(_CLASS["__name__"].__get__(type(error)))


def full_class_name(error: BaseException) -> str:
    """Return the name of the class with its module, as Python shows it."""
    name: str = _CLASS["__qualname__"].__get__(type(error))
    module = _CLASS["__module__"].__get__(type(error))
    if not isinstance(module, str) or module in ("builtins", "__main__"):
        return name
    return f"{module}.{name}"


def outage_in(error: BaseException) -> StoreUnavailableError | None:
    """Return the outage that led to an error, or None.

    It may be the error itself, one of a group, or what was being handled when it was raised;
    `raise … from None` says that it has nothing to do with the error that was being handled.
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


class _Walk:
    """Visits each error once: an error may be its own cause, or that of its group."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._seen: set[int] = set()
        self._age = 0

    def parts_of(self, error: BaseException, depth: int, title: str) -> list[ChainPart]:
        newest_first = [[part, *self._members(part, depth)] for part in self._chain(error, depth)]
        parts = [part for block in reversed(newest_first) for part in block]
        if title and parts:
            parts.insert(0, ChainPart(None, depth, title))
        return parts

    def _chain(self, error: BaseException, depth: int) -> list[ChainPart]:
        """Return the error and what it came from, newest first."""
        chain: list[ChainPart] = []
        current: BaseException | None = error
        while current is not None and id(current) not in self._seen and self._left:
            self._seen.add(id(current))
            self._left -= 1
            older, words = came_from(current)
            goes_on = older is not None and id(older) not in self._seen
            if (
                older is not None
                and goes_on
                and (len(chain) + 1 == MAX_CHAIN_ERRORS or not self._left)
            ):
                words, goes_on = f"[{_count(older)} earlier exceptions left out]", False
            elif not goes_on:  # it came from nothing, or from one that is there already
                words = ""
            chain.append(ChainPart(current, depth, words, self._age))
            self._age += 1
            current = older if goes_on else None
        return chain

    def _members(self, part: ChainPart, depth: int) -> list[ChainPart]:
        if not isinstance(part.error, BaseExceptionGroup):
            return []
        members, parts, count = members_of(part.error), [], 0
        for number, member in enumerate(members[:MAX_GROUP_MEMBERS], 1):
            if not self._left or depth + 1 == MAX_GROUP_LEVELS:
                break
            parts += self.parts_of(member, depth + 1, f"{number} of {len(members)}:")
            count = number
        if count < len(members):
            parts.append(ChainPart(None, depth + 1, f"[{len(members) - count} more left out]"))
        return parts


def _count(error: BaseException) -> int:
    """Return how many errors this one came from, itself included."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        found, _ = came_from(found)
    return len(seen)
