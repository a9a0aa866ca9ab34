"""What Linux does for a process that asks for it; other systems do none of it."""

from __future__ import annotations

import functools
import sys
from typing import Any, Final

_SET_PDEATHSIG: Final = 1
_SET_CHILD_SUBREAPER: Final = 36


def signal_at_parents_death(number: int) -> bool:
    """Have this signal sent when the thread that forked this process ends; False: not here."""
    return _set(_SET_PDEATHSIG, number)


def adopt_orphans() -> bool:
    """Have every orphan below this process become its child; False: not here."""
    return _set(_SET_CHILD_SUBREAPER, 1)


def flush_c() -> None:
    """Have the C library write what it has kept of what was printed; nothing: not here."""
    if (library := _library()) is not None:
        library.fflush(None)


def _set(option: int, value: int) -> bool:
    prctl = _prctl()
    return prctl is not None and prctl(option, value, 0, 0, 0) == 0


@functools.cache
def _prctl() -> Any:
    """Return the function of the C library, or None."""
    import ctypes  # noqa: PLC0415 - the worker, which imports this package too, never needs it

    function = getattr(_library(), "prctl", None)
    if function is None:
        return None
    function.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    return function


@functools.cache
def _library() -> Any:
    """Return the C library, or None."""
    if sys.platform != "linux":
        return None
    import ctypes  # noqa: PLC0415 - as above

    try:
        return ctypes.CDLL(None)
    except OSError:
        return None
