"""The generated parts of http-api.md: the calls and the shapes of the API, from their tables.

The tables are `CALLS` of `api/calls.py` and `LEASE_CALLS` of `remote_workers/calls.py`; the shapes
are their models, read as the JSON schemas that pydantic makes of them.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from pydantic import JsonValue, TypeAdapter

from docs.markdown import table
from leasehold.api.call_row import AnyRow, PlainText
from leasehold.api.calls import CALLS
from leasehold.api.errors import ErrorResponse, status_of
from leasehold.api.openapi import meaning_of, path_of
from leasehold.api.request_model import RequestPart, fields_of
from leasehold.api.runs import RunResponse
from leasehold.registry.setting_texts import Right
from leasehold.remote_workers.calls import LEASE_CALLS, LeaseBody

Schema = Mapping[str, Any]

_ALL: Final = (*CALLS, *LEASE_CALLS)

#: Responses without fields that are described here.
_OTHER_ANSWERS: Final[Mapping[Any, str]] = {
    JsonValue: "any JSON value",
    bytes: "the bytes, as `application/octet-stream`",
    PlainText: "a text, as [Prometheus](monitoring.md#prometheus) reads it",
    RunResponse: "the [manifest](manifest.md)",
}
_TYPES: Final[Mapping[str, str]] = {
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "boolean": "boolean",
    "object": "object",
    "null": "null",
}
#: What each call of a worker carries; the release carries nothing else, and describes it.
_LEASE: Final = ("runId", "leaseId", "fencingToken")
_LEASE_ROW: Final = (
    ", ".join(f"`{name}`" for name in _LEASE),
    "as the claim gave them",
    "required",
    "the lease",
)


def calls_of(rows: Iterable[AnyRow]) -> str:
    """Return the calls of a table, one by one; those of one shape together."""
    return "\n\n".join(_group(list(group)) for _, group in groupby(rows, _shape))


def shapes() -> str:
    """Return the fields of a response, and of its parts."""
    return "\n\n".join(
        f"### {name}\n\n{_sentences(schema)}\n\n{_fields_of_answer(name, schema)}"
        for name, schema in sorted(_answered().items())
        if "properties" in schema
    )


def error_statuses() -> str:
    """Return every code that a call answers, with its status."""
    own = {error for call in _ALL for error in call.refuses}
    rows = sorted([f"{status_of(e.code)}", f"`{e.code}`", _first_line(e)] for e in own)
    return table(["status", "code", "meaning"], rows)


def missing_meanings() -> list[str]:
    """Return the fields without a description, as `Shape.field`."""
    found = [
        (model.__name__, name)
        for call in _ALL
        for model in _with_parts(call.takes)
        for name in fields_of(model)
    ]
    found += [
        (name, field) for name, it in _answered().items() for field in it.get("properties", ())
    ]
    return sorted({f"{shape}.{field}" for shape, field in found if not meaning_of(shape, field)})


def _shape(row: AnyRow) -> tuple[object, ...]:
    """Return what calls of one shape have in common; one that takes nothing stands alone."""
    return (row.takes, row.gives, row.refuses) if row.takes else (row.path,)


def _group(rows: Sequence[AnyRow]) -> str:
    row = rows[0]
    heads = " · ".join(f"`{it.method} {path_of(it)}`" for it in rows)
    lines = [f"### {heads}", ""]
    if len(rows) == 1:
        lines += [_says(row), ""]
    else:
        lines += [*(f"- `:{it.path.rpartition(':')[2]}` {_says(it)}" for it in rows), ""]
    if row.takes is not None:
        where = "query" if row.method == "GET" else "body"
        fields = list(_rows_of_request(row.takes))
        lines += [table([f"field of the {where}", "allowed", "default", "meaning"], fields), ""]
    lines.append(f"Answers {_OTHER_ANSWERS.get(row.gives) or _link(row.gives.__name__)}.")
    if row.refuses:
        codes = (f"{status_of(error.code)} `{error.code}`" for error in row.refuses)
        lines.append(f"Refuses with {' · '.join(codes)}.")
    return "\n".join(lines)


def _says(row: AnyRow) -> str:
    """Return what a row does, and what its caller has to be allowed beyond reading."""
    right = row.needs.right
    return row.says if right is Right.READ else f"{row.says} Takes the right to {right}."


def _rows_of_request(model: type[RequestPart], prefix: str = "") -> Iterator[Sequence[str]]:
    """Yield a row for each field: its name, what is allowed, its default, and what it means."""
    schema = model.model_json_schema(by_alias=True)
    of_lease = _LEASE if issubclass(model, LeaseBody) and model is not LeaseBody else ()
    if of_lease:
        yield _LEASE_ROW
    for name, field in fields_of(model).items():
        if name in of_lease:
            continue
        default = schema["properties"][name].get("default")
        shown = "" if default in (None, {}) else f"`{json.dumps(default)}`"
        required = "required" if name in schema.get("required", ()) else shown
        allowed = field.rule.allowed if field.rule else "an object"
        yield f"`{prefix}{name}`", allowed, required, meaning_of(model.__name__, name) or ""
        if field.part is not None:
            yield from _rows_of_request(field.part, f"{prefix}{name}.")


def _with_parts(model: type[RequestPart] | None) -> Iterator[type[RequestPart]]:
    if model is not None:
        yield model
        for field in fields_of(model).values():
            yield from _with_parts(field.part)


def _fields_of_answer(shape: str, schema: Schema) -> str:
    rows = [
        [f"`{name}`", _type_of(field), meaning_of(shape, name) or ""]
        for name, field in schema["properties"].items()
    ]
    return table(["field", "type", "meaning"], rows)


@functools.cache
def _answered() -> Mapping[str, Schema]:
    """Return the schemas of responses and of their parts, by their names."""
    found: dict[str, Schema] = {}
    answers = [ErrorResponse, *(call.gives for call in _ALL)]
    for model in answers:
        if model not in _OTHER_ANSWERS:
            schema = TypeAdapter(model).json_schema(mode="serialization")
            found |= {model.__name__: schema, **schema.get("$defs", {})}
    return found


def _type_of(schema: Schema) -> str:
    """Return the type of a field in words."""
    match schema:
        case {"$ref": ref}:
            return _type_of_named(str(ref).rpartition("/")[2])
        case {"const": value}:
            return f"`{value}`"
        case {"anyOf": options}:
            return " or ".join(_type_of(option) for option in options)
        case {"format": "date-time"}:
            return "time"
        case {"type": "array", "items": items}:
            return f"list of {_type_of(items)}"
    return _TYPES.get(str(schema.get("type")), "any JSON value")


def _type_of_named(name: str) -> str:
    values: Iterable[object] | None = _answered()[name].get("enum")
    if name == "TraceType":
        return "an [event](events.md)"
    return _link(name) if values is None else ", ".join(f"`{value}`" for value in values)


def _link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def _sentences(schema: Schema) -> str:
    return " ".join(str(schema.get("description", "")).split())


def _first_line(documented: object) -> str:
    return (inspect.getdoc(documented) or "").splitlines()[0]
