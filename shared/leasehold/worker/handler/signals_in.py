"""The names of the signals that a handler's code waits for, as far as it says them.

A signal that comes before its wait is kept, so one of a misspelled name would be kept in vain. The
code says which names there are: they are read from it, and none of it is called.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_WAITS: Final = ("wait_for", "await_for")
#: Where one of these is imported, a library names the signals.
_LIBRARY: Final = "leasehold.integrations"


class _Source(NamedTuple):
    """What a module waits for, and what it imports; None: names that it does not spell out."""

    names: frozenset[str | None]
    imports: frozenset[str]


def signals_in(module_name: str) -> frozenset[str] | None:
    """Return the names that a module waits for, with what it imports of its package; None: any.

    Args:
        module_name: a module that is imported.
    """
    top = module_name.partition(".")[0]
    found: set[str | None] = set()
    waiting, seen = [module_name], {module_name}
    while waiting:
        name = waiting.pop()
        module = sys.modules.get(name)
        path = getattr(module, "__file__", None)
        if not path:  # it is a name within a module, or a package without a file
            if name == module_name:
                return None
            continue
        source = _read(path)
        found |= source.names
        more = {one for one in source.imports if one.partition(".")[0] == top} - seen
        waiting += more
        seen |= more
    return None if None in found else frozenset(one for one in found if one is not None)


@functools.cache
def _read(path: str) -> _Source:
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, ValueError, SyntaxError):
        return _Source(frozenset({None}), frozenset())
    imports = frozenset(_imports_of(tree))
    names = {*_names_of(tree)}
    if any(name.startswith(_LIBRARY) for name in imports):
        names.add(None)
    return _Source(frozenset(names), imports)


def _imports_of(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _names_of(tree: ast.AST) -> Iterator[str | None]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        of = node.func.value
        is_of_library = isinstance(of, ast.Name) and of.id == "asyncio"
        if node.func.attr in _WAITS and not is_of_library:
            yield _name_in(node)


def _name_in(call: ast.Call) -> str | None:
    """Return the name that a wait is given; None: the code does not spell it out."""
    named = [one.value for one in call.keywords if one.arg == "name"]
    for given in [*call.args[:1], *named]:
        if isinstance(given, ast.Constant):
            return str(given.value)
    return None
