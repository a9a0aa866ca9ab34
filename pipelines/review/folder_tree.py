"""The tree below a folder: Markdown files, links, and the folders that are skipped."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

from leasehold import PermanentError
from pipelines.review.findings import finding
from pipelines.review.models import Finding
from pipelines.review.regular_files import folder_below

SUFFIXES: Final = frozenset({".md", ".markdown", ".mkd"})

#: Folders of things that were installed or built, which are not the reader's own documents.
NOT_OWN: Final = frozenset(
    {
        "_build",
        "bower_components",
        "build",
        "dist",
        "htmlcov",
        "node_modules",
        "out",
        "site-packages",
        "target",
        "third_party",
        "vendor",
        "venv",
    }
)

NEVER_TEXT: Final = ("__pycache__", ".egg-info")  # ends of folder names not worth a mention
MAX_ENTRIES: Final = 200_000  # files and folders looked at, so that `/` ends, too
MAX_DEPTH: Final = 40  # folders in folders
MAX_FINDINGS: Final = 500  # that name a file or folder; the others are counted


@dataclass(slots=True)
class Tree:
    """What was found, by its path below the root: files with their sizes, links, other folders."""

    files: dict[str, int] = field(default_factory=dict)
    links: list[str] = field(default_factory=list)
    skipped_folders: list[str] = field(default_factory=list)
    unread: list[Finding] = field(default_factory=list)
    _unnamed: int = 0

    def note(
        self, code: str, path: str | None, message: str, remediation: str | None = None
    ) -> None:
        """Keep a finding about what is not read; of too many, those that name no path."""
        if path and len(self.unread) >= MAX_FINDINGS:
            self._unnamed += 1
            return
        self.unread.append(finding(code, message, document=path, remediation=remediation))

    def findings(self) -> list[Finding]:
        """Return the findings about what is not read."""
        if not self._unnamed:
            return self.unread
        message = f"{self._unnamed} more files and folders are not read."
        return [*self.unread, finding("too_many", message)]


def walk(root: Path) -> Tree:
    """Look at all there is below the root, as far as the bounds go.

    Raises:
        PermanentError: the root itself cannot be read.
    """
    tree = Tree()
    pending: list[tuple[str, ...]] = [()]
    entries = 0
    while pending:
        parts = pending.pop()
        try:
            with folder_below(root, parts) as folder:
                children = _children(folder, MAX_ENTRIES - entries)
                entries += len(children)
                for child in children:
                    pending += _look_at(child, (*parts, child.name), folder, tree)
        except OSError as error:
            if not parts:
                raise _root_unreadable(root, error) from error
            tree.note(
                "unreadable",
                "/".join(parts) + "/",
                f"The folder cannot be read ({error.strerror}); its documents are not reviewed.",
                "Give this worker the right to read the folder.",
            )
        if entries >= MAX_ENTRIES:
            message = f"The search ended after {entries} files and folders; there may be more."
            tree.note("too_many", None, message, "Review a smaller folder.")
            break
    return tree


def _children(folder: int, at_most: int) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(islice(entries, at_most), key=lambda entry: entry.name)


def _look_at(
    child: os.DirEntry[str], parts: tuple[str, ...], folder: int, tree: Tree
) -> Iterator[tuple[str, ...]]:
    """Note what a child is; yield its path if it is a folder to enter."""
    path = "/".join(parts)
    is_folder = _is_folder(child)
    if not is_folder and Path(child.name).suffix.lower() not in SUFFIXES:
        return
    if not is_utf8(path):
        readable = os.fsencode(path).decode(errors="replace")
        tree.note("unreadable", readable, "It is not read: its name is not UTF-8.", "Rename it.")
    elif is_folder:
        if not _is_own(child, folder, path, tree):
            return
        if len(parts) > MAX_DEPTH:
            tree.note("too_many", f"{path}/", f"It lies more than {MAX_DEPTH} folders deep.")
            return
        yield parts
    else:
        _note_file(child, path, tree)


def _note_file(child: os.DirEntry[str], path: str, tree: Tree) -> None:
    try:
        if child.is_symlink():
            tree.links.append(path)
        elif child.is_file(follow_symlinks=False):
            tree.files[path] = child.stat(follow_symlinks=False).st_size
        else:
            tree.note("unreadable", path, "It is not read: it is a pipe, a socket or a device.")
    except OSError as error:  # it is gone meanwhile
        tree.note("unreadable", path, f"The file cannot be read ({error.strerror}).")


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, or to what may not be read
        return False


def _is_own(entry: os.DirEntry[str], folder: int, path: str, tree: Tree) -> bool:
    """Return whether to enter; a linked folder is not, so that a loop of links ends."""
    if entry.name.startswith(".") or entry.name.endswith(NEVER_TEXT):
        return False
    if entry.name in NOT_OWN or entry.is_symlink() or _is_environment(entry.name, folder):
        tree.skipped_folders.append(f"{path}/")
        return False
    return True


def _is_environment(name: str, folder: int) -> bool:
    try:
        os.stat(f"{name}/pyvenv.cfg", dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


def _root_unreadable(root: Path, error: OSError) -> PermanentError:
    return PermanentError(
        f"Folder {root} cannot be read ({error.strerror}). Give this worker the right to read it.",
        code="folder_unreadable",
    )


def is_utf8(path: str) -> bool:
    """Return whether a path can be written in JSON; Linux allows any bytes in a name."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
