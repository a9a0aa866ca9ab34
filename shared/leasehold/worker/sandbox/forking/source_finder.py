"""Imports the project's modules from their sources as a worker read them, whatever is on disk now.

So all attempts of a worker run one code, also those whose process, or whose import, comes after a
deploy into the same folder. Modules outside the project are imported as usual.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from types import ModuleType
from typing import Any, Final, NamedTuple

_PACKAGE: Final = "__init__"


class SourceText(NamedTuple):
    """The source of a module.

    Args:
        path: the file that it was read from.
        text: what was in it.
        changed_ns: when that was last changed.
    """

    path: str
    text: bytes
    changed_ns: int


def dump(files: Mapping[str, SourceText]) -> bytes:
    """Return what `load` reads: the sources by the names of their files, `app/steps.py`.

    A line of JSON says what there is, and the texts follow it as they are: each worker does this,
    and each of its fork servers reads it, so it has to take no time.
    """
    head = json.dumps([[name, it.path, it.changed_ns, len(it.text)] for name, it in files.items()])
    return b"\n".join([head.encode(), b"".join(it.text for it in files.values())])


def load(text: bytes) -> dict[str, SourceText]:
    """Return the sources that `dump` wrote."""
    head, _, texts = text.partition(b"\n")
    files, begin = {}, 0
    for name, path, changed_ns, size in json.loads(head):
        files[name] = SourceText(path, texts[begin : begin + size], changed_ns)
        begin += size
    return files


def install(files: Mapping[str, SourceText]) -> Callable[[], None]:
    """Import the modules of these files from here, in this process; return what ends that.

    Finders that were there before the one of paths come first, as they did.
    """
    finder = SourceFinder(files)
    paths = next((at for at, one in enumerate(sys.meta_path) if one is PathFinder), 0)
    sys.meta_path.insert(paths, finder)

    def remove() -> None:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)

    return remove


class SourceFinder:
    """Finds modules among sources that were read before.

    Args:
        files: the sources, by the names of their files.
    """

    def __init__(self, files: Mapping[str, SourceText]) -> None:
        self._sources = {_module_of(name): file for name, file in files.items()}

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - as finders are asked
        target: ModuleType | None = None,  # noqa: ARG002 - as above
    ) -> ModuleSpec | None:
        """Return how the module is imported; None: it is none of these."""
        source = self._sources.get(name)
        if source is None:
            return None
        folder, file = os.path.split(source.path)
        packages = [folder] if file == f"{_PACKAGE}.py" else None
        loader = _SourceLoader(name, source)
        return spec_from_file_location(
            name, source.path, loader=loader, submodule_search_locations=packages
        )


class _SourceLoader(SourceFileLoader):
    """Gives the text that was read; compiled code only while the file is the one that was read."""

    def __init__(self, name: str, source: SourceText) -> None:
        super().__init__(name, source.path)
        self._source = source

    def get_data(self, path: str) -> bytes:
        return self._source.text if path == self._source.path else super().get_data(path)

    def path_stats(self, path: str) -> Mapping[str, Any]:
        stat = os.stat(path)  # noqa: PTH116 - no pathlib here
        if (stat.st_mtime_ns, stat.st_size) != (self._source.changed_ns, len(self._source.text)):
            raise OSError("the file has changed")  # so what is compiled of it is not looked at
        return {"mtime": stat.st_mtime, "size": stat.st_size}


def _module_of(file: str) -> str:
    parts = file.removesuffix(".py").split("/")
    return ".".join(parts[:-1] if parts[-1] == _PACKAGE else parts)
