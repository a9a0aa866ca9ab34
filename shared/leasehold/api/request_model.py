"""The base of all requests: strict, and refused in one line that names the field."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails, PydanticCustomError

from leasehold.api.field_rules import NOT_JSON, Rule
from leasehold.errors import InvalidRequestError

_MAX_SHOWN: Final = 200
_UNKNOWN: Final = "unknown_field"


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
        """Return what a client sends; an optional field that is None is left out."""
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
    return frozenset(fields_of(model)) | frozenset(model.model_fields)


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
        names.append(str(name))
        known = fields_of(part)
        field = known.get(str(name))
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
    shown = value if not isinstance(value, str | dict | list) else str(value)[:_MAX_SHOWN]
    return InvalidRequestError(field=place.path[:_MAX_SHOWN], value=shown, allowed=place.allowed)
