"""Waits of a handler for a signal: the value where it has come, else the end of the attempt."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pydantic_core
from pydantic import TypeAdapter, ValidationError

from leasehold.attempt.calls import ContextCalls
from leasehold.domain.notes import said
from leasehold.domain.signal import (
    MAX_REFUSAL_CHARS,
    MAX_SIGNAL_WAIT,
    MIN_SIGNAL_WAIT,
    NAME_WORDS,
    Otherwise,
    is_signal_name,
)
from leasehold.errors import (
    MAX_VALUE_SHOWN_CHARS,
    InvalidRequestError,
    SignalAwaitedError,
    WaitTimedOutError,
)
from leasehold.worker.failures.failures import record_of_misfit


def awaited(
    calls: ContextCalls, name: str, model: Any, *, timeout: timedelta | None, otherwise: str
) -> Any:
    """Return a signal, or end the attempt; see `StepContext.wait_for`."""
    _check(name, timeout, otherwise)
    found = calls.find_signal(name)
    if found is not None and found.is_missed:
        if otherwise == Otherwise.CONTINUE.value:
            return None
        raise WaitTimedOutError(name)
    refused = ""
    if found is not None:
        if model is None:
            return pydantic_core.from_json(found.text)
        try:
            return TypeAdapter(model).validate_json(found.text)
        except ValidationError as error:
            misfit = record_of_misfit(error, code="invalid_signal", what=f"The signal {name!r}")
            refused = said(misfit.message)[:MAX_REFUSAL_CHARS]
    raise SignalAwaitedError(
        name,
        timeout_s=None if timeout is None else timeout.total_seconds(),
        otherwise=otherwise,
        model=_path_of(model),
        refused=refused,
    )


def _path_of(model: Any) -> str:
    """Return where a class stands, `module:name`; empty: no other process could find it."""
    if not isinstance(model, type) or "<" in model.__qualname__:
        return ""
    return f"{model.__module__}:{model.__qualname__}"


def _check(name: object, timeout: object, otherwise: object) -> None:
    if not is_signal_name(name):
        raise InvalidRequestError(
            field="name", value=repr(name)[:MAX_VALUE_SHOWN_CHARS], allowed=NAME_WORDS
        )
    is_time = timeout is None or isinstance(timeout, timedelta)
    if not is_time or (
        isinstance(timeout, timedelta) and not MIN_SIGNAL_WAIT <= timeout <= MAX_SIGNAL_WAIT
    ):
        allowed = "a timedelta from 1 s to 10 years, or None"
        raise InvalidRequestError(
            field="timeout", value=repr(timeout)[:MAX_VALUE_SHOWN_CHARS], allowed=allowed
        )
    if otherwise not in {one.value for one in Otherwise}:
        allowed = ", ".join(repr(one.value) for one in Otherwise)
        value = repr(otherwise)[:MAX_VALUE_SHOWN_CHARS]
        raise InvalidRequestError(field="otherwise", value=value, allowed=allowed)
