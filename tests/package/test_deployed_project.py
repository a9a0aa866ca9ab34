"""From an empty folder and the wheel alone to a project that is bundled, planned and deployed.

Played: Google's APIs, gcloud, and what a build installs. The runs API is that of `leasehold dev`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from pathspec import GitIgnoreSpec

from leasehold.cli.exit_codes import DONE
from tests.deploy.build_machine import BuildMachine
from tests.deploy.cloud import Cloud, cloud_servers, deploy
from tests.deploy.cloud_run import BY_TOKEN, cloud_run
from tests.deploy.deployment import RECORDED, Deployment
from tests.deploy.recorder import Recorder
from tests.worlds.clean_environment import CleanEnvironment
from tests.worlds.emulators import firestore_host, need_firestore, need_pubsub
from tests.worlds.forked_commands import DEVELOPED, forked_commands
from tests.worlds.ports import own_port

REGION = "europe-west1"
WRITTEN = (
    *("deployment.py", ".gcloudignore", "requirements.txt", "constraints.txt", "hashes.txt"),
    "cloudbuild.yaml",
)
NO_RUN = "SMOKE: Final[tuple[str, Any] | None] = None"
A_RUN = 'SMOKE: Final[tuple[str, Any] | None] = ("summary", {"text": "One. Two."})'
FUNCTIONS_EMULATOR = "LEASEHOLD_FUNCTIONS_EMULATOR"

#: What `leasehold deploy` imports when it is called, for seconds.
CLIENTS = (
    *(
        "leasehold.cli.deploy.provision",
        "leasehold.cli.deploy.bundle",
        "leasehold.cli.deploy.smoke",
    ),
    *("leasehold.adapters.firestore", "google.cloud.cloudquotas_v1", "google.cloud.iam_admin_v1"),
    *("google.cloud.firestore_admin_v1", "google.cloud.logging_v2", "google.cloud.monitoring_v3"),
    *("google.cloud.resourcemanager_v3", "google.cloud.run_v2", "google.cloud.scheduler_v1"),
    *("google.cloud.secretmanager_v1", "google.cloud.storage", "google.cloud.tasks_v2"),
    *("google.pubsub_v1", "google.oauth2.id_token", "google.auth.transport.requests"),
)

#: Plays pip's index: of each package that is asked for, a wheel with this hash.
PIP = """
import hashlib, json, sys
(report,) = [word[9:] for word in sys.argv if word.startswith("--report=")]
pins = [word for word in sys.argv[1:] if "==" in word and not word.startswith("-")]
install = [
    {
        "metadata": {"name": pin.partition("==")[0]},
        "download_info": {
            "archive_info": {"hashes": {"sha256": hashlib.sha256(pin.encode()).hexdigest()}}
        },
    }
    for pin in pins
]
json.dump({"install": install}, open(report, "w"))
"""


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of modules that has a pip with an index that knows all packages."""
    folder = tmp_path_factory.mktemp("index")
    (folder / "pip").mkdir()
    (folder / "pip/__main__.py").write_text(PIP)
    return folder


@pytest.fixture(scope="module")
def forking(deploying: CleanEnvironment) -> Iterator[CleanEnvironment]:
    """That environment, which imports all that is needed once for all commands."""
    with forked_commands(deploying.environ, *CLIENTS, *DEVELOPED) as environ:
        first, *_ = environ["PATH"].split(os.pathsep)
        yield replace(deploying, first=Path(first))


@pytest.fixture(scope="module")
def made(forking: CleanEnvironment, index: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project as two commands make it, with its environment in it."""
    folder = tmp_path_factory.mktemp("made") / "shop"
    (folder / ".venv").mkdir(parents=True)
    (folder / ".venv/bin").symlink_to(forking.programs)
    (folder / ".venv/pyvenv.cfg").symlink_to(forking.folder / "pyvenv.cfg")
    for words in ((), ("deploy",)):
        done = forking.run("leasehold", *words, "init", cwd=folder, PYTHONPATH=str(index))
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """Such a project of the test's own."""
    return Path(shutil.copytree(made, tmp_path / "shop", symlinks=True))


@contextlib.contextmanager
def served(environment: CleanEnvironment, folder: Path) -> Iterator[str]:
    """Serve the functions of the project; give the address of its runs API."""
    dev = ("leasehold", "dev", "--port", str(own_port()), "--workers", "1")
    process = environment.begin(*dev, cwd=folder)
    try:
        assert process.stdout is not None
        word, _, url = process.stdout.readline().strip().partition(" ")
        assert word == "ready"
        yield url
    finally:
        process.terminate()
        process.communicate()


def test_a_new_project_gets_what_it_is_deployed_with(made: Path) -> None:
    (wheel,) = (made / "wheels").iterdir()
    build = yaml.safe_load((made / "cloudbuild.yaml").read_text())

    assert all((made / name).is_file() for name in WRITTEN)
    assert (made / "requirements.txt").read_text() == (
        f"-c constraints.txt\n./wheels/{wheel.name}[deploy]\n"
    )
    assert build["steps"][0]["id"] == "install"  # no gate of anybody else
    assert "make" not in json.dumps(build)


def test_what_is_private_in_a_new_project_is_not_uploaded(made: Path) -> None:
    private = [".env", "prod.env", "pipelines/.env.local", "key.pem", ".leasehold/leasehold.db"]
    needed = ["deployment.py", "pipelines/catalog.py", "wheels/leasehold-0.1.0-py3-none-any.whl"]

    rules = GitIgnoreSpec.from_lines((made / ".gcloudignore").read_text().splitlines())

    assert [*rules.match_files([*private, *needed])] == private


def test_what_is_the_projects_own_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    tables = folder / "deployment.py"
    tables.write_text(tables.read_text().replace(NO_RUN, A_RUN))

    stale = deploy(["init", "--check"]), capsys.readouterr().err
    tables.rename(folder / "elsewhere")
    absent = deploy(["init", "--check"]), capsys.readouterr().err
    (folder / "elsewhere").rename(tables)
    again = deploy(["init"]), capsys.readouterr().out
    (folder / "cloudbuild.yaml").write_text("steps: []\n")
    refused = deploy(["init"]), capsys.readouterr().err

    assert stale == (1, "error: cloudbuild.yaml is stale; type: leasehold deploy init\n")
    assert absent == (1, "error: there is no deployment.py; type: leasehold deploy init\n")
    assert again == (0, "written: cloudbuild.yaml\n")
    assert A_RUN in tables.read_text()
    assert refused[0] == 2
    assert "is not one that this command wrote: move it away" in refused[1]


def test_a_package_that_the_pipelines_newly_need_gets_its_version_and_its_hash(
    forking: CleanEnvironment, folder: Path, index: Path
) -> None:
    """A build would take the newest one, without a hash: two builds of a commit would differ."""
    pin = f"annotated-types=={version('annotated-types')}"
    kept = {"constraints.txt": "mine==1.0\n", "hashes.txt": f"mine==1.0 --hash=sha256:{'0' * 64}\n"}
    for name, own in kept.items():
        lines = (folder / name).read_text().splitlines(keepends=True)
        kept[name] = own + "".join(line for line in lines if not line.startswith(pin))
        (folder / name).write_text(kept[name])
    (folder / "pipelines/requirements.txt").write_text("annotated-types\n")

    done = forking.run("leasehold", "deploy", "init", cwd=folder, PYTHONPATH=str(index))

    assert done.stdout == "written: constraints.txt, hashes.txt\n"
    assert re.search(r"^Python 3\.\d+: (\d+) of \1 packages$", done.stderr, re.MULTILINE)
    for name, before in kept.items():
        (added,) = {*(folder / name).read_text().splitlines()} - {*before.splitlines()}
        assert {*before.splitlines()} < {*(folder / name).read_text().splitlines()}
        assert added.startswith(pin)


def test_a_wheel_or_a_version_that_a_build_needs_and_is_not_there_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    (wheel,) = (folder / "wheels").iterdir()
    wheel.unlink()
    for name in ("constraints.txt", "hashes.txt"):
        (folder / name).unlink()

    code = deploy(["init", "--check"])

    assert code == 1
    assert capsys.readouterr().err == (
        "error: there is no constraints.txt; type: leasehold deploy init\n"
        "error: there is no hashes.txt; type: leasehold deploy init\n"
        f"error: there is no wheels/{wheel.name}, which requirements.txt installs; type: leasehold "
        "deploy init\n"
    )


def test_a_wheel_that_is_gone_is_put_back(
    forking: CleanEnvironment, folder: Path, index: Path
) -> None:
    shutil.rmtree(folder / "wheels")

    done = forking.run("leasehold", "deploy", "init", cwd=folder, PYTHONPATH=str(index))

    assert (done.returncode, done.stdout) == (0, "written: wheels/\n")
    assert [file.suffix for file in (folder / "wheels").iterdir()] == [".whl"]


def test_another_build_of_the_same_version_is_put_back_too(
    forking: CleanEnvironment, folder: Path, index: Path
) -> None:
    """Until there are releases, each checkout makes a wheel of the same name."""
    (wheel,) = (folder / "wheels").iterdir()
    installed = wheel.read_bytes()
    wheel.write_bytes(b"of yesterday")

    stale = forking.run("leasehold", "deploy", "init", "--check", cwd=folder)
    done = forking.run("leasehold", "deploy", "init", cwd=folder, PYTHONPATH=str(index))

    words = f"error: wheels/{wheel.name} is another build of Leasehold 0.1.0 than the one here"
    assert (stale.returncode, stale.stderr) == (1, f"{words}; type: leasehold deploy init\n")
    assert (done.returncode, done.stdout) == (0, "written: wheels/\n")
    assert wheel.read_bytes() == installed


def test_another_leasehold_that_is_installed_here_is_what_a_build_installs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A build went on with the version that the folder was made with, and nothing said so."""
    monkeypatch.chdir(folder)
    requirements = folder / "requirements.txt"
    before = f"{requirements.read_text()}mine==1.0\n"
    requirements.write_text(before.replace("leasehold-0.1.0-", "leasehold-0.0.9-"))

    stale = deploy(["init", "--check"]), capsys.readouterr().err
    renewed = deploy(["init"]), capsys.readouterr().out
    fresh = deploy(["init", "--check"]), capsys.readouterr().err

    said = "error: requirements.txt installs Leasehold 0.0.9, and 0.1.0 is here"
    assert stale == (1, f"{said}; type: leasehold deploy init\n")
    assert renewed == (0, "written: wheels/, requirements.txt\n")
    assert fresh == (0, "")
    assert requirements.read_text() == before


def test_a_build_of_another_day_does_not_hide_the_one_that_is_there(
    forking: CleanEnvironment, folder: Path, index: Path
) -> None:
    """It was copied anew from where it was installed from, and refused where that is gone."""
    (wheel,) = (folder / "wheels").iterdir()
    os.utime(wheel, (0, 0))
    requirements = folder / "requirements.txt"
    before = requirements.read_text()
    for number in range(9):
        other = wheel.with_name(wheel.name.replace("0.1.0-", f"0.1.0-{number}-"))
        other.write_bytes(b"of yesterday")
    requirements.write_text(before.replace(wheel.name, other.name))

    done = forking.run("leasehold", "deploy", "init", cwd=folder, PYTHONPATH=str(index))

    assert (done.returncode, done.stderr.count("error")) == (0, 0)
    assert requirements.read_text() == before
    assert wheel.stat().st_mtime == 0


def test_a_line_of_the_wheel_is_renewed_in_a_file_of_another_system(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its other lines are the project's own, byte by byte."""
    monkeypatch.chdir(folder)
    requirements = folder / "requirements.txt"
    before = b"# caf\xe9\r\n" + requirements.read_bytes().replace(b"\n", b"\r\n")
    requirements.write_bytes(before.replace(b"leasehold-0.1.0-", b"leasehold-0.0.9-"))

    codes = deploy(["init", "--check"]), deploy(["init"]), deploy(["init", "--check"])

    assert codes == (1, 0, 0), capsys.readouterr().err
    assert requirements.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "is_folder", "code"),
    [
        ("cloudbuild.yaml", True, 2),
        ("requirements.txt", True, 2),
        ("constraints.txt", True, 0),  # the rest is written
        ("hashes.txt", True, 0),
        ("hashes.txt", False, 0),
        ("cloudbuild.yaml", False, 2),
        ("wheels", False, 2),
    ],
)
def test_what_is_in_the_way_of_a_file_is_named(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    is_folder: bool,
    code: int,
) -> None:
    monkeypatch.chdir(folder)
    path = folder / name
    path.rename(folder / "elsewhere")
    if is_folder:
        path.mkdir()
    else:
        path.write_bytes(b"\xff\xfe")

    done = deploy(["init"])

    first, *others = capsys.readouterr().err.splitlines()
    assert done == code
    assert name in first
    assert first.startswith("warning: " if code == 0 else "error: ")
    assert "unexpected" not in first
    assert not any("pip is asked" in line for line in others)


def test_where_no_hash_can_be_looked_up_the_rest_is_written(
    forking: CleanEnvironment, folder: Path
) -> None:
    (folder / "hashes.txt").unlink()
    (folder / "constraints.txt").unlink()

    done = forking.run("leasehold", "deploy", "init", cwd=folder)

    assert (done.returncode, done.stdout) == (0, "written: constraints.txt\n")
    said, *others = done.stderr.splitlines()
    assert said == "pip is asked for the hash of each package, which can take some minutes"
    assert others[0].startswith("warning: pip is not installed beside Leasehold; type: ")
    assert others[0].endswith(" -m ensurepip; then type: leasehold deploy init")
    assert "then type: leasehold deploy init\n" in done.stderr
    assert not (folder / "hashes.txt").exists()


def test_a_new_project_is_bundled_planned_and_deployed(
    forking: CleanEnvironment, folder: Path, tmp_path: Path
) -> None:
    """And two builds of one commit install the same."""
    need_firestore()
    need_pubsub()
    tables = folder / "deployment.py"
    tables.write_text(tables.read_text().replace(NO_RUN, A_RUN))
    recorder = Recorder(tmp_path / "recorder", *RECORDED)
    with (
        cloud_servers() as make_cloud,
        served(forking, folder) as url,
        cloud_run(url) as front,
    ):
        cloud = make_cloud()
        environ = forking.environ | cloud.environ | {FUNCTIONS_EMULATOR: front.url}
        environ |= {"FIRESTORE_EMULATOR_HOST": firestore_host()}
        environ["PATH"] = f"{recorder.bin}:{environ['PATH']}"

        def do(*words: str) -> str:
            place = {"GOOGLE_CLOUD_PROJECT": cloud.project, "LEASEHOLD_REGION": REGION}
            done = forking.run("leasehold", "deploy", *words, cwd=folder, **environ, **place)
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        with contextlib.chdir(folder):
            assert deploy(["init"]) == DONE
        planned = do("plan", "--json")
        assert cloud.writes() == []
        machine = BuildMachine(folder, environ | BY_TOKEN)
        made = Deployment(cloud, recorder, machine, environ, url)
        machine.after = made.make_service
        made.build(already=("install", "connect"))  # as that applies what is applied once more

    states = {step["name"]: step["state"] for step in json.loads(planned)["resources"]}
    assert states["outline"] == "missing"
    bundled = machine.done["bundle"]
    assert (bundled.stdout.partition(": ")[0], bundled.stderr) == ("build/bundle", "")
    assert " of summary completed in " in machine.done["smoke"].stdout
    check_pins(folder)
    check_deploys(made, folder, cloud)


def check_pins(folder: Path) -> None:
    """Look at whether a build and its functions install the packages that are here, by hash."""
    pins = (folder / "constraints.txt").read_text().splitlines()
    lines = (folder / "build/bundle/requirements.txt").read_text().splitlines()[1:]

    assert f"click=={version('click')}" in pins
    assert f"google-cloud-run=={version('google-cloud-run')}" in pins  # a build needs it
    assert not any(pin.startswith("leasehold") for pin in pins)
    assert {line.partition(" ")[0].rstrip(";") for line in lines} <= {*pins}
    assert all(" --hash=sha256:" in line for line in lines)


def check_deploys(made: Deployment, folder: Path, cloud: Cloud) -> None:
    """Look at what each function is deployed from, and with."""
    rows = ("execute-step", "serve-api", "manage-lease", "sweep-dead-letters")
    for service in (*rows, "deliver-notification"):
        call = made.deploy(service)
        assert call.cwd == str(folder)
        settings: dict[str, Any] = yaml.safe_load(
            (folder / str(call.flag("--env-vars-file"))).read_text()
        )
        assert settings["LEASEHOLD_STORE"] == f"firestore://{cloud.project}/(default)"
    bundle = folder / "build/bundle"
    table = (bundle / "leasehold/registry/function_table.py").read_text()
    assert table == (folder / "deployment.py").read_text()
    assert (bundle / "pipelines/catalog.py").is_file()
    assert not (bundle / "leasehold/deploy").exists()
