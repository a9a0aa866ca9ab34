"""The public names of a package whose imports are not installed, as its source defines them.

The integrations import agent libraries, and the environment of the docs has none of them.
"""

from __future__ import annotations
import __future__

import ast
import contextlib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import leasehold

_SHARED: Final = Path(leasehold.__file__).parents[1]
_FLAGS: Final = __future__.annotations.compiler_flag
#: The decorators that stay: they say how a function is called.
_KEPT: Final = {"property", "contextlib.contextmanager"}


def docstring_of(package: str) -> str:
    """Return the docstring of a package."""
    return ast.get_docstring(_tree(package)) or ""


def names_of(package: str) -> Iterator[tuple[str, Any]]:
    """Yield each public name of a package, and its value.

    A name from outside the package is imported from there. Of a definition within it, the value is
    an outline: a function without decorators, or a class without bases and fields.
    """
    tree = _tree(package)
    for name in _all_of(tree):
        origin = _origins(tree)[name]
        is_within = origin.startswith(f"{package}.")
        yield name, _outline(origin, name) if is_within else getattr(import_module(origin), name)


def resolved(module: str, name: str) -> Any:
    """Return what a module means by a name, also where only a checker of types imports it."""
    found = import_module(module)
    if hasattr(found, name):
        return getattr(found, name)
    return getattr(import_module(_origins(_tree(module))[name]), name)


def _origins(tree: ast.Module) -> dict[str, str]:
    """Return the module from which each name is imported."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def _tree(module: str) -> ast.Module:
    path = _SHARED / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))


def _all_of(tree: ast.Module) -> list[str]:
    (names,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    return list(ast.literal_eval(names))


def _outline(module: str, name: str) -> Any:
    (node,) = (each for each in _tree(module).body if getattr(each, "name", None) == name)
    reduced = ast.Module([_reduced(node)], [])
    names = {"__name__": module, "contextlib": contextlib}
    code = compile(reduced, module, "exec", flags=_FLAGS, dont_inherit=True)
    exec(code, names)  # noqa: S102 - our own source; only `inspect` looks at what it defines
    return names[name]


def _reduced(node: ast.stmt) -> ast.stmt:
    """Return a definition without all that refers to other modules; nothing calls a body."""
    if isinstance(node, ast.ClassDef):
        node.bases, node.keywords, node.decorator_list = [], [], []
        functions = [
            it for it in node.body if isinstance(it, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        node.body = [node.body[0], *map(_reduced, functions)]
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        node.decorator_list = [it for it in node.decorator_list if ast.unparse(it) in _KEPT]
    return node
