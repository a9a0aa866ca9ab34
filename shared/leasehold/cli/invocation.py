"""How this program is called here, so that the commands it shows work when they are pasted."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

_NAME: Final = "leasehold"


def program() -> tuple[str, ...]:
    """Return the words that call this program again."""
    called = Path(sys.argv[0])
    if called.stem != _NAME:
        return (_near(Path(sys.executable)), "-m", _NAME)
    found = shutil.which(_NAME)
    on_path = found is not None and Path(found).resolve() == called.resolve()
    return (_NAME if on_path else _near(called),)


def shown(*words: str) -> str:
    """Return a command of this program as it is typed from here."""
    return shlex.join([*program(), *words])


def at(url: str | None) -> tuple[str, ...]:
    """Return the words that name the same server again."""
    return () if url is None else ("--url", url)


def _near(path: Path) -> str:
    relative = os.path.relpath(path.absolute())
    return str(path) if relative.startswith("..") else relative
