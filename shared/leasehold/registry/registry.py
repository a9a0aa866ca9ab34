"""The registry mechanism: built whole, never changed, refuses a key twice."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FunctionType, MappingProxyType
from typing import Any, Final, Generic, Protocol, TypeVar

from leasehold.errors import DuplicateKeyError, InvalidEntryError, UnknownKeyError


class Entry(Protocol):
    """A row of a registry."""

    @property
    def key(self) -> str:
        """The name the row is found by."""
        ...


#: A registry never changes, so one of Slack channels is one of channels.
E_co = TypeVar("E_co", bound=Entry, covariant=True)


class Registry(Generic[E_co]):
    """A named table of entries, in the order they were given; `get(key)` may answer None.

    Args:
        name: how messages name the registry.
        entries: the rows.

    Raises:
        DuplicateKeyError: two rows have the same key.
        InvalidEntryError: a row is not an entry.
    """

    def __init__(self, name: str, entries: Iterable[E_co]) -> None:
        self.name = name
        index: dict[str, E_co] = {}
        for number, entry in enumerate(entries, start=1):
            if not hasattr(entry, "key"):
                raise InvalidEntryError(
                    registry=name,
                    key=f"row {number}",
                    field="class",
                    value=type(entry).__name__,
                    allowed="a class of entries, which have a key",
                )
            if entry.key in index:
                raise DuplicateKeyError(registry=name, key=entry.key)
            index[entry.key] = entry
        self._index: Mapping[str, E_co] = MappingProxyType(index)
        # a method of ours would be one more call for each look-up on the way of a hint
        self.get = self._index.get

    def __getitem__(self, key: str) -> E_co:
        """Return the row, or raise UnknownKeyError that names the known keys."""
        try:
            return self._index[key]
        except KeyError:
            known = ", ".join(self._index) or "none"
            raise UnknownKeyError(registry=self.name, key=key, known=known) from None

    def keys(self) -> tuple[str, ...]:
        """Return all keys, in order."""
        return tuple(self._index)

    def __iter__(self) -> Iterator[E_co]:
        return iter(self._index.values())

    def __contains__(self, key: object) -> bool:
        return key in self._index

    def __len__(self) -> int:
        return len(self._index)

    def __repr__(self) -> str:
        return f"Registry({self.name!r}, {list(self._index)})"


# A function that an entry is given in place of its path: `handler=ask` for `"shop.steps:ask"`.
#
# An entry keeps the path, which its own process can import; the function is for editors and type
# checkers, which follow it.


#: A handler `(ctx, given)`, or a gate `(ctx, output)`, sync or async.
UserFunction = Callable[[Any, Any], object]

FUNCTION_WORDS: Final = (
    "a function that stands in a module under its own name (no lambda, partial, method or function "
    "within another)"
)


def path_of(given: object) -> object:
    """Return the path `module:function` of a function; any other value stays as it is.

    Raises:
        ValueError: the function cannot be found by a path; its words name it.
    """
    if not isinstance(given, FunctionType):
        return given
    module, name = given.__module__, given.__qualname__
    path = f"{module}:{name}"
    if not name.isidentifier() or getattr(sys.modules.get(module), name, None) is not given:
        raise ValueError(path)
    return path
