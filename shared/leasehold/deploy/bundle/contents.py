"""All that is in a bundle, as bytes: the same repository gives the same bytes."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from leasehold.deploy.bundle import BundleError
from leasehold.deploy.bundle.source_files import check_link, files_in, read
from leasehold.deploy.tables import FILE as TABLES
from leasehold.domain.secret_shapes import shapes

#: Path in the bundle → content.
Contents = Mapping[str, bytes]

#: What is uploaded may not be larger.
_LARGEST: Final = 512 * 2**20
#: So much of a file is looked through for what looks like a secret: texts are smaller.
_LOOKED_AT: Final = 2**20
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
    _check_syntax(contents)
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
    if sum(sizes.values()) > _LARGEST:
        largest = max(sizes, key=lambda name: sizes[name])
        raise BundleError(
            f"the bundle is larger than {_LARGEST // 2**20} MiB, which no upload may be; its "
            f"largest file is {largest}: keep it in a bucket"
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
        and next(shapes(content[:_LOOKED_AT].decode(errors="replace")), None)
    ]
