"""The Markdown files of a folder, within bounds; what is left out becomes a finding.

Nothing outside the folder is read: no link is followed, not even one that is put in the place of a
folder between the search and the reading.
"""

import errno
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from leasehold import PermanentError
from pipelines.review.findings import finding
from pipelines.review.models import Finding, ReviewInput

SUFFIXES: Final = frozenset({".md", ".markdown", ".mkd"})
#: Folders of things that were installed or built, which are not the reader's own documents.
_NOT_OWN = (
    "_build bower_components build dist htmlcov node_modules out site-packages target third_party "
    "vendor venv"
)
NOT_OWN: Final = frozenset(_NOT_OWN.split())
MAX_ENTRIES: Final = 200_000  # files and folders looked at, so that `/` ends, too
MAX_DEPTH: Final = 40  # folders in folders
MAX_FINDINGS: Final = 500  # about files that are not read; more are counted

_FOLDER: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW
#: Without waiting: a pipe without a writer would never answer.
_FILE: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK | os.O_NOFOLLOW


@dataclass(slots=True)
class MarkdownFiles:
    """The files to read, by their paths below the root, and what is not read."""

    root: Path
    files: list[str] = field(default_factory=list)
    skipped_folders: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def note(self, code: str, path: str | None, message: str) -> None:
        """Keep a finding; of a name that is not UTF-8, what can be shown."""
        readable = path and os.fsencode(path).decode(errors="replace")
        self.findings.append(finding(code, message, document=readable))


def find_markdown(given: ReviewInput) -> MarkdownFiles:
    """Find the Markdown files below `given.folder`, those near its top first.

    Raises:
        PermanentError: the folder is missing, cannot be read, or has no Markdown in it.
    """
    start = _start(given.folder)
    if start.is_file():
        found, sizes = MarkdownFiles(start.parent), {start.name: start.stat().st_size}
    else:
        found = MarkdownFiles(start)
        sizes = _walk(found)
    if not sizes and not found.findings:
        skipped = ", ".join(found.skipped_folders[:5])
        raise PermanentError(
            f"There is no Markdown in {start}: no file ends in .md, .markdown or .mkd"
            f"{f' (not looked into: {skipped})' if skipped else ''}. Name a folder that has some.",
            code="no_markdown",
        )
    _choose(found, sizes, given)
    if (more := len(found.findings) - MAX_FINDINGS) > 0:
        del found.findings[MAX_FINDINGS:]
        found.note("too_many", None, f"{more} more files and folders are not read.")
    return found


def read_file(root: Path, path: str, at_most: int) -> bytes:
    """Return the content of a regular file below `root`, opened folder by folder.

    Raises:
        OSError: it cannot be read, is not a regular file or behind a link, or has more bytes.
    """
    *folders, name = PurePosixPath(path).parts
    folder = os.open(root, _FOLDER)
    try:
        for part in folders:
            outer, folder = folder, os.open(part, _FOLDER, dir_fd=folder)
            os.close(outer)
        file = os.open(name, _FILE, dir_fd=folder)
    finally:
        os.close(folder)
    with open(file, "rb") as source:  # noqa: PTH123 - it is a descriptor
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        content = source.read(at_most + 1)
    if len(content) > at_most:
        raise OSError(errno.EFBIG, "it grew beyond the bounds meanwhile")
    return content


def _start(folder: str) -> Path:
    start = Path(folder)
    try:
        start = start.expanduser().resolve()
        str(start).encode()
        if start.is_dir():
            os.close(os.open(start, _FOLDER))  # else the search would find nothing there
            return start
        if start.is_file() and start.suffix.lower() in SUFFIXES:
            return start
        problem = "is not a folder or a Markdown file" if start.exists() else "does not exist"
    except UnicodeEncodeError:
        problem = "has a name that is not UTF-8"
    except (OSError, RuntimeError, ValueError) as error:
        problem = f"cannot be read ({error})"
    raise PermanentError(
        f"Folder {folder!r} {problem}; looked for {start}. "
        "Name a folder of Markdown files that this worker can read.",
        code="folder_missing",
    )


def _walk(found: MarkdownFiles) -> dict[str, int]:
    """Return the size of each Markdown file below the root, and note what is not entered."""
    sizes: dict[str, int] = {}
    links: list[str] = []
    entries = 0

    def unreadable(error: OSError) -> None:
        path = os.path.relpath(str(error.filename), found.root)
        found.note("unreadable", path, f"It cannot be read ({error.strerror}).")

    for folder, folders, names, descriptor in os.fwalk(found.root, onerror=unreadable):
        parts = Path(folder).relative_to(found.root).parts
        here = "".join(f"{part}/" for part in parts)
        entries += len(folders) + len(names)
        if parts and "pyvenv.cfg" in names:  # an environment, whatever its name
            found.skipped_folders.append(here)
            folders.clear()
            continue
        for name in sorted(name for name in names if Path(name).suffix.lower() in SUFFIXES):
            facts = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if stat.S_ISLNK(facts.st_mode):
                links.append(here + name)
            elif stat.S_ISREG(facts.st_mode) and _is_utf8(name):
                sizes[here + name] = facts.st_size
            else:
                message = "It is not read: it is no regular file, or its name is not UTF-8."
                found.note("unreadable", here + name, message)
        folders[:] = [name for name in sorted(folders) if _is_own(found, here, name, descriptor)]
        if entries >= MAX_ENTRIES:
            message = f"The search ended after {entries} files and folders; there may be more."
            found.note("too_many", None, message)
            break
    for path in links:
        real = os.path.relpath(os.path.realpath(found.root / path), found.root)
        if real not in sizes:
            found.note("linked", path, "It is not read: it is a link to what is not reviewed.")
    return sizes


def _is_own(found: MarkdownFiles, here: str, name: str, descriptor: int) -> bool:
    """Return whether to enter a folder."""
    if name.startswith(".") or name.endswith(("__pycache__", ".egg-info")):
        return False
    path, facts = f"{here}{name}/", os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    if name in NOT_OWN or stat.S_ISLNK(facts.st_mode):
        found.skipped_folders.append(path)
        return False
    if not _is_utf8(name) or here.count("/") >= MAX_DEPTH:
        message = f"It is not read: its name is not UTF-8, or it lies {MAX_DEPTH} folders deep."
        found.note("too_many" if _is_utf8(name) else "unreadable", path, message)
        return False
    return True


def _is_utf8(name: str) -> bool:
    """Return whether a name can be written in JSON; Linux allows any bytes in it."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _choose(found: MarkdownFiles, sizes: dict[str, int], bounds: ReviewInput) -> None:
    """Take what is within the bounds, what is near the top first."""
    total = left_out = 0
    for path in sorted(sizes, key=lambda path: (path.count("/"), path)):
        if sizes[path] > bounds.max_file_bytes:
            size = f"{sizes[path]:,} bytes, more than the {bounds.max_file_bytes:,} that are read"
            found.note("too_large", path, f"The file has {size}; it is not reviewed.")
        elif len(found.files) == bounds.max_files or total + sizes[path] > bounds.max_total_bytes:
            left_out += 1
        else:
            total += sizes[path]
            found.files.append(path)
    if left_out:
        found.note(
            "too_many",
            None,
            f"{left_out} of {len(sizes)} Markdown files are not reviewed: the bounds are "
            f"{bounds.max_files} files and {bounds.max_total_bytes:,} bytes in all. "
            "Those deepest in the folder were left out.",
        )
