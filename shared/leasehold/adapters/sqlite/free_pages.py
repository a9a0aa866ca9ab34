"""Free pages of the file: what was deleted leaves them, and they are given back in small parts.

`VACUUM` would write the whole file anew, and keep everybody from it meanwhile. A file that is
made with `auto_vacuum = INCREMENTAL` knows where each page belongs, so its last pages can take the
places of free ones, a few at a time.
"""

from __future__ import annotations

import sqlite3
from typing import Final

#: How many pages are moved in one transaction: 4 MiB, some tens of milliseconds.
_PAGES: Final = 1000

_INCREMENTAL: Final = 2


def keep_track_of_pages(connection: sqlite3.Connection) -> None:
    """Have a file that is made now know where each page belongs; any other stays as it is."""
    connection.execute(f"PRAGMA auto_vacuum = {_INCREMENTAL}")


def give_back_pages(connection: sqlite3.Connection) -> bool:
    """Shorten the file by some of its free pages; return whether there are more."""
    if _number(connection, "auto_vacuum") != _INCREMENTAL:
        return False
    free = _number(connection, "freelist_count")
    for _ in range(min(free, _PAGES)):
        connection.execute("PRAGMA incremental_vacuum(1)")  # of a greater number, Python does one
    return free > _PAGES


def checkpoint_log(connection: sqlite3.Connection) -> None:
    """Write the log into the file, which gets shorter then; nobody is waited for."""
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    (number,) = connection.execute(f"PRAGMA {pragma}").fetchone()
    return int(number)
