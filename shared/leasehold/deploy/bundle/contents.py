"""All that is in a bundle, as bytes: the same repository gives the same bytes."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Final

from leasehold.deploy.bundle import BundleError
from leasehold.deploy.tables import FILE as TABLES
from leasehold.domain.secret_shapes import shapes

#: Path in the bundle → content.
Contents = Mapping[str, bytes]

#: What is uploaded may not be larger.
_MAX_BUNDLE_BYTES: Final = 512 * 2**20
#: So much of a file is looked through for what looks like a secret: texts are smaller.
_MAX_SEARCHED_BYTES: Final = 2**20
#: The bundle has the entries beside the package, and does not deploy itself.
_ELSEWHERE: Final = ("leasehold/functions/", "leasehold/deploy/", "leasehold/cli/deploy/")
#: Whose place the tables of the project take.
_TABLES: Final = "leasehold/registry/function_table.py"
_PACKAGE: Final = Path(__file__).parents[2]
#: Of these names the bundle has its own modules.
OWN: Final = ("main", "functions", "leasehold")
_FIXED: Final = Path(__file__).parent / "files"
_FIXED_NAMES: Final = ("main.py", ".gcloudignore")
#: What the modules of a folder need beside Leasehold; it becomes part of the bundle's own.
REQUIREMENTS: Final = "requirements.txt"


def user_modules(catalog: str) -> tuple[str, ...]:
    """Return the names of the top-level modules that are the user's: pipelines, the catalog's.

    Raises:
        BundleError: no module can have the catalog's name.
    """
    if not all(part.isidentifier() for part in catalog.split(".")):
        raise BundleError(f"the catalog is {catalog!r}; allowed: a module, as in pipelines.catalog")
    names = {"pipelines", catalog.partition(".")[0]} - {"leasehold"}
    return tuple(sorted(names))


def sources(
    root: Path, functions: Iterable[str], catalog: str, package: Path = _PACKAGE
) -> dict[str, bytes]:
    """Return all that is in the bundle but its requirements.txt.

    Args:
        root: the folder of the project.
        functions: the names of the entries: the project's own, or else the package's.
        catalog: the name of the catalog's module.
        package: leasehold itself.

    Raises:
        BundleError: something is missing, is too large, or may not be uploaded.
    """
    files = {}
    for function in functions:
        name = f"functions/{function}.py"
        own, known = root / name, package / name
        if not own.is_file() and not known.is_file():
            raise BundleError(f"{TABLES} has a row for {name}, which is missing; write it")
        check_link(own, name, root)
        files[name] = own if own.is_file() else known
    of_package = files_in(package, "leasehold", package)
    files |= {name: path for name, path in of_package if not name.startswith(_ELSEWHERE)}
    files[_TABLES] = root / TABLES
    check_link(root / TABLES, TABLES, root)
    for module in user_modules(catalog):
        files |= _of_the_user(root, module, catalog)
    files |= {name: _FIXED / name for name in _FIXED_NAMES}
    _check_size(files)
    contents = {name: read(files[name], name) for name in sorted(files)}
    # Leasehold's hundreds of modules run here, so they have been compiled.
    others = {name for name, path in files.items() if not path.is_relative_to(package)}
    _check_syntax({name: contents[name] for name in contents if name in others})
    return contents


def _of_the_user(root: Path, module: str, catalog: str) -> dict[str, Path]:
    if module in OWN or module in sys.stdlib_module_names:
        raise BundleError(f"the catalog {catalog} is in {module}, a name that is taken; rename it")
    folder, file = root / module, root / f"{module}.py"
    if folder.is_dir():
        found = dict(files_in(folder, module, root))
        found.pop(f"{module}/{REQUIREMENTS}", None)
    else:
        found = {file.name: file} if file.is_file() else {}
        check_link(file, file.name, root)
    if catalog.partition(".")[0] != module:
        return found
    stem = catalog.replace(".", "/")
    if f"{stem}.py" not in found and f"{stem}/__init__.py" not in found:
        raise BundleError(
            f"there is no catalog {catalog}: {stem}.py is missing in {root}; name yours: "
            "--catalog MODULE, or LEASEHOLD_CATALOG"
        )
    return found


def _check_size(files: Mapping[str, Path]) -> None:
    sizes = {name: path.stat().st_size for name, path in files.items()}
    if sum(sizes.values()) > _MAX_BUNDLE_BYTES:
        largest = max(sizes, key=lambda name: sizes[name])
        raise BundleError(
            f"the bundle is larger than {_MAX_BUNDLE_BYTES // 2**20} MiB, which no upload may be; "
            f"its largest file is {largest}: keep it in a bucket"
        )


def _check_syntax(contents: Contents) -> None:
    """Compile each module, as the build of a function does, which fails with the first error."""
    for name, content in contents.items():
        if PurePosixPath(name).suffix == ".py":
            try:
                with warnings.catch_warnings(action="ignore"):
                    compile(content, name, "exec", dont_inherit=True)
            except SyntaxError as error:
                raise BundleError(f"{name}:{error.lineno}: {error.msg}; repair it") from error
            except (ValueError, RecursionError, MemoryError) as error:
                raise BundleError(f"{name}: it cannot be compiled: {error}; repair it") from error


def suspicions(contents: Contents, files: tuple[str, ...]) -> list[str]:
    """Return a line for each file with one of these beginnings in which something looks secret."""
    return [
        f"{name}: something in it looks like a secret; those belong in Secret Manager"
        for name, content in contents.items()
        if name.startswith(files)
        and next(shapes(content[:_MAX_SEARCHED_BYTES].decode(errors="replace")), None)
    ]


# The files of a folder that go into the bundle, and those that never do.


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
