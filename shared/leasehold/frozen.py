"""Frozen dataclasses that a cold start can afford.

The decorator of the standard library compiles six methods for each class, which was a quarter of
what the import of a function took. Here it makes the fields and the slots, and one method is
compiled: the rest are closures over the names of the fields, with the same answers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

_Class = TypeVar("_Class", bound=type)


class _Made:
    """Stands in a signature for what a default factory makes."""

    def __repr__(self) -> str:
        return "<factory>"


_MADE: Final = _Made()

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
        made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, **options)(cls)
        fields = dataclasses.fields(made)
        methods = {
            "__init__": _init(made, fields),
            "__repr__": _repr([field.name for field in fields if field.repr]),
            "__getstate__": _state(fields),
            "__setstate__": _set_state(fields),
        }
        if eq:
            key = _key([field.name for field in fields if field.compare])
            methods |= {"__eq__": _eq(key), "__hash__": lambda self: hash(key(self))}
        made.__setattr__, made.__delattr__ = _refuse_assignment, _refuse_deletion
        for name, method in methods.items():
            if name not in cls.__dict__ or (name == "__hash__" and cls.__dict__[name] is None):
                method.__name__, method.__qualname__ = name, f"{cls.__qualname__}.{name}"
                setattr(made, name, method)
        return made


def _init(cls: type, fields: tuple[Field[Any], ...]) -> Callable[..., None]:
    """Return an `__init__` that sets the slots, as an assignment is refused."""
    names: dict[str, Any] = {"__made": _MADE}  # no field is called so
    parameters: dict[bool, list[str]] = {False: [], True: ["*"]}
    lines = []
    for field in fields:
        name = field.name
        has_default = field.default is not MISSING
        is_made = field.default_factory is not MISSING
        if not field.init and not has_default and not is_made:
            continue  # `__post_init__` sets it
        names |= {
            f"__set_{name}": getattr(cls, name).__set__,
            f"__new_{name}": field.default_factory,
        }
        names[f"__default_{name}"] = field.default
        value = name if field.init else f"__default_{name}"
        if is_made:
            value = (
                f"__new_{name}() if {name} is __made else {name}"
                if field.init
                else f"__new_{name}()"
            )
        lines.append(f"  __set_{name}(self, {value})")
        if field.init:
            default = f"=__default_{name}" if has_default else "=__made" if is_made else ""
            parameters[field.kw_only is True].append(f"{name}{default}")
    if hasattr(cls, "__post_init__"):
        lines.append("  self.__post_init__()")
    taken = ["self", *parameters[False], *(parameters[True] if parameters[True][1:] else ())]
    text = f"def __init__({', '.join(taken)}):\n" + ("\n".join(lines) or "  pass")
    exec(text, names)  # noqa: S102 - of names of fields alone, as `dataclasses` does it
    made: Callable[..., None] = names["__init__"]
    made.__annotations__ = {field.name: field.type for field in fields if field.init}
    made.__annotations__["return"] = None
    made.__module__ = cls.__module__
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


def _state(fields: tuple[Field[Any], ...]) -> Callable[[Any], list[Any]]:
    return lambda self: [getattr(self, field.name) for field in fields]


def _set_state(fields: tuple[Field[Any], ...]) -> Callable[[Any, list[Any]], None]:
    def set_state(self: Any, state: list[Any]) -> None:
        for field, value in zip(fields, state, strict=True):
            object.__setattr__(self, field.name, value)

    return set_state


def _refuse_assignment(_: Any, name: str, __: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(_: Any, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
