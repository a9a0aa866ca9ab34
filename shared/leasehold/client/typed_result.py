"""The result of a run as a model has it."""

from __future__ import annotations

from typing import Any, TypeVar

import pydantic_core
from pydantic import TypeAdapter, ValidationError

from leasehold.errors import ResultMismatchError

T = TypeVar("T")


def read_as(model: type[T], value: Any, run_id: str) -> T:
    """Return a JSON value as a model has it, or raise ResultMismatchError."""
    try:
        return TypeAdapter(model).validate_json(pydantic_core.to_json(value))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "it"
        name = getattr(model, "__name__", str(model))
        problem = f"{place}: {first['msg']}"
        raise ResultMismatchError(run_id=run_id, model=name, problem=problem) from None
