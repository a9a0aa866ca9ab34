"""The names of artifacts: what any store of them can keep, and none can be led astray by."""

from __future__ import annotations

from typing import Final

from leasehold.errors import ArtifactNameError

#: The folder of writes that are not finished, where a store has one.
UNFINISHED: Final = ".unfinished"
#: What the name of the file begins with by which a folder says which store it is.
MARK: Final = ".store-"

_MAX_PART: Final = 200
_MAX_NAME: Final = 1000


def check_artifact_name(name: str) -> None:
    """Pass a relative path of plain parts.

    Raises:
        ArtifactNameError: it is not one, or too long.
    """
    problem = _problem(name)
    if problem is not None:
        raise ArtifactNameError(name=name[:_MAX_PART], problem=problem)


def is_artifact_name(name: str) -> bool:
    """Return whether `check_artifact_name` passes the name."""
    return _problem(name) is None


def _problem(name: str) -> str | None:
    """Return why the name is refused, or None."""
    if any(_is_no_text(character) for character in name):
        return "it holds a control character, a backslash or a lone surrogate"
    if not 1 <= len(name.encode()) <= _MAX_NAME:
        return f"it must have 1 to {_MAX_NAME} bytes"
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "it is not a relative path of plain parts"
    if any(len(part.encode()) > _MAX_PART for part in parts):
        return f"a part of it has over {_MAX_PART} bytes"
    if parts[0] == UNFINISHED or name.startswith(MARK):
        return f"{UNFINISHED} is kept for unfinished writes, {MARK}… for the mark of the store"
    return None


def _is_no_text(character: str) -> bool:
    return character < " " or character in "\x7f\\" or "\ud800" <= character <= "\udfff"
