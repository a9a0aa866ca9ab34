"""The base of all requests: strict, and refused in one line that names the field.

Each field has a rule: its check, and the same in the words of a refusal.
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any, Final, NamedTuple, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema

from leasehold.domain.delivery import is_occurrence
from leasehold.domain.json_text import canonical
from leasehold.domain.manifest import is_run_id
from leasehold.domain.spend import MAX_USD
from leasehold.domain.timestamps import TIME_OR_DATE, time_or_date
from leasehold.errors import MAX_VALUE_SHOWN_CHARS, InvalidRequestError
from leasehold.frozen import dataclass
from leasehold.services.request_bounds import MAX_INTEGER, MAX_NAME_CHARS, NOTE, is_note

_UNKNOWN: Final = "unknown_field"
#: The type of a refusal whose `problem` says more than the value would.
NOT_JSON = "not_json"

_MAX_DIGITS = 9


class RequestPart(BaseModel):
    """An object in a request. Each of its fields has a rule, or is such an object itself."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        defer_build=True,  # a cold start builds what it uses
        alias_generator=to_camel,
        validate_by_name=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, given: Any) -> Any:
        """Refuse the first unknown field; pydantic alone would list each of a million."""
        if cls.model_config["extra"] == "forbid" and isinstance(given, dict):
            known = _names(cls)
            for name in given:
                if name not in known:
                    raise PydanticCustomError(_UNKNOWN, "unknown field", {"name": name})
        return given

    def to_json(self) -> dict[str, Any]:
        """Return what a client sends; an optional field with the value None is left out."""
        return {
            field.name: value.to_json() if isinstance(value, RequestPart) else value
            for field, value in _given(self)
            if value is not None or field.takes_null
        }


class RequestModel(RequestPart):
    """The body or the query of a request.

    Raises:
        InvalidRequestError: a field is not what it may be.
    """

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_in_one_line(cls, given: Any, check: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return check(given)
        except ValidationError as error:
            raise _refusal(cls, error.errors(include_url=False)[0]) from None

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        """Return the request that a caller sent, in the names of JSON."""
        found = cls.model_validate(given, by_name=False)
        for path in _nulls(found):
            raise _refused(_place(cls, path), None)
        return found

    def to_texts(self) -> dict[str, str | tuple[str, ...]]:
        """Return the query as an address has it; a field with several texts is repeated."""
        return {
            name: value if isinstance(value, str | tuple) else json.dumps(value)
            for name, value in self.to_json().items()
        }


class RequestField(NamedTuple):
    """A field as callers see it: its name, and its rule or the object that it is."""

    attribute: str
    name: str
    rule: Rule | None
    part: type[RequestPart] | None

    @property
    def takes_null(self) -> bool:
        """Whether null is a value of the field."""
        return self.rule is not None and self.rule.takes_null

    @property
    def takes_several(self) -> bool:
        """Whether a list is a value of the field, which a query repeats."""
        return self.rule is not None and self.rule.takes_several


class _Place(NamedTuple):
    """A place in a request, and what may stand there."""

    path: str
    allowed: str
    takes_null: bool = False


@functools.cache
def fields_of(model: type[BaseModel]) -> Mapping[str, RequestField]:
    """Return the fields of a request by their names in JSON."""
    return {
        name: RequestField(attribute, name, *_kind((*field.metadata, field.annotation)))
        for attribute, field in model.model_fields.items()
        for name in [field.alias or attribute]
    }


@functools.cache
def _names(model: type[BaseModel]) -> frozenset[str]:
    """Return the names of fields: those of JSON, and those that a client of ours gives them by."""
    return frozenset(fields_of(model)) | frozenset(_by_attribute(model))


@functools.cache
def _by_attribute(model: type[BaseModel]) -> Mapping[str, RequestField]:
    """Return the fields of a request by the names that a client of ours gives them by."""
    return {field.attribute: field for field in fields_of(model).values()}


def _kind(hints: Sequence[Any]) -> tuple[Rule | None, type[RequestPart] | None]:
    """Find the rule of a field in its type, or the part that it is."""
    for hint in hints:
        if isinstance(hint, Rule):
            return hint, None
        if isinstance(hint, type) and issubclass(hint, RequestPart):
            return None, hint
        if (found := _kind(get_args(hint))) != (None, None):
            return found
    return None, None


def _given(part: RequestPart) -> Iterator[tuple[RequestField, Any]]:
    """Yield each field that was given, and its value."""
    for field in fields_of(type(part)).values():
        if field.attribute in part.model_fields_set:
            yield field, getattr(part, field.attribute)


def _place(model: type[RequestPart], path: Sequence[int | str]) -> _Place:
    """Return the place that a path leads to: that of the first field with a rule on it."""
    part, names = model, []
    for name in path:
        known = fields_of(part)
        field = known.get(str(name)) or _by_attribute(part).get(str(name))
        names.append(str(name) if field is None else field.name)
        if field is None:
            return _Place(".".join(names), f"one of the fields {', '.join(known)}")
        if field.part is None:
            allowed = field.rule.allowed if field.rule else "another value"
            return _Place(".".join(names), allowed, field.takes_null)
        part = field.part
    return _Place(".".join(names), f"an object with the fields {', '.join(fields_of(part))}")


def _nulls(part: RequestPart, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths of the fields that are null and may only be left out."""
    for field, value in _given(part):
        if isinstance(value, RequestPart):
            yield from _nulls(value, (*path, field.name))
        elif value is None and not field.takes_null:
            yield (*path, field.name)


def _refusal(model: type[RequestPart], problem: ErrorDetails) -> InvalidRequestError:
    context, value = problem.get("ctx", {}), problem["input"]
    if problem["type"] == _UNKNOWN:
        name = context["name"]
        return _refused(_place(model, (*problem["loc"], name)), value[name])
    place = _place(model, problem["loc"])
    if problem["type"] == NOT_JSON:
        value = context["problem"]
    elif problem["type"] == "missing":
        value = "missing" if place.takes_null else None
    return _refused(place, value)


def _refused(place: _Place, value: object) -> InvalidRequestError:
    shown = (
        value if not isinstance(value, str | dict | list) else str(value)[:MAX_VALUE_SHOWN_CHARS]
    )
    return InvalidRequestError(
        field=place.path[:MAX_VALUE_SHOWN_CHARS], value=shown, allowed=place.allowed
    )


@dataclass(frozen=True, slots=True, eq=False)  # by identity: typing wants to hash it
class Rule:
    """The allowed values of a field, as an annotation of its type.

    Args:
        allowed: the rule in words: "a whole number from 1 to 1000".
        schema: the rule as pydantic checks it. It is strict: a text is never taken for a number.
        takes_null: whether null is a value; else a field that may be left out may not be null.
        takes_several: whether a list is a value; a query gives it by repeating the field.
    """

    allowed: str
    schema: CoreSchema
    takes_null: bool = False
    takes_several: bool = False

    def __get_pydantic_core_schema__(
        self, _source: object, _handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the check, in place of that of the bare type."""
        return self.schema


def dollars(*, least: int | None = None) -> Rule:
    """Return the rule of an amount of US dollars, from `least` on; None: above 0."""
    bounds: dict[str, Any] = {"gt": 0} if least is None else {"ge": least}
    schema = core_schema.float_schema(strict=True, le=MAX_USD, allow_inf_nan=False, **bounds)
    from_ = "above 0" if least is None else f"from {least}"
    return Rule(f"a number of dollars {from_}, at most {MAX_USD:,}", schema)


def text(allowed: str = "a text", *, least: int = 0) -> Rule:
    """Return the rule of any text of at least so many characters."""
    return Rule(allowed, core_schema.str_schema(strict=True, min_length=least))


def filled_text() -> Rule:
    """Return the rule of any text that is not empty."""
    return text("a text that is not empty", least=1)


def printable(most: int = MAX_NAME_CHARS, *, least: int = 1) -> Rule:
    """Return the rule of a text that a line can show, of limited length."""
    size = core_schema.str_schema(strict=True, min_length=least, max_length=most)
    check = _checked(str.isprintable, size)
    count = f"{least} to {most}" if least else f"at most {most}"
    return Rule(f"a text of {count} printable characters", check)


def note() -> Rule:
    """Return the rule of a person's words for a handler, which may have several lines."""
    return Rule(NOTE, _checked(is_note, core_schema.str_schema(strict=True)))


def run_id() -> Rule:
    """Return the rule of what can be the id of a run."""
    return Rule("the id of a run", _checked(is_run_id, core_schema.str_schema(strict=True)))


def occurrence() -> Rule:
    """Return the rule of what tells the announcements of a run from each other."""
    check = _checked(is_occurrence, core_schema.str_schema(strict=True))
    return Rule("the occurrence of an announcement, such as 4 or 4.2", check)


def moment() -> Rule:
    """Return the rule of a text that names a time."""
    return Rule(TIME_OR_DATE, _checked(time_or_date, core_schema.str_schema(strict=True)))


def whole(least: int, most: int = MAX_INTEGER) -> Rule:
    """Return the rule of a whole number in a range."""
    schema = core_schema.int_schema(strict=True, ge=least, le=most)
    return Rule(f"a whole number from {least} to {most}", schema)


def number_of_text(given: Any) -> Any:
    """Return the number that a query has as text."""
    is_number = isinstance(given, str) and given.isascii() and given.isdigit()
    return int(given) if is_number and len(given) <= _MAX_DIGITS else given


def share() -> Rule:
    """Return the rule of a share of one."""
    schema = core_schema.float_schema(strict=True, ge=0, le=1, allow_inf_nan=False)
    return Rule("a number from 0 to 1", schema)


def seconds(most: timedelta) -> Rule:
    """Return the rule of a time in seconds."""
    longest = most.total_seconds()
    schema = core_schema.float_schema(strict=True, ge=0, le=longest, allow_inf_nan=False)
    return Rule(f"seconds from 0 to {longest:g}", schema)


def flag() -> Rule:
    """Return the rule of a boolean."""
    return Rule("true or false", core_schema.bool_schema(strict=True))


def one_of(values: type[StrEnum]) -> Rule:
    """Return the rule of one of these values."""
    schema = core_schema.enum_schema(values, list(values), sub_type="str", strict=False)
    return Rule(", ".join(values), schema)


def literal(values: Sequence[str]) -> Rule:
    """Return the rule of one of these texts."""
    return Rule(", ".join(values), core_schema.literal_schema(list(values)))


def labels() -> Rule:
    """Return the rule of labels; how many and how long, the start of a run checks."""
    return Rule('{"key": "value"}', _checked(_are_texts, core_schema.dict_schema()))


def files() -> Rule:
    """Return the rule of files in base64, by name; how many and how large, the start checks."""
    return Rule('{"name": "bytes in base64"}', _checked(_are_files, core_schema.dict_schema()))


def or_null(rule: Rule) -> Rule:
    """Return the rule of what may be null as well."""
    return replace(rule, schema=core_schema.nullable_schema(rule.schema), takes_null=True)


def or_several(rule: Rule, most: int) -> Rule:
    """Return the rule of one value or a list of values, which are read as a tuple.

    That there are so many different ones at most is checked where they are used.
    """
    several = core_schema.tuple_schema(
        [rule.schema], variadic_item_index=0, min_length=1, strict=False
    )
    schema = core_schema.union_schema([rule.schema, several])
    return Rule(f"{rule.allowed}, or a list of 1 to {most}", schema, takes_several=True)


def base64_bytes() -> Rule:
    """Return the rule of bytes in base64; they are read as bytes."""
    schema = core_schema.no_info_after_validator_function(
        partial(base64.b64decode, validate=True), core_schema.str_schema(strict=True)
    )
    return Rule("bytes in base64", schema)


def any_value() -> Rule:
    """Return the rule of a value whose shape is not the API's to know: the input of a run."""
    return Rule("a JSON value", core_schema.any_schema(), takes_null=True)


def json_text() -> Rule:
    """Return the rule of any value that can be kept; it is read as its canonical text."""
    schema = core_schema.no_info_after_validator_function(_canonical, core_schema.any_schema())
    return Rule("a JSON value", schema, takes_null=True)


def json_value() -> Rule:
    """Return the rule of any value that can be kept."""
    return Rule("a JSON value", _checked(_canonical, core_schema.any_schema()), takes_null=True)


def _are_files(value: Any) -> bool:
    if not _are_texts(value):
        return False
    for text in value.values():
        base64.b64decode(text, validate=True)  # raises ValueError
    return True


def _checked(fits: Callable[[Any], object], schema: CoreSchema) -> CoreSchema:
    """Return the schema with a further check, which returns something or raises."""

    def check(value: Any) -> Any:
        if not fits(value):
            raise ValueError
        return value

    return core_schema.no_info_after_validator_function(check, schema)


def _are_texts(values: dict[Any, Any]) -> bool:
    return all(isinstance(text, str) for pair in values.items() for text in pair)


def _canonical(value: Any) -> str:
    try:
        return canonical(value)
    except (ValueError, RecursionError) as error:  # 1e400 is JSON, and no number that can be kept
        raise PydanticCustomError(NOT_JSON, "{problem}", {"problem": str(error)}) from None


# The base of all responses: what a server answers, and what its client reads.


class ResponseModel(BaseModel):
    """A response. A client reads past fields that a later server adds."""

    model_config = ConfigDict(
        frozen=True,
        defer_build=True,  # a cold start builds what it uses
        alias_generator=to_camel,
        validate_by_name=True,
        serialize_by_alias=True,
    )
