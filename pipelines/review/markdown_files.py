"""The Markdown files of a folder, within bounds, and what was left out.

No link is followed. A link to a file that is listed anyway is ignored; any other is a finding.
"""

from dataclasses import dataclass, field
from pathlib import Path

from leasehold import PermanentError
from pipelines.review.folder_tree import SUFFIXES, Tree, is_utf8, walk
from pipelines.review.models import Finding, ReviewInput


@dataclass(slots=True)
class MarkdownFiles:
    """The files to read, and what is not read: folders by rule, files by finding."""

    root: Path
    bounds: ReviewInput
    files: list[Path] = field(default_factory=list)
    skipped_folders: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def find_markdown(given: ReviewInput) -> MarkdownFiles:
    """Find the Markdown files below `given.folder`, those near its top first.

    Hidden folders, installed or built ones, and links are not entered.

    Raises:
        PermanentError: the folder is missing, cannot be read, or has no Markdown in it.
    """
    start = _start(given.folder)
    if start.is_file():
        root, tree = start.parent, Tree(files={start.name: start.stat().st_size})
    else:
        root, tree = start, walk(start)
    if not (tree.files or tree.links or tree.unread):
        raise PermanentError(
            f"There is no Markdown in {start}: no file ends in .md, .markdown or .mkd"
            f"{_outside(tree)}. Name a folder that has some.",
            code="no_markdown",
        )
    _note_links(tree, root)
    files = [root / path for path in _within_bounds(tree, given)]
    return MarkdownFiles(root, given, files, tree.skipped_folders, tree.findings())


def _start(folder: str) -> Path:
    start = Path(folder)
    try:
        start = start.expanduser().resolve()
        if not is_utf8(str(start)):
            problem = "has a name that is not UTF-8"
        elif start.is_dir() or (start.is_file() and start.suffix.lower() in SUFFIXES):
            return start
        else:
            problem = "is not a folder or a Markdown file" if start.exists() else "does not exist"
    except (OSError, RuntimeError, ValueError) as error:
        problem = f"cannot be read ({error})"
    raise PermanentError(
        f"Folder {folder!r} {problem}; looked for {start}. "
        "Name a folder of Markdown files that this worker can read.",
        code="folder_missing",
    )


def _outside(tree: Tree) -> str:
    if not tree.skipped_folders:
        return ""
    return f" (not looked into: {', '.join(tree.skipped_folders[:5])})"


def _note_links(tree: Tree, root: Path) -> None:
    """Note the links to files that are not listed themselves."""
    for path in sorted(tree.links):
        try:
            real = (root / path).resolve(strict=True)
        except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, up to 3.12
            reason = error.strerror if isinstance(error, OSError) else "a loop of links"
            tree.note("unreadable", path, f"The file cannot be read ({reason}).")
            continue
        if not real.is_relative_to(root):
            tree.note("linked", path, "It is not read: it is a link that leads out of the folder.")
        elif real.relative_to(root).as_posix() not in tree.files:
            tree.note("linked", path, "It is not read: it is a link to what is not reviewed.")


def _within_bounds(tree: Tree, bounds: ReviewInput) -> list[str]:
    """Return the files to read, those near the top first; note what is left out."""
    kept: list[str] = []
    total = left_out = 0
    for path in sorted(tree.files, key=lambda path: (path.count("/"), path)):
        size = tree.files[path]
        if size > bounds.max_file_bytes:
            tree.note("too_large", path, _too_large(size, bounds.max_file_bytes))
        elif len(kept) == bounds.max_files or total + size > bounds.max_total_bytes:
            left_out += 1
        else:
            total += size
            kept.append(path)
    if left_out:
        tree.note(
            "too_many",
            None,
            f"{left_out} of {len(tree.files)} Markdown files are not reviewed: the bounds are "
            f"{bounds.max_files} files and {bounds.max_total_bytes:,} bytes in all. "
            "Those deepest in the folder were left out.",
        )
    return kept


def _too_large(size: int, limit: int) -> str:
    return (
        f"The file has {size:,} bytes, more than the {limit:,} that are read; it is not reviewed."
    )
