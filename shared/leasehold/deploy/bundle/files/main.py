"""The functions of this bundle: functions-framework gets from here the one that it is to serve.

An entry is imported when its function is asked for, so an instance imports its own alone; an
import of this module without FUNCTION_TARGET imports none.
"""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType

from leasehold.imports import without_looks_for_garbage
from leasehold.registry.function_table import FUNCTIONS

#: The framework takes it for gunicorn's `timeout` once this module is imported. gunicorn would kill
#: a worker that was silent for this time, and all are while an instance is idle and has no CPU: the
#: first request after that would meet the kill. Cloud Run itself ends a request that is too long.
os.environ["CLOUD_RUN_TIMEOUT_SECONDS"] = "0"


def __getattr__(name: str) -> object:
    """Return the function of that name: the framework serves no other kind of object."""
    if name not in FUNCTIONS:
        raise AttributeError(name=name)
    try:
        return getattr(_entry(name), name)
    except AttributeError as error:  # which would be taken for "there is no such function"
        raise ImportError(f"functions/{name}.py: {error!r}") from error


def _entry(name: str) -> ModuleType:
    with without_looks_for_garbage():
        return import_module(f"functions.{name}")


def __dir__() -> list[str]:
    """Return the names of the functions, for the message of the framework about a wrong one."""
    return list(FUNCTIONS.keys())
