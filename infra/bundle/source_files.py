"""The files of a folder that go into the bundle, and those that never do."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from infra.bundle.bundle_error import BundleError

#: What tools leave behind. Whatever begins with a dot stays out as well: .env, .git, .leasehold.
_LEFT_OUT: Final = ("__pycache__", "*.pyc", "*.egg-info")
#: Files of keys, and of passwords.
_SECRET_NAMES: Final = (
    *("*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk", "*.env"),
    *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "credentials.json"),
)
_PRIVATE_KEY: Final = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY")
_MOVE: Final = "keep it in Secret Manager, and move the file out of {folder}/"


def files_in(folder: Path, root: Path) -> Iterator[tuple[str, Path]]:
    """Yield each file of a folder that goes into the bundle: its path below `folder`, the file.

    Args:
        folder: which one.
        root: of the repository; a link that leads out of it is refused.

    Raises:
        BundleError: there is something that may not be uploaded.
    """
    yield from _walk(folder, "", root.resolve(), (folder.resolve(),))


def _walk(
    folder: Path, prefix: str, root: Path, above: tuple[Path, ...]
) -> Iterator[tuple[str, Path]]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.name.startswith(".") or any(fnmatch(entry.name, it) for it in _LEFT_OUT):
            continue
        path = Path(entry.path)
        _check_name(path)
        real = _real(path, root) if entry.is_symlink() else path
        if path.is_dir():
            if real.resolve() in above:
                raise BundleError(f"{path}: a link to a folder that it is in; delete the link")
            yield from _walk(path, f"{prefix}{entry.name}/", root, (*above, real.resolve()))
        elif path.is_file():
            yield f"{prefix}{entry.name}", path
        else:
            raise BundleError(f"{path}: not a regular file; move it out of the folder")


def _check_name(path: Path) -> None:
    if not path.name.isprintable() or "\\" in path.name:
        raise BundleError(f"{str(path)!r}: a name that no archive can hold; rename it")


def _real(link: Path, root: Path) -> Path:
    """Return what a link leads to: something of the repository that may be uploaded."""
    real = Path(os.path.realpath(link))
    if not real.exists():
        raise BundleError(f"{link}: a link to nothing; delete it")
    if not real.is_relative_to(root):
        raise BundleError(f"{link}: a link out of the repository, to {real}; copy it, or delete it")
    if any(part.startswith(".") for part in real.relative_to(root).parts):
        raise BundleError(f"{link}: a link to {real}, which is hidden; delete it")
    _check_no_key_file(real)
    return real


def read(path: Path) -> bytes:
    """Return what a file holds.

    Raises:
        BundleError: a private key, or it cannot be read.
    """
    _check_no_key_file(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BundleError(f"{path}: {error.strerror}") from error
    if _PRIVATE_KEY.search(content):
        raise BundleError(f"{path}: holds a private key; {_MOVE.format(folder=path.parent)}")
    return content


def _check_no_key_file(path: Path) -> None:
    if any(fnmatch(path.name.lower(), name) for name in _SECRET_NAMES):
        raise BundleError(f"{path}: a file of secrets; {_MOVE.format(folder=path.parent)}")
