"""What a store keeps, and what the values of a run have in common: how they are copied and stored.

A document is a tree of JSON values and UTC datetimes, named by a collection and an id.
`DecideDocument` is the shape of every rule of the engine as a store sees it: what is stored and the
store's time in, what to write out.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import operator
import types
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Generic,
    NamedTuple,
    ParamSpec,
    TypeVar,
    cast,
    dataclass_transform,
)

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    TypeAdapter,
)
from pydantic.alias_generators import to_camel

from leasehold.frozen import dataclass

Document = Mapping[str, Any]
Answer = TypeVar("Answer")


class Ref(NamedTuple):
    """The name of a document; `collection` may be nested: `runs/r-1/trace`."""

    collection: str
    id: str

    def __str__(self) -> str:
        return f"{self.collection}/{self.id}"


class UnreadableDocument(dict[str, Any]):
    """What a store has in place of a document: only the fields that queries find it by.

    Args:
        problem: why the rest cannot be read.
        fields: what the store can query, as it is stored.
    """

    def __init__(self, problem: str, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Write(Generic[Answer]):
    """The new state of a document, and the answer for the caller.

    Args:
        document: stored in place of the earlier ones; None leaves it as it is.
        creates: further documents of the same commit; none of them may exist.
        puts: further documents of the same commit, stored in place of whatever is there. They need
            a `document`: that one's version keeps a commit that is sent twice from storing them
            in place of later values.
        answer: passed through to the caller once the commit stands.
    """

    answer: Answer
    document: Document | None = None
    creates: Mapping[Ref, Document] | None = None
    puts: Mapping[Ref, Document] | None = None

    def __post_init__(self) -> None:
        if self.puts and self.document is None:
            raise ValueError("puts need a document to be stored with")

    @property
    def has_others(self) -> bool:
        """Whether documents beside the one that was decided on are written."""
        return bool(self.creates or self.puts)


#: A pure function of the stored document (None: nothing) and the store's time; it may run again.
DecideDocument = Callable[[Document | None, datetime], Write[Answer]]


#: A text that a person may have edited: no half of a character, and no more than a bus takes.
Text = Annotated[str, Field(max_length=1000)]
#: A count that a person may have edited: each store keeps it, and the one after it.
Count = Annotated[int, Field(ge=0, lt=2**62)]
#: A time that can be stored, behind any other.
LATEST: Final = datetime(8999, 12, 31, tzinfo=UTC)

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound="Stored")

_CONFIG: Final = ConfigDict(
    frozen=True,
    extra="allow",
    defer_build=True,  # most are built as parts of another one
    alias_generator=to_camel,
    validate_by_name=True,
    serialize_by_alias=True,
)


def _once(make: Callable[[Any], T]) -> Callable[[Any], T]:
    """Make a thing once for each class; type checkers ask whether its instances can be hashed."""
    return functools.cache(make)


@_once
def _model_of(kind: type[Any]) -> type[BaseModel]:
    """Return the model of a class of values: it has the same fields, as they are declared there."""
    bases = tuple(_model_of(base) for base in kind.__bases__ if issubclass(base, Stored))
    declared = vars(kind).get("__annotations__", {})
    body = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
        "__annotations__": declared,
        "model_config": _CONFIG,
    }
    body |= {name: vars(kind)[name] for name in declared if name in vars(kind)}
    return types.new_class(
        kind.__name__, bases or (BaseModel,), exec_body=lambda it: it.update(body)
    )


@_once
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    """Return what reads, checks and writes the values of a class."""
    return TypeAdapter(kind)


@_once
def _defaults(kind: type[Any]) -> dict[str, Any]:
    """Return all fields of a class in their order; those without a default are given always."""
    bases = [vars(base) for base in reversed(kind.__mro__)]
    return {name: base.get(name) for base in bases for name in base.get("__annotations__", {})}


def _bound(name: str, schema: Any) -> None:
    """Bound a time or a duration, which a person may have edited.

    In any zone, and so long before or after it, there is a time that a calendar has.
    """
    while schema["type"] in ("default", "nullable"):
        schema = schema["schema"]
    if schema["type"] == "datetime":
        schema |= {"ge": datetime(1970, 1, 1, tzinfo=UTC), "lt": datetime(9000, 1, 1, tzinfo=UTC)}
    elif schema["type"] in ("int", "float"):
        most = next((most for end, most in _MAX_DURATIONS.items() if name.endswith(end)), None)
        if most is not None:
            schema |= {"gt": -most, "lt": most} | schema


#: Durations are below 68 years, by the ends of their names.
_MAX_DURATIONS: Final = {"_s": 2**31, "_seconds": 2**31, "_ms": 2**31 * 1000}


class _OfClass:
    """Has each class of values read an attribute that is made of it when it is first wanted."""

    def __init__(self, make: Callable[[type[Any]], Any]) -> None:
        self._make = make

    def __get__(self, _: object, kind: type[Any]) -> Any:
        return self._make(kind)


class _Plain:
    """A value with the methods of a pydantic model, and none of what that costs.

    A model has a `__getattr__`, so Python looks each attribute up three times: that took a
    fifteenth of the time of a step. To make the classes of models took a quarter of the time of a
    catalog's import. So each class of values has a model, which reads, checks and writes them; it
    is made when it is first needed. The values themselves are plain.
    """

    #: Pydantic sets them in each value that it reads: the fields, further ones, and two more that
    #: are not used.
    __slots__ = (
        "__dict__",
        "__pydantic_extra__",
        "__pydantic_fields_set__",
        "__pydantic_private__",
    )

    model_config = _CONFIG
    model_fields = _OfClass(lambda kind: _model_of(kind).model_fields)
    __pydantic_core_schema__ = _OfClass(lambda kind: _adapter(kind).core_schema)
    __pydantic_serializer__ = _OfClass(lambda kind: _adapter(kind).serializer)

    def __init__(self, /, **fields: Any) -> None:
        _adapter(self.__class__).validator.validate_python(fields, self_instance=self)

    @classmethod
    def model_validate(cls, value: Any, **how: Any) -> Any:
        return _adapter(cls).validator.validate_python(value, **how)

    @classmethod
    def model_validate_json(cls, text: str | bytes, **how: Any) -> Any:
        return _adapter(cls).validator.validate_json(text, **how)

    @classmethod
    def model_construct(cls, _: set[str] | None = None, **fields: Any) -> Any:
        made = _new(cls)
        _set_values(made, _defaults(cls) | {k: v for k, v in fields.items() if k in _defaults(cls)})
        _set_extra(made, {k: v for k, v in fields.items() if k not in _defaults(cls)})
        return made

    @property
    def model_extra(self) -> dict[str, Any] | None:
        return cast("dict[str, Any] | None", _get_extra(self))

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Any:
        copied = copy.deepcopy(self) if deep else self
        return self.model_construct(**dict(copied) | dict(update or {}))

    def model_dump(self, **how: Any) -> Any:
        return _adapter(self.__class__).serializer.to_python(self, **how)

    def model_dump_json(self, **how: Any) -> str:
        return _adapter(self.__class__).serializer.to_json(self, **how).decode()

    @classmethod
    def __get_pydantic_core_schema__(cls, _: object, handler: GetCoreSchemaHandler) -> Any:
        schema: Any = handler.resolve_ref_schema(handler.generate_schema(_model_of(cls)))
        for name, field in schema["schema"]["fields"].items():
            _bound(name, field["schema"])
        return {**schema, "cls": cls}

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        yield from self.__dict__.items()
        yield from (self.model_extra or {}).items()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Plain) or self.__class__ is not other.__class__:
            return NotImplemented
        return dict(self) == dict(other)

    def __hash__(self) -> int:
        return hash(frozenset(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self)})"

    def __setattr__(self, field: str, _: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {field!r}")

    def __delattr__(self, field: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {field!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.__class__, dict(self))


#: Past the check that a value is frozen. `setattr` would look each of them up again.
_new: Final[Any] = object.__new__
_set_values: Final = vars(_Plain)["__dict__"].__set__
_set_extra: Final = vars(_Plain)["__pydantic_extra__"].__set__
_get_extra: Final = vars(_Plain)["__pydantic_extra__"].__get__


def _restored(kind: type[Any], fields: Mapping[str, Any]) -> Any:
    return kind.model_construct(**fields)


if TYPE_CHECKING:
    from dataclasses import replace as replace  # noqa: PLC0414 - what type checkers take ours for

    from pydantic._internal._model_construction import ModelMetaclass

    @dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(Field,))
    class _Values(ModelMetaclass):
        """Has type checkers take a `Stored` for a frozen dataclass: `replace` has its fields."""

    class _Value(BaseModel, metaclass=_Values): ...

else:
    _Value = _Plain

    def replace(value: Any, /, **changes: Any) -> Any:
        """Return a copy of a frozen value with these fields replaced; nothing is validated again.

        Args:
            value: a `Stored`, whose copy shares what is not replaced: a transition makes several.
                Or any other dataclass.
            changes: the fields.
        """
        try:
            extra = value.__pydantic_extra__
        except AttributeError:
            return dataclasses.replace(value, **changes)
        copied = _new(value.__class__)
        fields = copied.__dict__
        fields |= value.__dict__
        fields |= changes
        _set_extra(copied, extra)
        return copied


class Stored(_Value):
    """A frozen value that is stored in lowerCamelCase; fields of later versions survive in it."""


def make(model: Callable[P, S], /, *_: P.args, **fields: P.kwargs) -> S:
    """Return a value of a model of ours, from fields that are not validated.

    For those that each step makes: a third of the time that the model itself takes.
    """
    made: S = _new(model)
    values = made.__dict__
    values |= _defaults(made.__class__)
    values |= fields
    _set_extra(made, None)
    return made


class StoredDocument(Mapping[str, Any]):
    """A value as the document that it is stored as.

    The tree is made at its first use. A store that keeps JSON text takes that, and what
    it has indexes of, from the value itself; and the caller that gets the document back has the
    value without reading it.

    Args:
        value: what is stored; fields that are None are not.
    """

    def __init__(self, value: Stored) -> None:
        self.value = value

    def to_json(self) -> str:
        """Return the JSON text of the document."""
        serializer = _adapter(self.value.__class__).serializer  # as `model_dump_json` does
        return serializer.to_json(self.value, exclude_none=True).decode()

    def pick(self, fields: tuple[str, ...]) -> tuple[Any, ...]:
        """Return the values of these fields, None for one that is not stored.

        They are as they stand in the model: for texts, numbers, times and arrays of those.
        """
        return _picker(type(self.value), fields)(self.value)

    def __getitem__(self, field: str) -> Any:
        """Return the value of a field, or raise KeyError."""
        return self._tree[field]

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the fields."""
        return iter(self._tree)

    def __len__(self) -> int:
        """Return how many fields there are."""
        return len(self._tree)

    @functools.cached_property
    def _tree(self) -> dict[str, Any]:
        return self.value.model_dump(exclude_none=True)


@functools.cache
def _picker(model: type[Stored], fields: tuple[str, ...]) -> Callable[[Stored], tuple[Any, ...]]:
    """Return what reads these fields of a document from its model, which has them all."""
    names = {field.alias or to_camel(name): name for name, field in model.model_fields.items()}
    read = operator.attrgetter(*(names[field] for field in fields))
    return read if len(fields) > 1 else lambda value: (read(value),)
