"""Values of users as JSON text, by the models that they are annotated with."""

from __future__ import annotations

from typing import Any

import pydantic_core
from pydantic import TypeAdapter

from leasehold.domain.json_text import check_depth


def json_text_of(model: TypeAdapter[Any], value: Any, *, round_trip: bool = False) -> str:
    """Return a value of a user's as its model has it, as JSON text.

    Args:
        model: what it is to fit.
        value: the value.
        round_trip: for the same model to read it again.

    Raises:
        ValidationError: it does not fit.
        ValueError, RecursionError: JSON has no such value, or it is nested too deep.
    """
    fitting = model.validate_python(value)
    by_alias = True if round_trip else None
    text = model.dump_json(fitting, by_alias=by_alias, round_trip=round_trip).decode()
    _refuse_nan(fitting)  # what is read but once, such as a generator, is in the text by now
    check_depth(text)
    return text


def _refuse_nan(value: Any) -> None:
    """Raise ValueError for NaN and infinity: JSON has neither, and null would hide them."""
    text = pydantic_core.to_json(value, inf_nan_mode="constants", fallback=repr)
    if b"NaN" in text or b"Infinity" in text:
        try:
            pydantic_core.from_json(text, allow_inf_nan=False)  # they may stand within a string
        except ValueError:
            raise ValueError("it holds NaN or infinity, which JSON does not have") from None
