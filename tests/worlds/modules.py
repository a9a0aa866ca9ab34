"""The modules of a package, by its files: to look for them imports none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

#: What needs an agent library, which is in its own environment alone.
_OF_LIBRARIES: Final = ("integrations/*/*", "library_agent.py")


def modules_of(package: ModuleType) -> Iterator[str]:
    """Yield the names of all modules of a package, but for those of agent libraries."""
    (folder,) = package.__path__
    for file in sorted(Path(folder).rglob("*.py")):
        within = file.relative_to(folder)
        parts = within.with_suffix("").parts
        is_module = all(part.isidentifier() for part in parts)  # and in no folder of templates
        if is_module and not any(map(within.match, _OF_LIBRARIES)):
            yield ".".join([package.__name__, *parts]).removesuffix(".__init__")
