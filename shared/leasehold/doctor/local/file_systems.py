"""Which kind of file system a path is on, as Linux tells it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

#: Where two machines may write one file, or locks are not what SQLite needs.
NETWORK: Final = frozenset(
    (
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "glusterfs", "lustre", "9p"),
        *("fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "fuse.glusterfs"),
    )
)
_MOUNTS: Final = Path("/proc/self/mountinfo")


def file_system_of(path: Path) -> str:
    """Return the kind of file system a path is on; empty: it is not known. The path is not opened.

    Only names are compared, as a look at a mount that is dead would hang.
    """
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
    return kind_in(mounts, path.absolute())


def kind_in(mounts: str, path: Path) -> str:
    """Return the kind of the mount that a path is below; a later one lies over an earlier.

    https://docs.kernel.org/filesystems/proc.html#proc-pid-mountinfo-information-about-mounts
    """
    found: tuple[int, str] = (-1, "")
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) > 4 and after:  # noqa: PLR2004 - the fifth is where it is mounted
            point = Path(_unescaped(fields[4]))
            if path.is_relative_to(point) and len(point.parts) >= found[0]:
                found = len(point.parts), after.split(" ")[0]
    return found[1]


def _unescaped(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text
