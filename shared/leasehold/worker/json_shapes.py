"""What JSON a model writes and reads, as far as that is certain: from pydantic's core schema.

What cannot be known (a validator that sees the raw value, a serializer of the user's own) has the
shape ANY, which goes with everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

Schema = Mapping[str, Any]

#: Deeper models are not looked into.
_MAX_DEPTH: Final = 6


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an object.

    Args:
        names: under which it is found; written fields have one, or two that may both be meant.
        shape: its value.
        is_certain: written: it is always there; read: it must be there.
    """

    names: tuple[str, ...]
    shape: Shape
    is_certain: bool


@dataclass(frozen=True, slots=True)
class Shape:
    """A JSON value.

    Args:
        kind: any, null, string, number, boolean, scalar (one of these three), array, object, union.
        values: of a string, all that there are; None: not known.
        fields: of an object.
        is_open: an object may have more fields; read: it takes them.
        choices: of a union.
    """

    kind: str
    values: frozenset[str] | None = None
    fields: tuple[Field, ...] = ()
    is_open: bool = True
    choices: tuple[Shape, ...] = ()


ANY: Final = Shape("any")
_NULL: Final = Shape("null")
_STRING: Final = Shape("string")
_SCALAR: Final = Shape("scalar")
_ARRAY: Final = Shape("array")

_ARRAYS: Final = frozenset({"list", "tuple", "set", "frozenset", "generator"})
_SCALARS: Final = frozenset(
    {"int", "float", "decimal", "bool", "date", "time", "datetime", "timedelta", "uuid", "url"}
)
_WRITTEN: Final = {"int": Shape("number"), "float": Shape("number"), "bool": Shape("boolean")}


def written(schema: Schema) -> Shape:
    """Return the shape of what is written of a type."""
    return _Reader(schema, is_read=False).shape(schema)


def read(schema: Schema) -> Shape:
    """Return the shape of what a type can be read from."""
    return _Reader(schema, is_read=True).shape(schema)


class _Reader:
    """Walks one schema, in one direction."""

    def __init__(self, schema: Schema, *, is_read: bool) -> None:
        self._is_read = is_read
        self._known = {one["ref"]: one for one in schema.get("definitions", ()) if "ref" in one}
        self._kinds: Mapping[str, Callable[[Schema, Schema, int], Shape]] = {
            "definitions": self._inner,
            "definition-ref": self._reference,
            "default": self._inner,
            "custom-error": self._inner,
            "function-after": self._inner,
            "function-before": self._validated,
            "function-wrap": self._validated,
            "nullable": self._nullable,
            "union": self._union,
            "tagged-union": self._union,
            "chain": self._chain,
            "lax-or-strict": lambda one, config, depth: self._of(one["lax_schema"], config, depth),
            "json-or-python": lambda one, config, depth: self._of(
                one["json_schema"], config, depth
            ),
            "model": self._model,
            "dataclass": self._model,
            "model-fields": self._object,
            "dataclass-args": self._object,
            "typed-dict": self._object,
            "dict": lambda *_: Shape("object"),
            "literal": lambda one, *_: _of_values(one["expected"]),
            "enum": lambda one, *_: _of_values([member.value for member in one["members"]]),
            "none": lambda *_: _NULL,
            "str": self._string,
        }

    def shape(self, schema: Schema) -> Shape:
        return self._of(schema, {}, 0)

    def _of(self, schema: Schema, config: Schema, depth: int) -> Shape:
        kind = schema["type"]
        if depth > _MAX_DEPTH or (not self._is_read and "serialization" in schema):
            return ANY
        if kind in _ARRAYS:
            return _ARRAY
        if kind in _SCALARS:
            return _SCALAR if self._is_read else _WRITTEN.get(kind, _SCALAR)
        make = self._kinds.get(kind)
        return ANY if make is None else make(schema, config, depth)

    def _inner(self, schema: Schema, config: Schema, depth: int) -> Shape:
        return self._of(schema["schema"], config, depth)

    def _validated(self, schema: Schema, config: Schema, depth: int) -> Shape:
        """A validator that sees the raw value may make of it what it likes."""
        return ANY if self._is_read else self._inner(schema, config, depth)

    def _reference(self, schema: Schema, config: Schema, depth: int) -> Shape:
        found = self._known.get(schema["schema_ref"])
        return ANY if found is None else self._of(found, config, depth + 1)

    def _nullable(self, schema: Schema, config: Schema, depth: int) -> Shape:
        return Shape("union", choices=(_NULL, self._inner(schema, config, depth)))

    def _union(self, schema: Schema, config: Schema, depth: int) -> Shape:
        given = schema["choices"]
        listed = given.values() if isinstance(given, Mapping) else given
        choices = [one[0] if isinstance(one, tuple) else one for one in listed]
        if not all(isinstance(one, Mapping) for one in choices):
            return ANY
        return Shape("union", choices=tuple(self._of(one, config, depth) for one in choices))

    def _chain(self, schema: Schema, config: Schema, depth: int) -> Shape:
        return self._of(schema["steps"][0 if self._is_read else -1], config, depth)

    def _string(self, _schema: Schema, config: Schema, _depth: int) -> Shape:
        return _SCALAR if self._is_read and config.get("coerce_numbers_to_str") else _STRING

    def _model(self, schema: Schema, _config: Schema, depth: int) -> Shape:
        if self._is_read and schema.get("custom_init"):
            return ANY
        return self._of(schema["schema"], schema.get("config", {}), depth + 1)

    def _object(self, schema: Schema, config: Schema, depth: int) -> Shape:
        config = schema.get("config", config)
        extra = schema.get("extra_behavior") or config.get("extra_fields_behavior")
        fields = tuple(self._fields(schema, config, depth))
        is_open = extra != "forbid" if self._is_read else extra == "allow"
        return Shape("object", fields=fields, is_open=is_open)

    def _fields(self, schema: Schema, config: Schema, depth: int) -> Iterator[Field]:
        given = schema["fields"]
        listed = given.items() if isinstance(given, Mapping) else [(f["name"], f) for f in given]
        for name, field in listed:
            if self._is_read and field.get("init") is not False:
                yield self._field_read(name, field, config, depth)
            elif not self._is_read and not _is_left_out(field):
                names = _names_written(name, field.get("serialization_alias"), config)
                shape = self._of(field["schema"], config, depth)
                certain = "serialization_exclude_if" not in field and field.get("required", True)
                yield Field(names, shape, bool(certain))
        if not self._is_read:
            for field in schema.get("computed_fields", ()):
                names = _names_written(field["property_name"], field.get("alias"), config)
                yield Field(names, self._of(field["return_schema"], config, depth), is_certain=True)

    def _field_read(self, name: str, field: Schema, config: Schema, depth: int) -> Field:
        alias = field.get("validation_alias")
        names, is_path = _names_read(name, alias, config)
        shape = ANY if is_path else self._of(field["schema"], config, depth)
        required = field.get("required", True) and not _has_default(field["schema"])
        return Field(names, shape, bool(required))


def _is_left_out(field: Schema) -> bool:
    return bool(field.get("serialization_exclude") or field.get("init_only"))


def _has_default(schema: Schema) -> bool:
    while schema["type"] != "default":
        if not isinstance(schema.get("schema"), Mapping):
            return False
        schema = schema["schema"]
    return True


def _names_written(name: str, alias: str | None, config: Schema) -> tuple[str, ...]:
    """Return the name in the JSON; both where that may depend on more than this model."""
    if alias is None or alias == name:
        return (name,)
    return (alias, name) if config.get("serialize_by_alias") else (name, alias)


def _names_read(name: str, alias: Any, config: Schema) -> tuple[tuple[str, ...], bool]:
    """Return the names that a field is read from, and whether one is a path into a value."""
    if alias is None:
        return (name,), False
    paths = [[alias]] if isinstance(alias, str) else alias
    if paths and not isinstance(paths[0], list):
        paths = [paths]
    names = [str(path[0]) for path in paths]
    by_name = config.get("validate_by_name") or config.get("populate_by_name")
    if by_name or config.get("validate_by_alias") is False:
        names.append(name)
    return tuple(names), any(len(path) > 1 for path in paths)


def _of_values(values: list[Any]) -> Shape:
    kinds = {type(getattr(value, "value", value)) for value in values}
    if kinds == {str}:
        texts = frozenset(str(getattr(value, "value", value)) for value in values)
        return Shape("string", values=texts)
    return _SCALAR if kinds and kinds <= {int, float, bool, str} else ANY
