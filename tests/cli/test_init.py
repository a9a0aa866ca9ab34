"""A new project: written whole, or a folder that is left as it is and one line that says why."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from leasehold.cli import init
from tests.worlds.shell import Shell, only_line

FIRST = init.FILES[0]


@pytest.fixture
def shell(empty: Shell) -> Shell:
    return empty


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def refused(shell: Shell, *words: str) -> str:
    before = sorted(shell.folder.rglob("*"))
    done = shell.run("init", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert sorted(shell.folder.rglob("*")) == before
    return only_line(done.stderr)


def names_in(template: str) -> set[str]:
    folder = Path(init.__file__).with_name(template)
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)) for path in files if "__pycache__" not in path.parts}


def test_every_file_of_a_template_is_written() -> None:
    assert names_in("new-project") == set(init.FILES)
    assert names_in("new-agent") < set(init.AGENT_FILES)
    assert set(init.AGENT_FILES) <= names_in("new-agent") | names_in("new-project")


def test_a_project_with_an_agent_is_written_and_no_other_agent(shell: Shell) -> None:
    """It works: see tests/integrations/."""
    done = shell.run("init", "new", "--agent", "pydantic-ai")

    assert done.returncode == 0, done.stderr
    assert set(contents(shell.folder / "new")) == set(init.AGENT_FILES)
    assert "start research" in done.stderr
    assert "'pydantic-ai'" in refused(shell, "other", "--agent", "pydantic")


@pytest.mark.parametrize("name", [".", "new", "with a space", "'; echo", "a/b/c", "-dash"])
def test_a_project_is_written_and_its_next_command_works(shell: Shell, name: str) -> None:
    done = shell.run("init", "--", name)

    assert done.returncode == 0, done.stderr
    assert set(contents(shell.folder / name)) == set(init.FILES)
    *enter, command = done.stderr.splitlines()[0].removeprefix("next: ").split(" && ")
    entered = {".": [], "-dash": [["cd", "./-dash"]]}  # `cd -dash` takes it for an option
    assert [shlex.split(line) for line in enter] == entered.get(name, [["cd", name]])
    shell.folder /= name
    ran = shell.run(*shlex.split(command)[3:])  # without `python -m leasehold`
    assert ran.returncode == 0, ran.stderr


def test_what_was_written_is_said_in_json(shell: Shell) -> None:
    assert shell.json("init", "new") == {"folder": "new", "files": list(init.FILES)}


@pytest.mark.parametrize("name", ["notes.txt", ".hidden", FIRST, "pipelines"])
def test_a_folder_that_is_not_empty_is_left_as_it_is(shell: Shell, name: str) -> None:
    (shell.folder / name).write_text("mine")

    line = refused(shell)

    assert "No project can be written into '.': it is not empty" in line
    assert repr(name) in line
    assert "allowed: a new or empty folder, as in `leasehold init my-project`." in line


def test_a_file_in_a_folder_of_the_project_is_somebodys_too(shell: Shell) -> None:
    (shell.folder / "tests").mkdir()
    (shell.folder / "tests" / "mine.py").touch()

    assert "it is not empty, it has 'tests/mine.py'" in refused(shell)


def test_a_project_that_is_there_already_is_refused(shell: Shell) -> None:
    shell.run("init")

    assert "it has this project already" in refused(shell)


def test_a_repository_and_a_virtual_environment_may_be_there(shell: Shell) -> None:
    for name in (".git/HEAD", ".venv/pyvenv.cfg"):
        (shell.folder / name).parent.mkdir()
        (shell.folder / name).touch()

    assert shell.run("init").returncode == 0


@pytest.mark.parametrize("written", range(len(init.FILES)))
def test_what_was_cut_off_is_completed_when_the_command_is_given_again(
    shell: Shell, written: int
) -> None:
    shell.run("init", "whole")
    shell.run("init", "cut-off")
    half = shell.folder / "cut-off"
    for name in init.FILES[written:]:
        (half / name).unlink()
    unfinished = half / f"{init.FILES[written]}.init-part"
    unfinished.write_bytes(b"half of")

    done = shell.run("init", "cut-off")

    assert done.returncode == 0, done.stderr
    assert contents(half) == contents(shell.folder / "whole")


def test_what_is_in_the_way_is_named(shell: Shell) -> None:
    (shell.folder / "file").touch()
    (shell.folder / "nowhere").symlink_to("no-such-folder")

    assert "'file': a file of that name is in the way" in refused(shell, "file")
    assert "Not a directory" in refused(shell, "file/new")
    assert "'nowhere': it is a symbolic link that leads nowhere" in refused(shell, "nowhere")
    assert "File name too long" in refused(shell, "x" * 300)


def test_a_folder_that_takes_no_files_is_named(shell: Shell) -> None:
    assert "'/proc/new'" in refused(shell, "/proc/new")


def test_nothing_is_written_through_a_link(shell: Shell, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "new").mkdir()
    for name in ("pipelines", FIRST, f"{FIRST}.init-part"):
        (tmp_path / "new" / name).symlink_to(elsewhere)

        assert "it is not empty" in refused(shell, "new")

        (tmp_path / "new" / name).unlink()


def test_a_link_to_an_empty_folder_is_that_folder(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")

    assert shell.run("init", "link").returncode == 0
    assert set(contents(tmp_path / "real")) == set(init.FILES)
