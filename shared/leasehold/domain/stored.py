"""What a store keeps, and what the values of a run have in common: how they are copied and stored.

A document is a tree of JSON values and UTC datetimes, named by a collection and an id.
`DecideDocument` is the shape of every rule of the engine as a store sees it: what is stored and the
store's time in, what to write out.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
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

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

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


#: A time that a person may have edited: in any zone, and some days before or after it, there is one
#: that a calendar has.
Moment = Annotated[
    AwareDatetime, Field(ge=datetime(1970, 1, 1, tzinfo=UTC), lt=datetime(9000, 1, 1, tzinfo=UTC))
]
#: A text that a person may have edited: no half of a character, and no more than a bus takes.
Text = Annotated[str, Field(max_length=1000)]
#: A count that a person may have edited: each store keeps it, and the one after it.
Count = Annotated[int, Field(ge=0, lt=2**62)]

#: What an instance of a model consists of, set past the check that it is frozen. `setattr` would
#: look each of them up again: a tenth of the time of a transition.
_SLOTS: Final = vars(BaseModel)
_new: Final = object.__new__
_set_values: Final = _SLOTS["__dict__"].__set__
_set_extra: Final = _SLOTS["__pydantic_extra__"].__set__
_set_given: Final = _SLOTS["__pydantic_fields_set__"].__set__
_set_private: Final = _SLOTS["__pydantic_private__"].__set__
_NONE_GIVEN: Final = set[str]()  # which fields of a value were given is never used

P = ParamSpec("P")
S = TypeVar("S", bound="Stored")

if TYPE_CHECKING:
    from dataclasses import replace as replace  # noqa: PLC0414 - what type checkers take ours for

    from pydantic._internal._model_construction import ModelMetaclass

    @dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(Field,))
    class _Values(ModelMetaclass):
        """Has type checkers take a `Stored` for a frozen dataclass: `replace` has its fields."""

    class _Value(BaseModel, metaclass=_Values): ...

else:
    _Value = BaseModel

    def replace(value: Any, /, **changes: Any) -> Any:
        """Return a copy of a frozen value with these fields replaced; nothing is validated again.

        Args:
            value: a `Stored`, whose copy shares what is not replaced: it is `model_copy` for a
                tenth of its time, and a transition makes several. Or any other dataclass.
            changes: the fields.
        """
        try:
            extra = value.__pydantic_extra__
        except AttributeError:
            return dataclasses.replace(value, **changes)
        copy = _new(value.__class__)
        _set_values(copy, {**value.__dict__, **changes})
        _set_extra(copy, extra)
        _set_given(copy, value.__pydantic_fields_set__)
        _set_private(copy, None)
        return copy


class Stored(_Value):
    """A frozen value that is stored in lowerCamelCase; fields of later versions survive in it."""

    model_config = ConfigDict(
        frozen=True,
        extra="allow",
        defer_build=True,  # a cold start builds what it uses
        alias_generator=to_camel,
        validate_by_name=True,
        serialize_by_alias=True,
    )


def make(model: Callable[P, S], /, *_: P.args, **fields: P.kwargs) -> S:
    """Return a value of a model of ours, from fields that are not validated.

    For those that each step makes: a third of the time that the model itself takes.
    """
    made = _new(cast("type[S]", model))
    _set_values(made, _defaults(made.__class__) | fields)
    _set_extra(made, {})
    _set_given(made, _NONE_GIVEN)
    _set_private(made, None)
    return made


@functools.cache
def _defaults(model: type[Stored]) -> dict[str, Any]:
    """Return all fields of a model in their order; those without a default are given always."""
    return {name: field.default for name, field in model.model_fields.items()}


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
        to_json = type(self.value).__pydantic_serializer__.to_json  # what `model_dump_json` calls
        return to_json(self.value, exclude_none=True).decode()

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
    names = {to_camel(name): name for name in model.model_fields}
    read = operator.attrgetter(*(names[field] for field in fields))
    return read if len(fields) > 1 else lambda value: (read(value),)
