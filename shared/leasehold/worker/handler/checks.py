"""What is wrong with a handler, or with a value that it takes or returns; nothing is called."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, Final

import pydantic_core
from pydantic import TypeAdapter, ValidationError

from leasehold.domain.manifest_parts import ErrorRecord
from leasehold.domain.printable import one_line
from leasehold.errors import HandlerNotFoundError
from leasehold.frozen import dataclass
from leasehold.ports.handler_runner import (
    BrokenLink,
    EnteredStep,
    Misfit,
    MisfitVerdict,
    MissingField,
    PlaceShape,
    StepHandler,
    StepOutput,
)
from leasehold.registry.dispatch import REMOTE
from leasehold.worker.failures.error_chain import class_name
from leasehold.worker.failures.failures import (
    MAX_EXCERPT_CHARS,
    first_problem,
    issues_of,
    record_of_misfit,
    record_of_report,
    safe_text,
)
from leasehold.worker.failures.kept_text import try_text
from leasehold.worker.handler.call import entry_actions_of
from leasehold.worker.handler.handlers import handler_of, model_of

OUTPUT_ERROR: Final = "output_error"


class ImportedHandlerChecks:
    """The handler checks port, by the handlers themselves, which it imports."""

    def check(self, step: StepHandler) -> None:
        """Resolve the handler, or raise HandlerNotFoundError."""
        handler_of(step)

    def check_entry_actions(self, step: EnteredStep) -> None:
        """Resolve the entry actions, or raise EntryActionNotFoundError."""
        entry_actions_of(step)

    def broken_link(
        self,
        step: StepOutput,
        following: StepHandler,
        *,
        gives: PlaceShape = "value",
        takes_item: bool = False,
    ) -> BrokenLink | None:
        """Return why no output of the step fits the next one; None: some may fit."""
        if following.handler == REMOTE:
            return None
        try:
            output, taken, name = _output_of(step), handler_of(following), _output_name_of(step)
        except HandlerNotFoundError:
            return None
        problem = (
            None if output is None else misfit(output, taken.given, gives, takes_item=takes_item)
        )
        given_name = f"list[{taken.given_name}]" if takes_item else taken.given_name
        name = name if gives == "value" else _PLACED[gives].format(name)
        return None if problem is None else BrokenLink(name, given_name, problem)

    def missing_field(self, step: StepHandler, names: Sequence[str]) -> MissingField | None:
        """Return the first of these that what the step takes surely has no field for; or None."""
        try:
            handler = handler_of(step)
        except HandlerNotFoundError:
            return None
        schema = handler.given.core_schema
        shape = read(schema)
        if names and shape.kind in _WITHOUT_FIELDS:
            return MissingField(names[0], handler.given_name, "no fields")
        if shape.kind != "object" or not shape.fields or written(schema).is_open:
            return None
        known = {name: None for field in shape.fields for name in field.names}
        missing = next((name for name in names if name not in known), None)
        if missing is None:
            return None
        return MissingField(missing, handler.given_name, ", ".join(known))

    def value_at(self, step: StepHandler, given: str, names: Sequence[str]) -> Any:
        """Return the JSON value that the handler finds at a path of its model; None: there is none.

        So a field that is not given has its default.
        """
        try:
            value = handler_of(step).given.validate_json(given)
        except Exception:  # noqa: BLE001 - validators are the user's; who takes it says what is wrong
            return None
        for name in names:
            value = _attribute(value, name)
        return pydantic_core.to_jsonable_python(value, fallback=lambda _: None)

    def misfit_verdict(self, reviewer: StepOutput) -> MisfitVerdict | None:
        """Return why no output of the reviewer is a verdict; None: some may be."""
        try:
            output, name = _output_of(reviewer), _output_name_of(reviewer)
        except HandlerNotFoundError:
            return None
        problem = None if output is None else no_verdict(output)
        return None if problem is None else MisfitVerdict(name, problem)

    def problem_with(self, step: StepHandler, given: str) -> Misfit | None:
        """Return why this JSON text does not fit the handler's model; or None."""
        handler = handler_of(step)
        try:
            handler.given.validate_json(given)
        except ValidationError as error:
            return Misfit(
                handler.given_name, first_problem(error), issues_of(error), error.error_count()
            )
        except Exception as error:  # noqa: BLE001 - a validator is the user's, and raises what it will
            problem = _raised(error)
            issue = {"loc": [], "type": class_name(error), "message": problem}
            return Misfit(handler.given_name, problem, (issue,), 1)
        return None

    def problem_with_output(
        self, step: StepOutput, output: str, following: StepHandler | None = None
    ) -> ErrorRecord | None:
        """Return why this JSON text is no output of the step, or not for the next one; or None."""
        what = f"The output of step {step.step_type}"
        if (model := _output_of(step)) and (misfit := _misfit(model, output, what)):
            return misfit
        if following is None:
            return None
        try:
            given = handler_of(following).given
        except HandlerNotFoundError:
            return None
        return _misfit(given, output, f"{what}, which step {following.step_type} is given,")

    def signals_in(self, step: StepHandler) -> frozenset[str] | None:
        """Return the names of signals that the code of the handler waits for; None: any."""
        from leasehold.worker.handler.signals_in import signals_in  # noqa: PLC0415 - seldom asked

        try:
            handler_of(step)
        except HandlerNotFoundError:
            return None
        return signals_in(step.handler.partition(":")[0])

    def error_of_output(self, step_type: str, output: str) -> ErrorRecord:
        """Return the error of an output of status ERROR, with as much of it as there is room."""
        message = (
            f"The output of step {step_type} has status ERROR; its beginning is in the details."
        )
        details = {"output": pydantic_core.from_json(output)}
        return record_of_report("StepResult", OUTPUT_ERROR, message, details)


def _attribute(value: Any, name: str) -> Any:
    """Return the value of a field of a model, by the name that it has in JSON, or here."""
    if isinstance(value, Mapping):
        return value.get(name)
    for own, field in getattr(value, "__pydantic_fields__", {}).items():
        if name in (own, field.alias, field.validation_alias):
            return getattr(value, own)
    return getattr(value, name, None) if is_dataclass(value) else None


def _output_of(step: StepOutput) -> TypeAdapter[Any] | None:
    if step.handler != REMOTE:
        return handler_of(step).output
    return model_of(step, step.output) if step.output else None


def _output_name_of(step: StepOutput) -> str:
    return step.output if step.handler == REMOTE else handler_of(step).output_name


def _misfit(model: TypeAdapter[Any], text: str, what: str) -> ErrorRecord | None:
    try:
        model.validate_json(text)
    except ValidationError as error:
        return record_of_misfit(error, code="invalid_output", what=what)
    except Exception as error:  # noqa: BLE001 - as above
        message = f"{what} does not fit: {_raised(error)}"
        return record_of_report(class_name(error), "invalid_output", message, None)
    return None


def _raised(error: Exception) -> str:
    words = one_line(safe_text(try_text(lambda: str(error)), MAX_EXCERPT_CHARS), MAX_EXCERPT_CHARS)
    return f"its validation raised {class_name(error)}: {words}".rstrip(": ")


# What JSON a model writes and reads, as far as that is certain: from pydantic's core schema.
#
# What cannot be known (a validator that sees the raw value, a serializer of the user's own) has
# the shape ANY, which goes with everything.


Schema = Mapping[str, Any]

#: Deeper models are not looked into.
_MAX_MODEL_LEVELS: Final = 6


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
        item: of an array, each of its values; None: not known.
    """

    kind: str
    values: frozenset[str] | None = None
    fields: tuple[Field, ...] = ()
    is_open: bool = True
    choices: tuple[Shape, ...] = ()
    item: Shape | None = None


ANY: Final = Shape("any")
_NULL: Final = Shape("null")
_STRING: Final = Shape("string")
_SCALAR: Final = Shape("scalar")
_ARRAY: Final = Shape("array")

_WITHOUT_FIELDS: Final = frozenset({"null", "string", "number", "boolean", "scalar", "array"})
_ARRAYS: Final = frozenset({"list", "tuple", "set", "frozenset", "generator"})
_SCALARS: Final = frozenset(
    {"int", "float", "decimal", "bool", "date", "time", "datetime", "timedelta", "uuid", "url"}
)
_WRITTEN: Final = {"int": Shape("number"), "float": Shape("number"), "bool": Shape("boolean")}


def written(schema: Schema) -> Shape:
    """Return the shape of an annotated type."""
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
        if depth > _MAX_MODEL_LEVELS or (not self._is_read and "serialization" in schema):
            return ANY
        if kind in _ARRAYS:
            item = schema.get("items_schema")
            of_item = self._of(item, config, depth + 1) if isinstance(item, Mapping) else None
            return Shape("array", item=of_item)
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


#: What can be read from what is written, by its kind; a kind that is not here takes itself.
# Whether what a step gives can be what the next one takes; only what surely fails is a problem.


_TAKES: Final = {
    "string": {"string", "scalar"},
    "scalar": {"string", "number", "boolean", "scalar"},
    "null": {"null", "number", "scalar"},  # a number that JSON does not have is written as null
    "number": {"number", "scalar"},
    "boolean": {"boolean", "scalar"},
}

_ARTICLES: Final = {
    "null": "null",
    "scalar": "a plain value",
    "array": "an array",
    "object": "an object",
}
_MAX_PROBLEMS_SHOWN: Final = 5

#: A schema of another pydantic raises one of these when it is read: nothing of it is sure.
_OTHER_SCHEMA: Final = (KeyError, TypeError, AttributeError)

#: What `domain/trials.py` reads.
_VERDICT: Final = Shape(
    "object",
    fields=tuple(
        Field((name,), Shape(kind), is_certain=True)
        for name, kind in (("settled", "boolean"), ("score", "number"), ("findings", "array"))
    ),
)


#: The name of the model that a place makes of the outputs of a step.
_PLACED: Final[Mapping[PlaceShape, str]] = {
    "list": "list[{}]",
    "outcomes": "Outcomes[{}]",
    "batch_outcomes": "Outcomes of {}",
    "object": "an object with {}",
}


@functools.cache
def misfit(
    output: TypeAdapter[Any],
    given: TypeAdapter[Any],
    gives: PlaceShape = "value",
    *,
    takes_item: bool = False,
) -> str | None:
    """Return why no output fits what is given, in words; None: some may fit.

    Args:
        output: the model of the output.
        given: the model of the given value.
        gives: the shape of the output of its place.
        takes_item: whether an item of the list is given, which the place gets.
    """
    try:
        made, takes = _placed(written(output.core_schema), gives), read(given.core_schema)
    except _OTHER_SCHEMA:
        return None
    if not takes_item or made.kind in ("any", "union"):
        return None if takes_item else _words(made, takes)
    if made.kind != "array":
        return f"it is {_word(made)} and must be an array: its items are worked on one by one"
    return _words(made.item or ANY, takes)


def _placed(made: Shape, gives: PlaceShape) -> Shape:
    """Return the shape of what a place makes of the outputs of a step."""
    if gives == "value":
        return made
    if gives == "list":
        return Shape("array", item=made)
    if gives == "object":
        return Shape("object")
    ok = made if gives == "batch_outcomes" else Shape("array", item=made)
    fields = (Field(("ok",), ok, is_certain=True), Field(("failed",), _ARRAY, is_certain=True))
    return Shape("object", fields=fields, is_open=False)


@functools.cache
def no_verdict(output: TypeAdapter[Any]) -> str | None:
    """Return why no output is a verdict of a reviewer, in words; None: some may be."""
    try:
        gives = written(output.core_schema)
    except _OTHER_SCHEMA:
        return None
    return _words(gives, _VERDICT)


def _words(gives: Shape, takes: Shape) -> str | None:
    problems = [*_problems(gives, takes, "")]
    shown = problems[:_MAX_PROBLEMS_SHOWN]
    if left := len(problems) - len(shown):
        shown.append(f"{left} more")
    return "; ".join(shown) or None


def _problems(gives: Shape, takes: Shape, path: str) -> Iterator[str]:
    """Yield why a value of the one shape can never be read as the other."""
    if ANY in (gives, takes):
        return
    if gives.kind == "union":
        tried = [[*_problems(choice, takes, path)] for choice in gives.choices]
        yield from tried[0] if tried and all(tried) else ()
    elif takes.kind == "union":
        tried = [[*_problems(gives, choice, path)] for choice in takes.choices]
        if tried and all(tried):
            objects = [
                found for found, choice in zip(tried, takes.choices, strict=True) if choice.fields
            ]
            yield from (
                objects[0] if len(objects) == 1 else [f"{_place(path)} fits none of the choices"]
            )
    elif gives.kind not in _TAKES.get(takes.kind, {takes.kind}):
        yield f"{_place(path)} is {_word(gives)} and must be {_word(takes)}"
    elif takes.kind == "object":
        yield from _field_problems(gives, takes, path)
    elif takes.values and gives.values and not gives.values & takes.values:
        yield f"{_place(path)} is never {', '.join(map(repr, sorted(takes.values)))}"


def _field_problems(gives: Shape, takes: Shape, path: str) -> Iterator[str]:
    found = {name: field for field in gives.fields for name in field.names}
    for field in takes.fields:
        known = [found[name] for name in field.names if name in found]
        if known:
            yield from _value_problems(known[0], field, path)
        elif field.is_certain and not gives.is_open:
            yield f"it lacks {_name(path, field)!r}, which is required"
    if not takes.is_open:
        allowed = {name for field in takes.fields for name in field.names}
        for field in gives.fields:
            if field.is_certain and not allowed & {*field.names}:
                yield f"it always has {_name(path, field)!r}, which is forbidden (extra)"


def _value_problems(given: Field, taken: Field, path: str) -> Iterator[str]:
    """Look into a field that is always there, or that must be: if not, it may be left out.

    One that may have either of two names may be another field's neighbour under this one.
    """
    if len(given.names) == 1 and (given.is_certain or taken.is_certain):
        yield from _problems(given.shape, taken.shape, _name(path, taken))


def _name(path: str, field: Field) -> str:
    return f"{path}.{field.names[0]}" if path else field.names[0]


def _place(path: str) -> str:
    return f"its {path!r}" if path else "it"


def _word(shape: Shape) -> str:
    return _ARTICLES.get(shape.kind, f"a {shape.kind}")
