"""Code of users, as far as it can be known without calling it: a handler, a gate, or any call."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from pydantic import TypeAdapter


def unwrapped(call: Any) -> Any:
    """Return what is behind a partial."""
    while isinstance(call, functools.partial):
        call = call.func
    return call


def code_of(call: Any) -> Any:
    """Return the function, method or class that a call comes to: it has the annotations.

    Args:
        call: what can be called; of an object that can, it is its `__call__`.
    """
    function = unwrapped(call)
    is_code = inspect.isroutine(function) or inspect.isclass(function)
    return function if is_code else function.__call__


def adapter_of(annotation: Any) -> TypeAdapter[Any]:
    """Return what reads and writes values of an annotation.

    Raises:
        Exception: whatever pydantic, or code of the user's, says of one that cannot be used; also
            where it has an unknown name in it.
    """
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    adapter.rebuild(raise_errors=True)
    return adapter


def first_sentence(error: Exception) -> str:
    """Return the first sentence of an error: pydantic adds advice and an address."""
    return (str(error).splitlines() or [type(error).__name__])[0].partition(". ")[0]
