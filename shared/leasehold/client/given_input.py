"""The input of a run as a program gives it: a model, or any value that JSON has."""

from __future__ import annotations

from typing import Any, Final

import pydantic_core

from leasehold.domain.json_text import canonical
from leasehold.errors import InvalidRequestError

_MAX_SHOWN: Final = 200


def plain_input(value: Any) -> Any:
    """Return the JSON value of an input; models are written under their aliases.

    Raises:
        InvalidRequestError: JSON has no such value.
    """
    try:
        plain = pydantic_core.to_jsonable_python(value, by_alias=True, round_trip=True)
        canonical(plain)
    except (ValueError, TypeError, RecursionError) as error:
        allowed = f"a pydantic model, or a JSON value ({error})"
        shown = f"{type(value).__name__}: {value!r}"[:_MAX_SHOWN]
        raise InvalidRequestError(field="input", value=shown, allowed=allowed) from None
    return plain
