"""The files of a folder that go into the bundle, and those that never do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from leasehold.deploy.bundle import BundleError

#: What tools leave behind. Whatever begins with a dot stays out as well: .env, .git, .leasehold.
_LEFT_OUT: Final = ("__pycache__", "*.pyc", "*.egg-info", "*~")
#: Files of keys, and of passwords.
_SECRET_NAMES: Final = (
    *("*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk", "*.env"),
    *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "credentials.json", "kubeconfig"),
    *("service-account*.json", "service_account*.json", "client_secret*.json", "*.tfstate", "*.p8"),
    *("*.gpg", "secrets.yaml", "secrets.yml", "secrets.json", "secrets.toml"),
)
#: With the key itself: a program may well look for the words before it.
_PRIVATE_KEY: Final = re.compile(
    rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----.{0,200}?[A-Za-z0-9+/]{40}", re.DOTALL
)
_KEEP: Final = "keep it in Secret Manager, and move the file away"


def files_in(folder: Path, name: str, root: Path) -> Iterator[tuple[str, Path]]:
    """Yield each file of a folder that goes into the bundle: its path there, and the file.

    Args:
        folder: which one.
        name: of the folder in the bundle.
        root: of the repository; a link that leads out of it is refused.

    Raises:
        BundleError: there is something that may not be uploaded.
    """
    check_link(folder, name, root)
    yield from _walk(folder, name, root, (folder.resolve(),))


def _walk(
    folder: Path, name: str, root: Path, above: tuple[Path, ...]
) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.iterdir()):
        inner = f"{name}/{path.name}"
        if path.name.startswith(".") or any(fnmatch(path.name, it) for it in _LEFT_OUT):
            continue
        if not inner.isprintable() or "\\" in inner:
            raise BundleError(f"{inner!r}: a name that not every archive can hold; rename it")
        check_link(path, inner, root)
        if path.is_dir():
            if path.resolve() in above:
                raise BundleError(f"{inner}: a link to a folder that it is in; delete it")
            yield from _walk(path, inner, root, (*above, path.resolve()))
        elif path.is_file():
            yield inner, path
        else:
            raise BundleError(f"{inner}: not a regular file; move it away")


def check_link(link: Path, name: str, root: Path) -> None:
    """Refuse a link to anything but a file or folder of the repository that may be uploaded."""
    if not link.is_symlink():
        return
    try:
        real = link.resolve(strict=True)
    except (OSError, RuntimeError):  # RuntimeError: a loop
        raise BundleError(f"{name}: a link to nothing; delete it") from None
    if not real.is_relative_to(root.resolve()):
        raise BundleError(f"{name}: a link out of the repository, to {real}; copy what it leads to")
    if any(part.startswith(".") for part in real.relative_to(root.resolve()).parts):
        raise BundleError(f"{name}: a link to {real}, which is hidden; delete it")
    _check_name(real, name)


def read(path: Path, name: str) -> bytes:
    """Return what a file holds that is `name` in the bundle.

    Raises:
        BundleError: a private key, or it cannot be read.
    """
    _check_name(path, name)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BundleError(f"{name}: {error.strerror}") from error
    if _PRIVATE_KEY.search(content):
        raise BundleError(f"{name} holds a private key; {_KEEP}")
    return content


def _check_name(path: Path, name: str) -> None:
    if any(fnmatch(path.name.lower(), secret) for secret in _SECRET_NAMES):
        raise BundleError(f"{name} is by its name a file of secrets; {_KEEP}")
