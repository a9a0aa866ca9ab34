"""What a field of a request may be: its check, and the same in the words of a refusal."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from leasehold.domain.delivery import is_occurrence
from leasehold.domain.json_text import canonical
from leasehold.domain.manifest import is_run_id
from leasehold.domain.moment import TIME_OR_DATE, time_or_date
from leasehold.services.limits import MAX_INTEGER, MAX_NAME, NOTE, is_note

#: The type of a refusal whose `problem` says more than the value would.
NOT_JSON = "not_json"

_MAX_DIGITS = 9


@dataclass(frozen=True, slots=True, eq=False)  # by identity: typing wants to hash it
class Rule:
    """What a field may be, as an annotation of its type.

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


def text(allowed: str = "a text", *, least: int = 0) -> Rule:
    """Return the rule of any text of at least so many characters."""
    return Rule(allowed, core_schema.str_schema(strict=True, min_length=least))


def filled_text() -> Rule:
    """Return the rule of any text that is not empty."""
    return text("a text that is not empty", least=1)


def printable(most: int = MAX_NAME, *, least: int = 1) -> Rule:
    """Return the rule of a text that a line can show, of at most so many characters."""
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
