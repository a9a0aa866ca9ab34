"""A bundle, checked: what is in it, and what is worth saying about it."""

from __future__ import annotations

import ast
import glob
import hashlib
import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from leasehold.deploy.bundle import BundleError
from leasehold.deploy.bundle.contents import (
    OWN,
    REQUIREMENTS,
    Contents,
    sources,
    suspicions,
    user_modules,
)
from leasehold.deploy.bundle.import_check import check_imports
from leasehold.deploy.bundle.modules import Modules
from leasehold.deploy.bundle.requirements import Closure, closure_of, hashes_of
from leasehold.domain.printable import counted
from leasehold.frozen import dataclass

#: So many of the packages without a hash are named.
_MAX_PINS_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Bundle:
    """What is uploaded.

    Args:
        contents: path → content, sorted.
        requirements: how many packages it needs.
        warnings: what may be wrong with it, a line each.
    """

    contents: Contents
    requirements: int
    warnings: tuple[str, ...]


def assemble(
    root: Path,
    functions: Iterable[str],
    catalog: str,
    extras: Sequence[str] = (),
) -> Bundle:
    """Read the bundle of a project, and check that functions can work with it.

    Args:
        root: the folder of the project.
        functions: the names of the entries.
        catalog: the name of the catalog's module.
        extras: further ones of leasehold.

    Raises:
        BundleError: no function could be deployed with it.
    """
    contents = sources(root, functions, catalog)
    modules = user_modules(catalog)
    closure = closure_of(root, modules, extras)
    hashes = hashes_of(root)
    contents[REQUIREMENTS] = closure.text(hashes).encode()
    contents = dict(sorted(contents.items()))
    installed = _files_of(closure)
    packages = Modules(installed)
    for name in (*OWN, *modules):
        if packages.have(name):
            raise BundleError(f"{name} is a module of a requirement too, which would come first")
    files = [*contents, *installed]
    _check_imports(contents, catalog, closure, files)
    user_files = tuple(f"{module}{end}" for module in modules for end in ("/", ".py"))
    user_files += ("functions/",)
    warnings = missing_imports(contents, user_files, Modules(files))
    warnings = [*_without_hash(closure.without(hashes)), *warnings]
    return Bundle(contents, len(closure.installed), (*warnings, *suspicions(contents, user_files)))


def _without_hash(pins: Sequence[str]) -> Iterator[str]:
    if pins:
        first, more = pins[:_MAX_PINS_SHOWN], len(pins) - _MAX_PINS_SHOWN
        others = f" and {counted(more, 'more package')}" if more > 0 else ""
        yield (
            f"no hash is known of {', '.join(first)}{others}: a build takes whatever the index "
            "has by that name and version, of all packages; type: leasehold deploy hashes"
        )


def _files_of(closure: Closure) -> list[str]:
    return [str(file) for package in closure.installed.values() for file in package.files or ()]


def _check_imports(
    contents: Contents, catalog: str, closure: Closure, files: Sequence[str]
) -> None:
    places = {str(package.locate_file("")): None for package in closure.installed.values()}
    with tempfile.TemporaryDirectory() as made:
        write(Path(made), contents)
        check_imports(Path(made), catalog, files, [*places])


# What the user's modules import and a bundle does not have.


#: A module that catches one of these has an alternative.
_CAUGHT: Final = {"ImportError", "ModuleNotFoundError", "Exception"}


def missing_imports(contents: Contents, folders: tuple[str, ...], modules: Modules) -> list[str]:
    """Return a line for each module that a file of the user imports and that is not there.

    It need not be wrong: a step may import only what another deployment has.
    """
    found: dict[str, str] = {}
    for file, content in contents.items():
        if file.endswith(".py") and file.startswith(folders):
            for line, name in sorted(_imports(_parsed(content))):
                if not modules.have(name):
                    found.setdefault(name.partition(".")[0], f"{file}:{line} imports {name}")
    return [
        f"{place}, which requirements.txt does not bring; if a deployed "
        "step needs it: --extra NAME, or its name in pipelines/requirements.txt"
        for place in found.values()
    ]


def _parsed(content: bytes) -> ast.Module:
    with warnings.catch_warnings(action="ignore"):  # of what the file has in its texts
        return ast.parse(content)


def _imports(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and each name that is imported for certain, also within functions."""
    left: list[ast.AST] = [module]
    while left:
        node = left.pop()
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if not node.level:  # a relative import is of the folder itself
                yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.If) and _is_for_types(node.test):
            left += node.orelse
        elif isinstance(node, ast.Try) and _catches(node):
            left += [*node.orelse, *node.finalbody]
        else:
            left += ast.iter_child_nodes(node)


def _is_for_types(test: ast.expr) -> bool:
    named = [test.id] if isinstance(test, ast.Name) else []
    named += [test.attr] if isinstance(test, ast.Attribute) else []
    return "TYPE_CHECKING" in named


def _catches(node: ast.Try) -> bool:
    """Return whether an import that fails in the block is expected."""
    kinds = [handler.type for handler in node.handlers]
    names = [it.id for kind in kinds if kind for it in ast.walk(kind) if isinstance(it, ast.Name)]
    return None in kinds or not _CAUGHT.isdisjoint(names)


# The folder of a bundle: written so that no file of another origin is lost in it.
#
# `contents.sha256` lists what this program wrote, for people and for `sha256sum --check`. It is
# written before the files, so whatever ends in the middle leaves nothing that the next call does
# not know for its own.


CONTENTS: Final = "contents.sha256"
#: A list without this line was not made here, and neither were the files that it names.
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
