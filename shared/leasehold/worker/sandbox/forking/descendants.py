"""The processes below a process, read from /proc; where there is none, no one is found."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import suppress


def children_of(pid: int) -> list[int]:
    """Return the pids of the children of all threads of a process, zombies included."""
    if not _kernel_lists_children():
        return [child for child, parent in _parents() if parent == pid]
    children: list[int] = []
    with suppress(OSError):  # it is gone
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - as cheap as can be
            children += map(int, read_file(f"/proc/{pid}/task/{thread}/children").split())
    return children


def own_children(pid: int) -> list[int]:
    """Return the pids of what the main thread of a process started, and of all that it adopted."""
    if not _kernel_lists_children():
        return children_of(pid)
    return list(map(int, read_file(f"/proc/{pid}/task/{pid}/children").split()))


def descendants_of(pid: int) -> list[int]:
    """Return the pids of all processes below a process."""
    found: list[int] = []
    to_visit = children_of(pid)
    while to_visit:
        child = to_visit.pop()
        if child not in found:  # /proc is not a snapshot
            found.append(child)
            to_visit += children_of(child)
    return found


@functools.cache
def _kernel_lists_children() -> bool:
    pid = os.getpid()
    return os.path.exists(f"/proc/{pid}/task/{pid}/children")  # noqa: PTH110 - no pathlib here


def _parents() -> Iterator[tuple[int, int]]:
    """Yield the pid of each process and that of its parent."""
    try:
        names = os.listdir("/proc")  # noqa: PTH208
    except OSError:
        return
    for pid in filter(str.isdecimal, names):
        fields = read_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        if len(fields) > 1:
            yield int(pid), int(fields[1])


def read_file(path: str) -> bytes:
    """Return what a file of /proc says; nothing: its process is gone, or another user's."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return b"".join(iter(functools.partial(os.read, descriptor, 65536), b""))
    except OSError:
        return b""
    finally:
        os.close(descriptor)
