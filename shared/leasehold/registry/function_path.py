"""A function that an entry is given in place of its path: `handler=ask` for `"shop.steps:ask"`.

An entry keeps the path, which its own process can import; the function is for editors and type
checkers, which follow it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final

#: A handler `(ctx, given)`, or a gate `(ctx, output)`, sync or async.
UserFunction = Callable[[Any, Any], object]

FUNCTION_WORDS: Final = (
    "a function that stands in a module under its own name (no lambda, partial, method or function "
    "within another)"
)


def path_of(given: object) -> object:
    """Return the path `module:function` of a function; any other value stays as it is.

    Raises:
        ValueError: the function cannot be found by a path; its words name it.
    """
    if not isinstance(given, FunctionType):
        return given
    module, name = given.__module__, given.__qualname__
    path = f"{module}:{name}"
    if not name.isidentifier() or getattr(sys.modules.get(module), name, None) is not given:
        raise ValueError(path)
    return path
