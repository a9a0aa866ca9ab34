"""A bundle is imported as a function imports it before anything is written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from leasehold.deploy.bundle import BundleError
from leasehold.deploy.bundle.assemble import assemble
from leasehold.deploy.bundle.contents import sources
from leasehold.deploy.bundle.requirements import closure_of, hashes_of
from leasehold.registry.function_table import FUNCTIONS
from tests.deploy.bundle.deployed import Image
from tests.deploy.cloud import deploy
from tests.worlds.clean_environment import ROOT

LAZY = """
from typing import TYPE_CHECKING
import hypothesis
if TYPE_CHECKING:
    import mypy
try:
    import ruff
except ImportError: ...
def greet(ctx, given):
    import mypy.api
    from google.cloud import build_v1
"""
LEFT_BEHIND = """
import atexit, os, subprocess, threading
os.write(1, b'\\xff said')
atexit.register(print, 'goodbye')
subprocess.Popen(['sleep', '600'])
threading.Thread(target=threading.Event().wait).start()
"""
HYPOTHESIS = "hypothesis"  # it is installed here, and no function needs it


def give(root: Path, steps: str) -> None:
    (root / "pipelines" / "steps.py").write_text(steps)


def test_a_step_that_needs_what_no_requirement_brings_is_refused(root: Path) -> None:
    give(root, f"import {HYPOTHESIS}\n\ndef greet(ctx, given): ...\n")

    with pytest.raises(BundleError) as refused:
        assemble(root, ["greet"], "pipelines.catalog")

    assert str(refused.value).startswith("pipelines/steps.py:1: Handler 'pipelines.steps:greet'")
    assert "No module named 'hypothesis'" in str(refused.value)
    assert "pipelines/requirements.txt, or an extra: --extra NAME" in str(refused.value)


def test_all_that_no_requirement_brings_is_named_at_once(root: Path) -> None:
    """`leasehold check`, which was said to name the others, sees all that is installed."""
    catalog = root / "pipelines/catalog.py"
    text = catalog.read_text().replace('step_type="greet"', "step_type=name")
    text = text.replace('"pipelines.steps:greet"', 'f"pipelines.{name}:greet"')
    text = text.replace("    ),\n])", '    ) for name in ("steps", "others")\n])')
    catalog.write_text(text.replace('steps=("greet",)', 'steps=("steps", "others")'))
    give(root, f"import {HYPOTHESIS}\n\ndef greet(ctx, given): ...\n")
    (root / "pipelines/others.py").write_text("import pytest\n\ndef greet(ctx, given): ...\n")

    with pytest.raises(BundleError) as refused:
        assemble(root, ["greet"], "pipelines.catalog")

    said = str(refused.value)
    assert said.startswith("pipelines/steps.py:1: Handler 'pipelines.steps:greet' of step 'steps'")
    assert "). pipelines/others.py:1: Handler 'pipelines.others:greet' of step 'others'" in said
    assert "No module named 'hypothesis'" in said
    assert "No module named 'pytest'" in said
    assert said.count("A function has only the bundle") == 1


def test_a_bundle_without_any_hash_names_a_few_packages(root: Path) -> None:
    """A new project without its hashes.txt got a line of two thousand characters."""
    (root / "hashes.txt").unlink(missing_ok=True)

    (unhashed,) = assemble(root, ["greet"], "pipelines.catalog").warnings

    assert unhashed.count("==") == 3
    assert " more packages: a build takes whatever the index has" in unhashed


def test_what_its_requirements_name_it_may_import_and_what_may_be_wrong_is_told(root: Path) -> None:
    """And nothing that an import prints or leaves behind is waited for, or part of the answer."""
    (root / "pipelines" / "requirements.txt").write_text(HYPOTHESIS)
    (root / "pipelines" / "keys.json").write_text('{"key": "ghp_0123456789abcdefghij"}')
    give(root, LAZY + LEFT_BEHIND)

    bundle = assemble(root, ["greet"], "pipelines.catalog")

    assert b"\nhypothesis==" in bundle.contents["requirements.txt"]
    remedy = "its name in pipelines/requirements.txt"
    unhashed, *others = bundle.warnings
    assert unhashed.startswith("no hash is known of hypothesis==")
    assert [(line.partition(",")[0], line.endswith(remedy)) for line in others] == [
        ("pipelines/steps.py:10 imports mypy.api", True),
        ("pipelines/steps.py:11 imports google.cloud.build_v1", True),
        (
            (
                "pipelines/keys.json: something in it looks like a secret; those belong in Secret "
                "Manager"
            ),
            False,
        ),
    ]


@pytest.mark.parametrize(
    ("end", "problem"),
    [
        ("os.execvp('true', ['true'])", "pipelines.catalog cannot be imported: exit 0"),
        pytest.param(
            "os.execvp('false', ['false'])",
            "pipelines.catalog cannot be imported: exit 1",
            marks=pytest.mark.nightly,
        ),
        ("os._exit(0)", r"pipelines/steps.py:2: .* raised SystemExit: os._exit\(0\)"),
    ],
)
def test_a_catalog_whose_import_ends_the_process_is_refused(
    root: Path, end: str, problem: str
) -> None:
    give(root, f"import os\n{end}\n")

    with pytest.raises(BundleError, match=problem):
        assemble(root, ["greet"], "pipelines.catalog")


def test_a_module_in_whose_place_a_package_would_be_imported_is_refused(root: Path) -> None:
    shutil.copytree(root / "pipelines", root / "click")

    with pytest.raises(BundleError, match=r"click is a module of a requirement too"):
        assemble(root, ["greet"], "click.catalog")


def test_the_same_repository_gives_the_same_bytes(image: Image) -> None:
    """Those that the command wrote in another process, with other settings."""
    contents = sources(ROOT, FUNCTIONS.keys(), "pipelines.catalog")
    contents["requirements.txt"] = (
        closure_of(ROOT, ["pipelines"], ["review"]).text(hashes_of(ROOT)).encode()
    )

    files = [path for path in image.bundle.rglob("*") if path.is_file() and path.suffix != ".pyc"]

    found = {path.relative_to(image.bundle).as_posix(): path.read_bytes() for path in files}
    found.pop("contents.sha256")
    assert found == contents


def test_the_command_refuses_in_one_line_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--out", str(tmp_path / "out"), "--extra", "gpu"]

    assert deploy(["bundle", *words]) == 2

    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert told.err.startswith("error: --extra gpu: there is none of that name; ")
    assert not (tmp_path / "out").exists()


def test_an_interrupt_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("leasehold.cli.deploy.bundle.assemble", interrupt)

    assert deploy(["bundle"]) == 130

    assert capsys.readouterr().err == "error: interrupted.\n"


def test_the_command_writes_nothing_into_what_it_reads(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert deploy(["bundle", "--out", str(ROOT / "pipelines" / "out")]) == 2

    assert "is in pipelines/, which is read; name another folder" in capsys.readouterr().err
