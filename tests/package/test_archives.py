"""What the sdist and the wheel hold: the package with all that it reads, and nothing beside it."""

from __future__ import annotations

import tarfile
import zipfile
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

from leasehold.cli.init import AGENT_FILES, FILES
from leasehold.registry.extras import EXTRAS
from tests.worlds.clean_environment import ROOT
from tests.worlds.deliveries import KINDS

Built = tuple[Path, Path]


def test_the_wheel_holds_the_package_and_the_entries_and_nothing_else(built: Built) -> None:
    names = zipfile.ZipFile(built[1]).namelist()

    assert {name.split("/")[0] for name in names} == {"leasehold", "leasehold-0.1.0.dist-info"}
    assert "leasehold/py.typed" in names
    assert not [name for name in names if "__pycache__" in name or ".egg-info" in name]


def test_the_wheel_holds_the_one_source_of_each_entry(built: Built) -> None:
    wheel = zipfile.ZipFile(built[1])
    entries = {
        path.name: path.read_bytes() for path in ROOT.glob("shared/leasehold/functions/*.py")
    }

    assert len(entries) >= 4
    for name, source in entries.items():
        assert wheel.read(f"leasehold/functions/{name}") == source


def test_the_wheel_holds_each_file_of_the_package(built: Built) -> None:
    """Pages, templates and what a deploy reads, too."""
    names = set(zipfile.ZipFile(built[1]).namelist())
    folder = ROOT / "shared"
    files = [path for path in (folder / "leasehold").rglob("*") if path.is_file()]

    of_package = {str(path.relative_to(folder)) for path in files if path.suffix != ".pyc"}

    assert len(of_package) > 300
    assert of_package <= names


def test_no_file_of_the_source_is_a_link() -> None:
    """A link in an archive would lead nowhere."""
    assert [path for path in (ROOT / "shared").rglob("*") if path.is_symlink()] == []


def test_the_wheel_holds_every_file_of_a_new_project(built: Built) -> None:
    names = zipfile.ZipFile(built[1]).namelist()

    held = {
        template: {name.partition(template)[2] for name in names if template in name}
        for template in ("leasehold/cli/new-project/", "leasehold/cli/new-agent/")
    }

    project, agent = held.values()
    assert project == set(FILES)
    assert agent <= set(AGENT_FILES) <= project | agent


def metadata_of(wheel: Path) -> Message:
    text = zipfile.ZipFile(wheel).read("leasehold-0.1.0.dist-info/METADATA")
    return HeaderParser().parsestr(text.decode())


def test_who_installs_leasehold_gets_nothing_of_this_repositorys_pipeline(built: Built) -> None:
    required = metadata_of(built[1]).get_all("Requires-Dist", [])

    needed = [line for line in required if "extra" not in line]

    assert sorted(line.split(">")[0] for line in needed) == [
        "click",
        "pydantic",
        "pyyaml",
        "rich",
        "tenacity",
    ]


def test_every_extra_that_a_message_names_is_there(built: Built) -> None:
    of_channels = {kind.needs[0] for kind in KINDS if kind.needs}

    assert {*EXTRAS, *of_channels} <= set(metadata_of(built[1]).get_all("Provides-Extra", []))


def test_the_sdist_holds_what_the_wheel_is_built_from_and_no_tests(built: Built) -> None:
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    assert {"pyproject.toml", "README.md", "shared/leasehold/functions/execute_step.py"} < names
    roots = {name.split("/")[0] for name in names if name}
    assert roots == {"PKG-INFO", "README.md", "pyproject.toml", "setup.cfg", "shared"}
