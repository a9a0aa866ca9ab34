"""`leasehold init`: a small project of one's own, whole or not at all.

What a cut-off `init` left is its own files, complete or under their own name until they are;
given again, the command goes on from there.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Final

import click

from leasehold.cli.invocation import command_line
from leasehold.cli.options import json_option
from leasehold.cli.stdout import print_json, print_line
from leasehold.cli.streams import note

#: The files of a project, as they are in the folder `new-project` beside this file.
FILES: Final = (
    ".gitignore",
    "README.md",
    "pyproject.toml",
    "pipelines/__init__.py",
    "pipelines/catalog.py",
    "pipelines/summary.py",
    "tests/test_summary.py",
)
_FOLDERS: Final = frozenset(name.partition("/")[0] for name in FILES if "/" in name)
#: The name of a file that is being written ends so.
_PART: Final = ".init-part"
_TRY_IT: Final = ("start", "summary", "--input", '{"text": "One. Two."}', "--in-process")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path())
@json_option
def init(*, folder: Path, as_json: bool) -> None:
    """Write a small project into FOLDER, by default this one.

    It has a catalog, two steps with their models, a gate, and a test that passes. FOLDER
    has to be new or empty; a virtual environment and .git may be in it.

    \b
    Example:
      leasehold init my-project
    """  # noqa: D301
    _write_project(folder)
    if as_json:
        print_json({"folder": str(folder), "files": FILES})
        return
    print_line(f"a new project in {folder.absolute()}: {', '.join(FILES)}")
    note("next:", f"{_enter(folder)}{command_line(*_TRY_IT, folder=folder)}")
    note("README.md says what is there, and how to test it")


def _enter(folder: Path) -> str:
    """Return what goes before a command that is for the folder."""
    if folder.resolve() == Path.cwd():
        return ""
    name = str(folder)
    return f"cd {shlex.quote(f'./{name}' if name.startswith('-') else name)} && "


def _write_project(folder: Path) -> None:
    template = resources.files(__package__) / "new-project"
    contents = {name: template.joinpath(name).read_bytes() for name in FILES}
    try:
        found = set(_files_of_ours(folder, contents)) if _is_folder(folder) else set()
        if found == set(FILES):
            raise _refusal(folder, "it has this project already; allowed: a new or empty folder")
        for name in FILES:
            if name not in found:
                _write(folder / name, contents[name])
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise _refusal(folder, f"{error.strerror}{where}") from error


def _is_folder(folder: Path) -> bool:
    """Return whether the folder is there; refuse what is there in its place."""
    if folder.is_dir():
        return True
    if folder.is_symlink():
        raise _refusal(folder, "it is a symbolic link that leads nowhere")
    if folder.exists():
        raise _refusal(folder, "a file of that name is in the way")
    return False


def _files_of_ours(project: Path, contents: Mapping[str, bytes], inside: str = "") -> Iterator[str]:
    """Yield which files an earlier `init` wrote; refuse a project that has any other."""
    for path in sorted((project / inside).iterdir()):
        name = inside + path.name
        if _is_written(path, contents.get(name)):
            yield name
        elif name in _FOLDERS and path.is_dir() and not path.is_symlink():
            yield from _files_of_ours(project, contents, f"{name}/")
        elif not (_is_unfinished(path, name) or (not inside and _may_be_there(path))):
            raise _refusal(project, f"it is not empty, it has {name!r}")


def _is_written(path: Path, content: bytes | None) -> bool:
    if content is None or path.is_symlink() or not path.is_file():
        return False
    return path.stat().st_size == len(content) and path.read_bytes() == content


def _is_unfinished(path: Path, name: str) -> bool:
    is_part = name.endswith(_PART) and name.removesuffix(_PART) in FILES
    return is_part and path.is_file() and not path.is_symlink()


def _may_be_there(path: Path) -> bool:
    """Return whether it is what people make first: a repository, a virtual environment."""
    return path.name == ".git" or (path / "pyvenv.cfg").is_file()


def _write(path: Path, content: bytes) -> None:
    """Write a file, which is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + _PART)
    part.unlink(missing_ok=True)
    with part.open("xb") as file:  # nor through a link in its place
        file.write(content)
    part.replace(path)


def _refusal(folder: Path, problem: str) -> click.ClickException:
    return click.ClickException(f"No project can be written into {str(folder)!r}: {problem}.")
