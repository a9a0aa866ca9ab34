"""The project's own sources, as they were when this process read them: their text and its hash.

They are found by names alone; nothing is imported for it.
"""

# ruff: noqa: PTH112, PTH113, PTH116, PTH118, PTH120, PTH123 - each cold start does this: in a hurry

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Final, NamedTuple, Self

from leasehold.frozen import dataclass
from leasehold.registry.dispatch import REMOTE
from leasehold.registry.pipelines import Catalog
from leasehold.worker.sandbox.forking.source_finder import SourceText

#: Names that a file may import: enough to see which other packages of the project it needs.
#: They are looked for behind the ends of lines: with `^`, all of it took three times as long.
_IMPORT: Final = re.compile(rb"\n[ \t]*(?:from|import)[ \t]+(\w+)")
#: The same where an import stands by itself: without it, the file cannot be imported.
_NEEDED: Final = re.compile(rb"^(?:from|import)[ \t]+(\w+)", re.MULTILINE)
_NOT_THE_USERS: Final = sys.stdlib_module_names | {"leasehold", "__main__"}
_INSTALLED: Final = {sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")}
_DIGITS: Final = 16


class _Read(NamedTuple):
    """A file as it was read, what its text comes to, and the packages that it may import."""

    source: SourceText
    digest: bytes
    imports: frozenset[str]


@dataclass(frozen=True, slots=True)
class ProjectSources:
    """The files of the packages that a catalog names, and of those beside them that they import.

    Args:
        files: by the name of the file as modules are named: `pipelines/review/agent.py`.
        code_hash: a hash of names and texts, the same wherever these files are; empty: there are
            none.
        modules: those that the catalog names.
    """

    files: Mapping[str, SourceText] = field(repr=False)  # the text is the user's own
    code_hash: str = ""
    modules: frozenset[str] = frozenset()

    @classmethod
    def of(cls, catalog: Catalog, catalog_name: str = "") -> Self:
        """Read the sources of a catalog; what cannot be found or read is not among them.

        Args:
            catalog: names handlers, gates, senders and models.
            catalog_name: the module that it was loaded from; empty: none.
        """
        paths = [catalog_name, *_paths(catalog)]
        return cls._of_modules(frozenset(path.partition(":")[0] for path in paths) - {""})

    @classmethod
    def _of_modules(cls, modules: frozenset[str]) -> Self:
        read = dict(sorted(_read({module.partition(".")[0] for module in modules})))
        return cls({name: one.source for name, one in read.items()}, _hash_of(read), modules)

    def read_again(self) -> Self:
        """Return the sources of the same packages as they are now."""
        return self._of_modules(self.modules)

    def missing(self) -> Iterator[str]:
        """Yield a line for each module that the catalog names, or that one of these imports first.

        Nothing is imported: it is what can be known of a function that runs no handlers.
        """
        own = {name.partition("/")[0].removesuffix(".py") for name in self.files}
        for module in sorted(self.modules):
            stem = module.replace(".", "/")
            name = next(
                (it for it in (f"{stem}.py", f"{stem}/__init__.py") if it in self.files), ""
            )
            if not name and module.partition(".")[0] in own:
                yield f"the catalog names {module!r}, which is not here: the steps of it block"
            needed = (
                {it.decode() for it in _NEEDED.findall(self.files[name].text)} if name else set()
            )
            for package in sorted(needed - own - _NOT_THE_USERS):
                if not _places_of(package):
                    yield f"{name} imports {package!r}, which is not installed: its steps block"

    def unreadable(self) -> Iterator[str]:
        """Yield a line for each file that is not Python; none is imported."""
        for name, file in self.files.items():
            try:
                with warnings.catch_warnings(action="ignore"):
                    compile(file.text, name, "exec", dont_inherit=True)
            except (SyntaxError, ValueError) as error:
                line = error.lineno if isinstance(error, SyntaxError) else None
                place = f"{name}:{line}" if line else name
                why = error.msg if isinstance(error, SyntaxError) else str(error)
                yield f"{place} is not Python ({why}): the steps that import it block"

    def has_changed(self) -> bool:
        """Return whether a file on disk is another one than was read."""
        return any(_changed_ns(file.path) != file.changed_ns for file in self.files.values())


NO_SOURCES: Final = ProjectSources({})


def _hash_of(read: Mapping[str, _Read]) -> str:
    total = hashlib.sha256()
    for name, one in read.items():
        total.update(f"{name}\0".encode())
        total.update(one.digest)
    return total.hexdigest()[:_DIGITS] if read else ""


def _changed_ns(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None


def _paths(catalog: Catalog) -> Iterator[str]:
    """Yield each `module:name` of a catalog."""
    for step in catalog.steps:
        yield from (step.output, *step.entry_actions)
        if step.handler != REMOTE:
            yield step.handler
    yield from (gate.check for gate in catalog.gates)
    yield from (one.function for one in catalog.channels if one.function)


def _read(names: Iterable[str]) -> Iterator[tuple[str, _Read]]:
    """Yield the files of packages, and of those in the same folders that these import."""
    seen = {*_NOT_THE_USERS}
    folders: dict[str, None] = {}
    waiting = [(name, _places_of(name)) for name in sorted({*names} - seen - {""})]
    while waiting:
        imported: set[str] = set()
        for name, places in waiting:
            seen.add(name)
            for place in places:
                folders.setdefault(os.path.dirname(place))
                for file, found in _files_at(place, name):
                    imported |= found.imports
                    yield file, found
        own = [folder for folder in folders if folder not in _INSTALLED]
        waiting = [(name, _beside(name, own)) for name in sorted(imported - seen)]


def _places_of(name: str) -> list[str]:
    """Return where a package or a module lies; it is not imported."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # nothing of that name, or a module that was made up
        return []
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        return list(spec.submodule_search_locations)
    return [spec.origin] if spec.origin is not None and spec.has_location else []


def _beside(name: str, folders: Iterable[str]) -> list[str]:
    """Return where a package or a module of the project lies."""
    for folder in folders:
        place = os.path.join(folder, name)
        if os.path.isdir(place):
            return [place]
        if os.path.isfile(f"{place}.py"):
            return [f"{place}.py"]
    return []


def _files_at(place: str, name: str) -> Iterator[tuple[str, _Read]]:
    """Yield the files of a package or a module, with their names from the package on."""
    if not os.path.isdir(place):
        if place.endswith(".py") and (found := _file(place)):
            yield f"{name}.py", found
        return
    with os.scandir(place) as entries:
        for entry in entries:
            inner = f"{name}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if entry.name.isidentifier() and entry.name != "__pycache__":
                    yield from _files_at(entry.path, inner)
            elif entry.name.endswith(".py") and (found := _file(entry.path)):
                yield inner, found


def _file(path: str) -> _Read | None:
    """Return a file as it is now; it is read again only where it has changed."""
    try:
        stat = os.stat(path)
        version = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if (known := _KNOWN.get(path)) and known[0] == version:
            return known[1]
        with open(path, "rb") as file:
            text = file.read()
    except OSError:  # it was deleted meanwhile, or cannot be read
        return None
    imports = frozenset(name.decode() for name in {*_IMPORT.findall(b"\n" + text)})
    source = SourceText(path, text, stat.st_mtime_ns)
    read = _Read(source, hashlib.sha256(text).digest(), imports)
    _KNOWN[path] = (version, read)
    return read


#: What was read in this process, by path: several engines in it read each file once.
_KNOWN: Final[dict[str, tuple[tuple[int, int, int], _Read]]] = {}
