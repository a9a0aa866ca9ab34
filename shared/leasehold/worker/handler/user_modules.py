"""Modules of the user, imported by name or run: one that raises or exits ends no process.

A module may end the process while it is imported, as a script does, or raise a BaseException.
The importer says so in one line, as for any other module that cannot be imported.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from runpy import run_path
from types import ModuleType
from typing import Any, Final, NoReturn, TypeVar

Made = TypeVar("Made")

_OURS: Final = __name__.partition(".")[0]
#: Who imports now: process and thread, once for each import that is inside another.
_importing: Final[list[tuple[int, int]]] = []
_lock: Final = threading.Lock()


class ImportRaisedError(Exception):
    """A module raised while it was imported: its cause is what it raised."""


def import_users(name: str) -> ModuleType:
    """Import a module of the user's, by its name.

    Raises:
        ImportRaisedError: that raised, whatever it was, or called `os._exit`.
        KeyboardInterrupt: a person wants the process to end.
    """
    return _made(partial(importlib.import_module, name))


def run_users(path: Path) -> Mapping[str, Any]:
    """Run a file of the user's as a module of its name, and return what it has; nothing is kept.

    Raises:
        ImportRaisedError, KeyboardInterrupt: as `import_users`.
    """
    return _made(partial(run_path, str(path), run_name=path.stem))


def _made(make: Callable[[], Made]) -> Made:
    try:
        with _exits_are_errors():
            return make()
    except BaseException as error:
        if _is_interrupt(error):
            raise
        raise ImportRaisedError from error


def _is_interrupt(error: BaseException) -> bool:
    """Return whether it came from outside, by a signal; a class of the user's did not."""
    is_ours = type(error).__module__.partition(".")[0] in ("builtins", _OURS)
    return isinstance(error, KeyboardInterrupt) and is_ours


@contextlib.contextmanager
def _exits_are_errors() -> Iterator[None]:
    """Have `os._exit` raise SystemExit inside, in this thread, as `sys.exit` does.

    A command that ended so would have said nothing, and a check with 0 would count as passed.
    """
    me = (os.getpid(), threading.get_ident())
    with _lock:
        if not _importing:
            os._exit = _end
        _importing.append(me)
    try:
        yield
    finally:
        with _lock:
            _importing.remove(me)
            if not _importing:
                os._exit = _leave


_leave: Final = os._exit


def _end(status: int) -> NoReturn:
    if (os.getpid(), threading.get_ident()) not in _importing:
        _leave(status)  # another thread, or a child that was forked there, means itself
    raise SystemExit(f"os._exit({status})")
