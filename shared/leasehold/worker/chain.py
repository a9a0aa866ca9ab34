"""Whether what a step gives can be what the next one takes; only what surely fails is a problem."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, Final

from pydantic import TypeAdapter

from leasehold.worker.json_shapes import ANY, Field, Shape, read, written

#: What can be read from what is written, by its kind; a kind that is not here takes itself.
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
_MAX_PROBLEMS: Final = 5

#: A schema of another pydantic raises one of these when it is read: nothing of it is sure.
_OTHER_SCHEMA: Final = (KeyError, TypeError, AttributeError)

#: What `domain/trial_verdict.py` reads.
_VERDICT: Final = Shape(
    "object",
    fields=tuple(
        Field((name,), Shape(kind), is_certain=True)
        for name, kind in (("settled", "boolean"), ("score", "number"), ("findings", "array"))
    ),
)


@functools.cache
def misfit(output: TypeAdapter[Any], given: TypeAdapter[Any]) -> str | None:
    """Return why no output fits what is given, in words; None: some may fit."""
    try:
        gives, takes = written(output.core_schema), read(given.core_schema)
    except _OTHER_SCHEMA:
        return None
    return _words(gives, takes)


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
    shown = problems[:_MAX_PROBLEMS]
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
