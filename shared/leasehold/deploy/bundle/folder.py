"""The folder of a bundle: written so that nothing of anyone else is lost in it.

`contents.sha256` lists what this program wrote, for people and for `sha256sum --check`. It is
written before the files, so whatever ends in the middle leaves nothing that the next call does not
know for its own.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from leasehold.deploy.bundle import BundleError

CONTENTS: Final = "contents.sha256"
#: A list without this line is someone else's, and so are the files that it names.
_HEADER: Final = "# what `leasehold deploy bundle` wrote here"
_NEW: Final = f"{CONTENTS}.new"
_CACHE: Final = "__pycache__"  # of modules that were imported from it


@dataclass(frozen=True, slots=True)
class Changes:
    """What is not as it was: paths in the bundle."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]


def write(folder: Path, contents: Mapping[str, bytes]) -> Changes:
    """Make a folder hold these files and no others.

    Args:
        folder: it is made, or has nothing in it that this function did not write.
        contents: path in the bundle → content.

    Raises:
        BundleError: it has something else in it, which stays as it is; or it cannot be written.
    """
    try:
        return _write(folder, contents, _ours(folder))
    except OSError as error:
        raise BundleError(f"{error.filename or folder}: {error.strerror or error}") from error


def _listed(folder: Path) -> dict[str, str]:
    """Return the hash of each file that this program wrote there, as far as it got."""
    try:
        header, *lines = (folder / CONTENTS).read_text(encoding="utf-8").splitlines() or [""]
    except (FileNotFoundError, UnicodeDecodeError):
        return {}
    if header != _HEADER:
        return {}
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def _ours(folder: Path) -> dict[str, str]:
    """Return the hashes of the files that are there, all of which this program wrote."""
    if not folder.is_dir() and os.path.lexists(folder):
        raise BundleError(f"{folder} is not a folder; write to another one: --out FOLDER")
    listed, found = _listed(folder), {}
    for path in _found(folder):
        name = path.as_posix()
        if (folder / path).is_symlink() or not (name in listed or _is_list(name, listed)):
            raise BundleError(
                f"{folder / path} is not of a bundle, and nothing is deleted; move it away, or "
                "write to another folder: --out FOLDER"
            )
        if name in listed:
            found[name] = listed[name]
    return found


def _is_list(name: str, listed: Mapping[str, str]) -> bool:
    """Return whether a file is the list, or one that was not written to its end."""
    return name == _NEW or (bool(listed) and name == CONTENTS)


def _found(folder: Path) -> Iterator[Path]:
    """Yield all files and links below a folder, but for what Python compiled."""
    for base, folders, files in os.walk(folder):
        here = Path(base).relative_to(folder)
        links = [name for name in folders if (Path(base) / name).is_symlink()]
        for name in sorted([*links, *files]):
            if not (_CACHE in here.parts and name.endswith(".pyc")):
                yield here / name


def _write(folder: Path, contents: Mapping[str, bytes], before: Mapping[str, str]) -> Changes:
    after = {name: hashlib.sha256(contents[name]).hexdigest() for name in sorted(contents)}
    folder.mkdir(parents=True, exist_ok=True)
    _list(folder, {**before, **after})
    removed = [name for name in before if name not in after]
    for name in removed:
        _remove(folder, folder / name)
    differs = [name for name in after if _digest(folder / name) != after[name]]
    for name in differs:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).unlink(missing_ok=True)  # whatever else is linked to it stays as it is
        (folder / name).write_bytes(contents[name])
    _list(folder, after)
    return Changes(
        added=tuple(name for name in after if name not in before),
        changed=tuple(name for name in differs if name in before),
        removed=tuple(removed),
    )


def _digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return None


def _list(folder: Path, digests: Mapping[str, str]) -> None:
    lines = [_HEADER, *(f"{digests[name]}  {name}" for name in sorted(digests)), ""]
    (folder / _NEW).unlink(missing_ok=True)
    (folder / _NEW).write_text("\n".join(lines), encoding="utf-8")
    (folder / _NEW).replace(folder / CONTENTS)


def _remove(folder: Path, file: Path) -> None:
    """Remove a file, what Python compiled of it, and the folders that are empty without it."""
    file.unlink()
    cache = file.parent / _CACHE
    for compiled in cache.glob(f"{glob.escape(file.stem)}.*.pyc") if cache.is_dir() else ():
        compiled.unlink()
    for left in (cache, *file.parents):
        if left == folder:
            return
        if left.is_dir() and not any(left.iterdir()):
            left.rmdir()
