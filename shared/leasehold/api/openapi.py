"""The specification of the calls as OpenAPI 3.1: written by the tables of calls, and by no one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from typing import Any, Final

from pydantic import BaseModel, JsonValue
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from leasehold.api.call_row import ACTOR_HEADER, AnyRow
from leasehold.api.errors import ErrorResponse, status_of
from leasehold.api.field_meanings import meaning_of
from leasehold.api.request_model import fields_of
from leasehold.errors import InvalidRequestError, LeaseholdError, StoreUnavailableError

Json = dict[str, Any]

_PLACE: Final = re.compile(r"<(?:path:)?(\w+)>")
_REF: Final = "#/components/schemas/{model}"
_JSON: Final = "application/json"

#: What each part of a path is.
_PLACES: Final[Mapping[str, str]] = {
    "runId": "the id of a run",
    "step": "a step type",
    "name": "the name of a file; it may have `/`, as they are",
}
#: Any call may refuse what it takes, and any store may be away.
_ANY: Final = (InvalidRequestError, StoreUnavailableError)


def path_of(row: AnyRow) -> str:
    """Return the path of a row as people read it: `/runs/{runId}`."""
    return _PLACE.sub(lambda place: f"{{{to_camel(place[1])}}}", row.path)


def specification(rows: Sequence[AnyRow]) -> Json:
    """Return the specification of these calls, as JSON has it."""
    schemas = _Schemas(rows)
    by_path = groupby(sorted(rows, key=path_of), path_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Leasehold",
            "version": _version(),
            "description": "Durable multi-step pipelines: runs, what people do to them, and what "
            "they gave. An error is an ErrorResponse; its `code` says which.",
        },
        "paths": {
            path: {row.method.lower(): _operation(row, schemas) for row in found}
            for path, found in by_path
        },
        "components": {
            "schemas": schemas.all,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An ID token of Google's, where functions are deployed; "
                    "`leasehold serve` and `leasehold dev` ask for none.",
                }
            },
        },
        "security": [{}, {"token": []}],
    }


class _Schemas:
    """The schemas of what rows take and give, by their models."""

    def __init__(self, rows: Sequence[AnyRow]) -> None:
        wanted: dict[tuple[type[BaseModel], JsonSchemaMode], None] = {
            (ErrorResponse, "serialization"): None
        }
        for row in rows:
            if row.takes is not None:
                wanted[row.takes, "validation"] = None
            if row.gives not in (JsonValue, bytes):
                wanted[row.gives, "serialization"] = None
        self._refs, found = models_json_schema(list(wanted), by_alias=True, ref_template=_REF)
        self.all: Json = {
            name: _described(name, schema) for name, schema in sorted(found["$defs"].items())
        }

    def taken(self, model: type[BaseModel]) -> Json:
        """Return the schema of a body."""
        return self._refs[model, "validation"]

    def given(self, model: Any) -> Json:
        """Return the schema of an answer; that of any JSON says nothing."""
        return {} if model is JsonValue else self._refs[model, "serialization"]

    def fields(self, model: type[BaseModel]) -> Json:
        """Return the fields of a query."""
        name = self.taken(model)["$ref"].rpartition("/")[2]
        fields: Json = self.all[name]["properties"]
        return fields


def _described(shape: str, schema: Json) -> Json:
    """Return the schema of a shape with what its fields mean."""
    fields = {
        name: {**field, "description": words}
        if (words := meaning_of(shape, name)) and "$ref" not in field
        else field
        for name, field in schema.get("properties", {}).items()
    }
    return {**schema, "properties": fields} if fields else schema


def _operation(row: AnyRow, schemas: _Schemas) -> Json:
    operation: Json = {
        "operationId": row.name,
        "summary": row.says,
        "x-leasehold-right": row.needs.right.value,
        "responses": _responses(row, schemas),
    }
    if parameters := list(_parameters(row, schemas)):
        operation["parameters"] = parameters
    if row.method == "POST" and row.takes is not None:
        content = {_JSON: {"schema": schemas.taken(row.takes)}}
        operation["requestBody"] = {"content": content, "required": _is_required(row.takes)}
    return operation


def _is_required(model: type[BaseModel]) -> bool:
    return any(field.is_required() for field in model.model_fields.values())


def _parameters(row: AnyRow, schemas: _Schemas) -> Iterator[Json]:
    for place in _PLACE.findall(row.path):
        name = to_camel(place)
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PLACES[name],
            "schema": {"type": "string"},
        }
    if row.method == "GET" and row.takes is not None:
        for name in fields_of(row.takes):
            schema = dict(schemas.fields(row.takes)[name])
            words = schema.pop("description", "")
            yield {"name": name, "in": "query", "description": words, "schema": schema}
    if row.names_actor:
        words = "who asks, for the trace of the run; in UTF-8"
        schema = {"type": "string"}
        yield {"name": ACTOR_HEADER, "in": "header", "description": words, "schema": schema}


def _responses(row: AnyRow, schemas: _Schemas) -> Json:
    kind = "application/octet-stream" if row.gives is bytes else _JSON
    content = {} if row.gives is bytes else {"schema": schemas.given(row.gives)}
    done: Json = {"description": HTTPStatus.OK.phrase, "content": {kind: content}}
    found: Json = {"200": done}
    if row.creates:
        found["201"] = {**done, "description": HTTPStatus.CREATED.phrase}
    error = {"content": {_JSON: {"schema": schemas.given(ErrorResponse)}}}
    for status, errors in _by_status({*row.refuses, *_ANY}):
        codes = ", ".join(f"`{each.code}`" for each in errors)
        found[str(status)] = {"description": codes, **error}
    return {**found, "default": {"description": "any other error", **error}}


def _by_status(
    errors: Iterable[type[LeaseholdError]],
) -> Iterator[tuple[int, list[type[LeaseholdError]]]]:
    def status(error: type[LeaseholdError]) -> int:
        return status_of(error.code)

    ordered = sorted(errors, key=lambda error: (status(error), error.code))
    return ((code, list(found)) for code, found in groupby(ordered, status))


def _version() -> str:
    try:
        return version("leasehold")
    except PackageNotFoundError:  # it runs from a folder, as a function does
        return "0"
