"""The memory that a process and its descendants take, as far as this machine tells it."""

from __future__ import annotations

import functools
import os
import re
import resource
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

# The processes below a process, read from /proc; where there is none, none is found.


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


_KIB: Final = 1024
_OF_MACHINE: Final = re.compile(r"^(MemTotal|MemAvailable): +(\d+) kB$", re.MULTILINE)
_SHORT_SHARE: Final = 0.05
#: Of what kinds a process has pages, in kB.
_OWN: Final = re.compile(r"^(?:RssAnon|RssShmem|VmSwap):\s+(\d+) kB$", re.MULTILINE)
_RESIDENT: Final = re.compile(r"^VmRSS:\s+(\d+) kB$", re.MULTILINE)
_SHARES: Final = re.compile(r"^(?:Pss_Anon|Pss_Shmem|SwapPss):\s+(\d+) kB$", re.MULTILINE)
#: Of `smaps`: the line of a mapping, and how much of it is there, and is no file's.
_MAPPINGS: Final = re.compile(
    r"^(?:[0-9a-f]+-[0-9a-f]+ ...(?P<sharing>[ps]) \S+ \S+ \d+ *(?P<path>.*)"
    r"|(?P<field>Rss|Anonymous): +(?P<kib>\d+) kB)$",
    re.MULTILINE,
)
#: The paths of memory that processes share; what else is shared is of a file on a disk.
_MEMORY: Final = ("/dev/zero", "/dev/shm/", "/memfd:", "/SYSV")  # noqa: S108 - nothing is opened


def memory_of(pid: int) -> int:
    """Return the bytes that a process and its descendants take; 0: it is gone, or unknown.

    Counted is what only they can give back: their own pages, shared memory, and what is swapped
    out; not the pages of files (programs, libraries), which the system takes when it needs them.
    What is shared among several is counted once: with descendants, each page is divided by the
    processes that have it. So it is never too much; it may be too little by the pages that the
    process has in common with its fork server.

    gVisor, in the first-generation environment of Cloud Run, divides nothing: there a page counts
    in each process that has it.
    """
    own = _own(pid)
    descendants = descendants_of(pid)
    if not descendants:
        return own
    return max(own, sum(map(_share, [pid, *descendants])))


@functools.cache
def is_memory_told() -> bool:
    """Return whether this machine tells at all how much memory a process takes."""
    return _own(os.getpid()) > 0


def takes_more_than(pid: int, most: int) -> bool:
    """Return whether a process without descendants takes more bytes than so many.

    It takes no more than it has addresses; what it takes of them, the system needs longer to tell.
    """
    pages, *_ = read_file(f"/proc/{pid}/statm").split() or (b"0",)
    has_few = 0 < int(pages) * resource.getpagesize() <= most
    return not has_few and _own(pid) > most


def is_memory_short() -> bool:
    """Return whether little is left of this machine's memory: what need not be there should go."""
    sizes = {name: int(kib) for name, kib in _OF_MACHINE.findall(_text("/proc/meminfo"))}
    available = sizes.get("MemAvailable")
    return available is not None and available < _SHORT_SHARE * sizes.get("MemTotal", 0)


def own_bytes(status: str, read_smaps: Callable[[], str]) -> int:
    """Return the bytes that a process takes, by the first text that tells them; 0: none does.

    Args:
        status: `/proc/PID/status`. Linux tells there what is not of files; gVisor does not.
        read_smaps: returns `/proc/PID/smaps`, which is long, and not always readable.
    """
    own = _sum(_OWN, status)
    if own is None:
        own = _own_of_mappings(read_smaps())
    if own is None:
        own = _sum(_RESIDENT, status)  # with the pages of files: rather too much than nothing
    return own or 0


def _own_of_mappings(smaps: str) -> int | None:
    """Return the bytes of private pages and of shared memory; None: it tells nothing."""
    counted, sizes = "Anonymous", list[int]()
    for line in _MAPPINGS.finditer(smaps):
        if line["sharing"]:
            is_shared = line["sharing"] == "s" and line["path"].startswith(_MEMORY)
            counted = "Rss" if is_shared else "Anonymous"
        elif line["field"] == counted:
            sizes.append(int(line["kib"]))
    return _KIB * sum(sizes) if sizes else None


def _own(pid: int) -> int:
    return own_bytes(_read(pid, "status"), functools.partial(_read, pid, "smaps"))


def _share(pid: int) -> int:
    """Return its pages, each divided by the processes that have it, where the system does that."""
    rollup = _read(pid, "smaps_rollup")
    is_divided = "Pss_Anon:" in rollup  # Linux before 5.4 has the file, and not its kinds
    return (_sum(_SHARES, rollup) if is_divided else None) or _own(pid)


def _sum(fields: re.Pattern[str], text: str) -> int | None:
    """Return the bytes of these fields; None: none of them is there."""
    found = fields.findall(text)
    return _KIB * sum(map(int, found)) if found else None


def _read(pid: int, name: str) -> str:
    """Return what a file of a process says; nothing: it is gone, or another user's."""
    return _text(f"/proc/{pid}/{name}")


def _text(path: str) -> str:
    return read_file(path).decode("ascii", "replace")
