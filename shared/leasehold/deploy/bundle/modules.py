"""Which modules a bundle can import. It stands on Python alone: `import_check.py` says why."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from importlib.abc import MetaPathFinder
from pathlib import PurePosixPath
from typing import Any, Final

_SUFFIXES: Final = (".py", ".so", ".pyd")


class Modules(MetaPathFinder):
    """The modules of some files.

    As the first finder of a process it finds nothing, and hides all others from those after it.

    Args:
        files: paths below the folders that are searched for modules.
    """

    def __init__(self, files: Iterable[str]) -> None:
        self.names = frozenset(_names(map(PurePosixPath, files)))
        self._namespaces = frozenset(folder for it in self.names for folder in _packages_of(it))

    def have(self, name: str) -> bool:
        """Return whether there is a module of that name, or one that may define it."""
        if _is_of_python(name.partition(".")[0]) or name in self._namespaces:
            return True
        return name in self.names or not self.names.isdisjoint(_packages_of(name))

    def find_spec(self, fullname: str, *_given: Any) -> None:
        """Return None, so that the next finder is asked.

        Raises:
            ModuleNotFoundError: it is none of these modules.
        """
        if not self.have(fullname):
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def _is_of_python(name: str) -> bool:
    return name in sys.stdlib_module_names or name.startswith("_sysconfigdata_")


def _names(files: Iterable[PurePosixPath]) -> Iterator[str]:
    for file in files:
        if file.suffix in _SUFFIXES and ".." not in file.parts:
            stem = file.name.partition(".")[0]
            yield ".".join(file.parts[:-1] if stem == "__init__" else (*file.parts[:-1], stem))


def _packages_of(name: str) -> Iterator[str]:
    """Yield the names of the packages that a module is in."""
    parts = name.split(".")
    yield from (".".join(parts[:length]) for length in range(1, len(parts)))
