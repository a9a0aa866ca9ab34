"""How long an import takes: Python looks for garbage again and again, and finds none."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_looks_for_garbage() -> Iterator[None]:
    """Look for no garbage while modules are imported, of which that makes next to none.

    A fifth of the time of a short command went into it. Modules stay for as long as the process, so
    no later look goes through them either. A project that switches them off for good is left to it.
    """
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        yield
    finally:
        gc.freeze()
        if gc.get_threshold()[0] == 0:  # else a project has set another one
            gc.set_threshold(*before)
