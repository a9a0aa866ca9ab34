"""Where a module is imported: a worker looks at the models of handlers, and calls none of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

#: The variable that names the worker's pid, while there is one.
WORKER: Final = "HOSTILE_IMPORTS_WORKER"
#: Another, for the folder in which processes note that they are there.
NOTES: Final = "HOSTILE_IMPORTS_NOTES"


def in_sandbox() -> bool:
    """Return whether this is neither the worker nor a process that has none, such as a test's."""
    return os.environ.get(WORKER, str(os.getpid())) != str(os.getpid())


def note() -> None:
    """Note this process."""
    (Path(os.environ[NOTES]) / str(os.getpid())).touch()
