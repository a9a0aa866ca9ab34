"""The folder of a bundle: written so that nothing of anybody else is lost in it.

`contents.sha256` lists what this program wrote, as `sha256sum` does. It is written before the
files, so whatever ends in the middle leaves nothing that the next call does not know for its own.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra.bundle.bundle_error import BundleError

CONTENTS: Final = "contents.sha256"
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
        before = _written(folder)
        _check_all_ours(folder, before)
        return _write(folder, contents, before)
    except OSError as error:
        raise BundleError(f"{error.filename or folder}: {error.strerror or error}") from error


def _written(folder: Path) -> dict[str, str]:
    """Return the hash of each file that this program wrote there, as far as it got."""
    try:
        lines = (folder / CONTENTS).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except ValueError:
        lines = []
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def _check_all_ours(folder: Path, before: Mapping[str, str]) -> None:
    for path in _found(folder):
        if str(path) not in before and path.parts[-1] not in (CONTENTS, _NEW):
            raise BundleError(
                f"{folder / path} is not of a bundle, and nothing is deleted; move it away, or "
                "write to another folder: --out FOLDER"
            )


def _found(folder: Path) -> Iterator[Path]:
    """Yield all files and links below a folder that is there, but for what Python compiled."""
    if not folder.is_dir() and (folder.exists() or folder.is_symlink()):
        raise BundleError(f"{folder} is not a folder; write to another one: --out FOLDER")
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
    is_as_listed = {name for name in after if before.get(name) == _digest(folder / name)}
    for name, content in contents.items():
        path = folder / name
        if before.get(name) != after[name] or name not in is_as_listed:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    removed = tuple(name for name in before if name not in after)
    for name in removed:
        (folder / name).unlink(missing_ok=True)
    _remove_empty(folder)
    _list(folder, after)
    return Changes(
        tuple(name for name in after if name not in before),
        tuple(name for name in after if before.get(name, after[name]) != after[name]),
        removed,
    )


def _digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return None


def _list(folder: Path, digests: Mapping[str, str]) -> None:
    lines = "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))
    (folder / _NEW).write_text(lines, encoding="utf-8")
    (folder / _NEW).replace(folder / CONTENTS)


def _remove_empty(folder: Path) -> None:
    """Remove folders in which nothing is left, and what Python compiled of files that are gone."""
    for base, _folders, files in os.walk(folder, topdown=False):
        path = Path(base)
        if path.name == _CACHE:
            for name in files:
                if not (path.parent / f"{name.partition('.')[0]}.py").exists():
                    (path / name).unlink()
        if path != folder and not any(path.iterdir()):
            path.rmdir()
