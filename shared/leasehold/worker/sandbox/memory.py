"""The memory that a process and its descendants take."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from leasehold.worker.sandbox.descendants import descendants_of

_KIB: Final = 1024
_OWN: Final = ("RssAnon:", "RssShmem:", "VmSwap:")
_SHARES: Final = ("Pss_Anon:", "Pss_Shmem:", "SwapPss:")


def memory_of(pid: int) -> int:
    """Return the bytes that a process and its descendants take; 0 where it is not known.

    Counted is what only they can give back: their own pages, shared memory, and what is swapped
    out; not the pages of files (programs, libraries), which the system takes when it needs them.
    What is shared among several is counted once: with descendants, each page is divided by the
    processes that have it. So it is never too much; it may be too little by the pages that the
    process has in common with its fork server.
    """
    own = _sum(f"/proc/{pid}/status", _OWN)
    descendants = descendants_of(pid)
    if not descendants:
        return own
    shares = sum(_sum(f"/proc/{one}/smaps_rollup", _SHARES) for one in [pid, *descendants])
    return max(own, shares)


def _sum(path: str, fields: tuple[str, ...]) -> int:
    try:
        lines = Path(path).read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0
    return _KIB * sum(int(line.split()[1]) for line in lines if line.startswith(fields))
