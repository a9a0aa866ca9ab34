"""Finds the Markdown files of a folder, within bounds, and says what it left out."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from leasehold import PermanentError
from pipelines.review.models import Finding, ReviewInput
from pipelines.review.rules import finding

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


@dataclass(slots=True)
class Found:
    """The files to read, and what is not read: folders by rule, files by finding."""

    root: Path
    files: list[Path] = field(default_factory=list)
    skipped_folders: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def find(given: ReviewInput) -> Found:
    """Find the Markdown files below `given.folder`, those near its top first.

    Hidden folders, installed and built things, and links to folders are not entered.

    Raises:
        PermanentError: the folder is missing, cannot be read, or has no Markdown in it.
    """
    start = _start(given.folder)
    if start.is_file():
        found, candidates = Found(root=start.parent), [start]
    else:
        found = Found(root=start)
        candidates = sorted(_walk(found), key=lambda path: (len(path.parts), path.as_posix()))
    if not candidates:
        raise PermanentError(
            f"There is no Markdown in {start}: no file ends in .md, .markdown or .mkd"
            f"{_outside(found)}. Name a folder that has some.",
            code="no_markdown",
        )
    _keep_within_bounds(candidates, found, given)
    return found


def _start(folder: str) -> Path:
    start = Path(folder)
    try:
        start = start.expanduser().resolve()
        if start.is_dir() or (start.is_file() and start.suffix.lower() in SUFFIXES):
            return start
        problem = "is not a folder or a Markdown file" if start.exists() else "does not exist"
    except (OSError, RuntimeError, ValueError) as error:
        problem = f"cannot be read ({error})"
    raise PermanentError(
        f"Folder {folder!r} {problem}; looked for {start}. "
        "Name a folder of Markdown files that this worker can read.",
        code="folder_missing",
    )


def _outside(found: Found) -> str:
    if not found.skipped_folders:
        return ""
    return f" (not looked into: {', '.join(found.skipped_folders[:5])})"


def _walk(found: Found) -> Iterator[Path]:
    """Yield Markdown files; note in `found` the folders that were not entered."""
    pending = [found.root]
    entries = 0
    while pending:
        folder = pending.pop()
        try:
            children = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            if folder == found.root:
                raise PermanentError(
                    f"Folder {folder} cannot be read ({error.strerror}). "
                    "Give this worker the right to read it.",
                    code="folder_unreadable",
                ) from error
            found.findings.append(_folder_unreadable(found, folder, error))
            continue
        entries += len(children)
        for child in children:
            if _is_folder(child):
                pending += [Path(child.path)] if _is_own(child, found) else []
            elif Path(child.name).suffix.lower() in SUFFIXES:
                yield Path(child.path)
        if entries > MAX_ENTRIES and pending:
            found.findings.append(_walk_ended(entries, len(pending)))
            return


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, or to what may not be read
        return False


def _is_own(entry: os.DirEntry[str], found: Found) -> bool:
    """Say whether to enter; a linked folder is not, so that a loop of links ends."""
    if entry.name.startswith(".") or entry.name.endswith(NEVER_TEXT):
        return False
    if entry.name in NOT_OWN or entry.is_symlink() or Path(entry.path, "pyvenv.cfg").exists():
        found.skipped_folders.append(Path(entry.path).relative_to(found.root).as_posix() + "/")
        return False
    return True


def _folder_unreadable(found: Found, folder: Path, error: OSError) -> Finding:
    return finding(
        "unreadable",
        f"The folder cannot be read ({error.strerror}); its documents are not reviewed.",
        document=folder.relative_to(found.root).as_posix() + "/",
        remediation="Give this worker the right to read the folder.",
    )


def _walk_ended(entries: int, pending: int) -> Finding:
    return finding(
        "too_many",
        f"The search ended after {entries} files and folders; "
        f"{pending} folders were not looked into.",
        remediation="Review a smaller folder.",
    )


def _keep_within_bounds(candidates: list[Path], found: Found, given: ReviewInput) -> None:
    total = 0
    left_out = 0
    seen: set[Path] = set()
    for path in candidates:
        try:
            real, size = path.resolve(strict=True), path.stat().st_size
        except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, up to 3.12
            found.findings.append(_file_unreadable(found, path, error))
            continue
        if real in seen or not real.is_file():
            continue  # a link to a file that is read anyway, or a pipe
        seen.add(real)
        if size > given.max_file_bytes:
            found.findings.append(_too_large(found, path, size, given.max_file_bytes))
        elif len(found.files) == given.max_files or total + size > given.max_total_bytes:
            left_out += 1
        else:
            total += size
            found.files.append(path)
    if left_out:
        found.findings.append(
            finding(
                "too_many",
                f"{left_out} of {len(candidates)} Markdown files are not reviewed: the bounds are "
                f"{given.max_files} files and {given.max_total_bytes:,} bytes in all. "
                "Those deepest in the folder were left out.",
            )
        )


def _file_unreadable(found: Found, path: Path, error: Exception) -> Finding:
    reason = error.strerror if isinstance(error, OSError) else "a loop of links"
    return finding(
        "unreadable",
        f"The file cannot be read ({reason}).",
        document=path.relative_to(found.root).as_posix(),
    )


def _too_large(found: Found, path: Path, size: int, limit: int) -> Finding:
    return finding(
        "too_large",
        f"The file has {size:,} bytes, more than the {limit:,} that are read; it is not reviewed.",
        document=path.relative_to(found.root).as_posix(),
    )
