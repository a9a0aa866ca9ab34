"""`leasehold init`: a small project of one's own, whole or not at all.

What a cut-off `init` left is its own files, complete or under their own name until they are;
given again, the command goes on from there.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
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
#: Those of a project with an agent, as they are in the folder `new-agent`, or else in the other.
AGENT_FILES: Final = (
    *FILES[:5],
    "pipelines/research.py",
    "tests/test_research.py",
)
#: The name of a file that is being written ends so.
_PART: Final = ".init-part"
_ALLOWED: Final = "allowed: a new or empty folder, as in `leasehold init my-project`"
_TRY_IT: Final = ("start", "summary", "--input", '{"text": "One. Two."}', "--in-process")
_ASK_IT: Final = ("start", "research", "--input", '{"text": "What is a lease?"}', "--in-process")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path())
@click.option(
    "--agent",
    type=click.Choice(["pydantic-ai"]),
    help="The step is an agent of this library, with two tools; it needs the extra of that name.",
)
@json_option
def init(*, folder: Path, agent: str | None, as_json: bool) -> None:
    """Write a small project into FOLDER, by default this one.

    It has a catalog, steps with their models, and a test that passes. FOLDER has to be new or
    empty; a virtual environment and .git may be in it.

    \b
    Examples:
      leasehold init my-project
      leasehold init my-agent --agent pydantic-ai
    """  # noqa: D301
    files, try_it = (AGENT_FILES, _ASK_IT) if agent else (FILES, _TRY_IT)
    _write_project(folder, _contents(files, "new-agent" if agent else "new-project"))
    if as_json:
        print_json({"folder": str(folder), "files": files})
        return
    print_line(f"a new project in {folder.absolute()}: {', '.join(files)}")
    note("next:", f"{_enter(folder)}{command_line(*try_it, folder=folder)}")
    note("README.md says what is there, and how to test it")


def _contents(files: Sequence[str], template: str) -> dict[str, bytes]:
    """Return the files of a template; what it does not have itself is as in `new-project`."""
    package = resources.files(__package__)
    found = {}
    for name in files:
        own = package.joinpath(template, name)
        source = own if own.is_file() else package.joinpath("new-project", name)
        found[name] = source.read_bytes()
    return found


def _enter(folder: Path) -> str:
    """Return what goes before a command that is for the folder."""
    if folder.resolve() == Path.cwd():
        return ""
    name = str(folder)
    return f"cd {shlex.quote(f'./{name}' if name.startswith('-') else name)} && "


def _write_project(folder: Path, contents: Mapping[str, bytes]) -> None:
    try:
        found = set(_files_of_ours(folder, contents)) if _is_folder(folder) else set()
        if found == set(contents):
            raise _refusal(folder, f"it has this project already; {_ALLOWED}")
        for name, content in contents.items():
            if name not in found:
                _write(folder / name, content)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise _refusal(folder, f"{error.strerror}{where}") from error


def _is_folder(folder: Path) -> bool:
    """Return whether the folder is there; refuse what is there in its place."""
    if folder.is_dir():
        return True
    if folder.is_symlink():
        raise _refusal(folder, f"it is a symbolic link that leads nowhere; {_ALLOWED}")
    if folder.exists():
        raise _refusal(folder, f"a file of that name is in the way; {_ALLOWED}")
    return False


def _files_of_ours(project: Path, contents: Mapping[str, bytes], inside: str = "") -> Iterator[str]:
    """Yield which files an earlier `init` wrote; refuse a project that has any other."""
    for path in sorted((project / inside).iterdir()):
        name = inside + path.name
        if _is_written(path, contents.get(name)):
            yield name
        elif (
            any(each.startswith(f"{name}/") for each in contents)
            and path.is_dir()
            and not path.is_symlink()
        ):
            yield from _files_of_ours(project, contents, f"{name}/")
        elif not (_is_unfinished(path, name, contents) or (not inside and _may_be_there(path))):
            raise _refusal(project, f"it is not empty, it has {name!r}; {_ALLOWED}")


def _is_written(path: Path, content: bytes | None) -> bool:
    if content is None or path.is_symlink() or not path.is_file():
        return False
    return path.stat().st_size == len(content) and path.read_bytes() == content


def _is_unfinished(path: Path, name: str, contents: Mapping[str, bytes]) -> bool:
    is_part = name.endswith(_PART) and name.removesuffix(_PART) in contents
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
