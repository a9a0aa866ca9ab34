"""What the user's modules import and a bundle does not have."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from infra.bundle.contents import Contents
from infra.bundle.modules import Modules

#: Whoever catches one of these has something else to do.
_CAUGHT: Final = {"ImportError", "ModuleNotFoundError", "Exception"}


def missing_imports(contents: Contents, folders: tuple[str, ...], modules: Modules) -> list[str]:
    """Return a line for each module that a file of the user imports and that is not there.

    It need not be wrong: a step may import only what another deployment has.
    """
    found: dict[str, str] = {}
    for file, content in contents.items():
        if file.endswith(".py") and file.startswith(folders):
            for name, line in _imports(ast.parse(content).body):
                if not modules.have(name):
                    found.setdefault(name.partition(".")[0], f"{file}:{line} imports {name}")
    return [
        f"{place}, which requirements.txt does not bring; if a deployed "
        "step needs it: --extra NAME, or its name in pipelines/requirements.txt"
        for place in found.values()
    ]


def _imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, int]]:
    """Yield each name that is imported for certain, also within functions, and its line."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if not node.level:  # a relative import is of the folder itself
                yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            yield from _imports(node.orelse)
        elif isinstance(node, ast.Try) and _catches(node):
            yield from _imports([*node.orelse, *node.finalbody])
        else:
            yield from _imports(ast.iter_child_nodes(node))


def _catches(node: ast.Try) -> bool:
    """Return whether an import that fails in the block is expected."""
    kinds = [handler.type for handler in node.handlers]
    names = [it.id for kind in kinds if kind for it in ast.walk(kind) if isinstance(it, ast.Name)]
    return None in kinds or not _CAUGHT.isdisjoint(names)
