"""Which modules a bundle can import. It stands on Python alone: `import_check.py` says why."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from importlib.abc import MetaPathFinder
from typing import Any, Final

_SUFFIXES: Final = (".py", ".so", ".pyd")


class Modules(MetaPathFinder):
    """The modules of some files.

    As the first finder of a process it finds nothing, and hides all others from those after it.

    Args:
        files: paths below the folders that are searched for modules.
    """

    def __init__(self, files: Iterable[str]) -> None:
        self.names = frozenset(_names(files))
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


def _names(files: Iterable[str]) -> Iterator[str]:
    for file in files:  # of thousands, three times a bundle: `pathlib` takes a second for them
        *folders, name = file.split("/")
        if name.endswith(_SUFFIXES) and ".." not in folders:
            stem = name.partition(".")[0]
            yield ".".join(folders if stem == "__init__" else (*folders, stem))


def _packages_of(name: str) -> Iterator[str]:
    """Yield the names of the packages that a module is in."""
    parts = name.split(".")
    yield from (".".join(parts[:length]) for length in range(1, len(parts)))
