"""Where the runs are, and whether there is anything: no store is opened to know it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from leasehold.registry.settings import read_settings


def store_address(environ: Mapping[str, str] | None = None) -> str:
    """Return where the runs are.

    Args:
        environ: the settings; None: those of the process.
    """
    return str(read_settings(os.environ if environ is None else environ)["LEASEHOLD_STORE"])


def store_exists(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether there is a store to read, or something in its place that is in the way.

    Args:
        environ: the settings; None: those of the process.
    """
    address = store_address(environ)
    if not address.startswith("sqlite:"):
        return True
    path = Path(address.removeprefix("sqlite:///"))
    try:
        return path.exists() or any(parent.is_file() for parent in path.parents)
    except OSError:
        return True  # opening it says what is wrong
