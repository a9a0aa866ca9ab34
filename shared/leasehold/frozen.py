"""Frozen dataclasses that are quick to define, for short cold starts.

The decorator of the standard library compiles six methods for each class, which was a quarter of
what the import of a function took. Here it compiles three; those that show, compare and hash are
closures over the names of the fields, with the same answers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, TypeVar

_Class = TypeVar("_Class", bound=type)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - an export
else:

    def dataclass(
        cls: _Class | None = None,
        /,
        *,
        frozen: bool = False,
        slots: bool = False,
        eq: bool = True,
        **options: bool,
    ) -> Any:
        """Return a dataclass as the standard library has it.

        Args:
            cls: The class, where the decorator is written without parentheses.
            frozen: No field of an instance can be assigned to.
            slots: An instance has its fields and no others.
            eq: Instances of equal fields are equal.
            options: All others of `dataclasses.dataclass`.
        """
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, slots=slots, eq=eq, **options)
        if not (frozen and slots) or options.keys() - {"kw_only"}:
            return dataclasses.dataclass(frozen=frozen, slots=slots, eq=eq, **options)(cls)
        made = dataclasses.dataclass(frozen=True, slots=True, repr=False, eq=False, **options)(cls)
        fields = dataclasses.fields(made)
        methods = {"__repr__": _repr([field.name for field in fields if field.repr])}
        if eq:
            key = _key([field.name for field in fields if field.compare])
            methods |= {"__eq__": _eq(key), "__hash__": lambda self: hash(key(self))}
        for name, method in methods.items():
            if name not in cls.__dict__ or (name == "__hash__" and cls.__dict__[name] is None):
                method.__name__, method.__qualname__ = name, f"{cls.__qualname__}.{name}"
                setattr(made, name, method)
        return made


def _key(names: list[str]) -> Callable[[Any], Any]:
    return attrgetter(*names) if names else lambda _: ()


def _eq(key: Callable[[Any], Any]) -> Callable[[Any, object], Any]:
    def eq(self: Any, other: object) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return key(self) == key(other)

    return eq


def _repr(names: list[str]) -> Callable[[Any], str]:
    @recursive_repr()
    def shown(self: Any) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({fields})"

    return shown
