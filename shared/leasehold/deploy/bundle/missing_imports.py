"""What the user's modules import and a bundle does not have."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from typing import Final

from leasehold.deploy.bundle.contents import Contents
from leasehold.deploy.bundle.modules import Modules

#: Whoever catches one of these has something else to do.
_CAUGHT: Final = {"ImportError", "ModuleNotFoundError", "Exception"}


def missing_imports(contents: Contents, folders: tuple[str, ...], modules: Modules) -> list[str]:
    """Return a line for each module that a file of the user imports and that is not there.

    It need not be wrong: a step may import only what another deployment has.
    """
    found: dict[str, str] = {}
    for file, content in contents.items():
        if file.endswith(".py") and file.startswith(folders):
            for line, name in sorted(_imports(_parsed(content))):
                if not modules.have(name):
                    found.setdefault(name.partition(".")[0], f"{file}:{line} imports {name}")
    return [
        f"{place}, which requirements.txt does not bring; if a deployed "
        "step needs it: --extra NAME, or its name in pipelines/requirements.txt"
        for place in found.values()
    ]


def _parsed(content: bytes) -> ast.Module:
    with warnings.catch_warnings(action="ignore"):  # of what the file has in its texts
        return ast.parse(content)


def _imports(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and each name that is imported for certain, also within functions."""
    left: list[ast.AST] = [module]
    while left:
        node = left.pop()
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if not node.level:  # a relative import is of the folder itself
                yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.If) and _is_for_types(node.test):
            left += node.orelse
        elif isinstance(node, ast.Try) and _catches(node):
            left += [*node.orelse, *node.finalbody]
        else:
            left += ast.iter_child_nodes(node)


def _is_for_types(test: ast.expr) -> bool:
    named = [test.id] if isinstance(test, ast.Name) else []
    named += [test.attr] if isinstance(test, ast.Attribute) else []
    return "TYPE_CHECKING" in named


def _catches(node: ast.Try) -> bool:
    """Return whether an import that fails in the block is expected."""
    kinds = [handler.type for handler in node.handlers]
    names = [it.id for kind in kinds if kind for it in ast.walk(kind) if isinstance(it, ast.Name)]
    return None in kinds or not _CAUGHT.isdisjoint(names)
