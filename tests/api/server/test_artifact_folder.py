"""Servers whose folder of artifacts goes away under running steps, and at their start."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.api.server.project import Project
from tests.worlds.bundles import Api
from tests.worlds.ports import own_port
from tests.worlds.waiting import until

#: What it makes is kept in a file. It waits for as long as its file `hold` is there.
MAKES = """
from pathlib import Path
def handle(ctx, given):
    with Path("made").open("a") as made:
        made.write(given + "\\n")
    while Path("hold").exists():
        ctx.wait_or_shutdown(0.05)
    return given * 40_000
"""

TAKES = """
def handle(ctx, given):
    ctx.artifacts.put("report.txt", given[:1].encode())
    return [given[0], len(given)]
"""

#: No retry, so that a run that is blamed for an outage is given up.
SETTINGS = {
    "PIPELINE_MAX_RETRIES": "0",
    "PIPELINE_MAX_BACKOFF_S": "1",
    "PIPELINE_LEASE_TTL_S": "3",
    "PIPELINE_HEARTBEAT_S": "0.5",
}
AWAY = "its mark is missing: it is not mounted, or it is lost. Mount it"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = Project(tmp_path, SETTINGS)
    project.of_steps(makes="", takes="")
    project.write(makes=MAKES, takes=TAKES)
    yield project
    project.close()


def artifacts(project: Project) -> Path:
    return project.folder / ".leasehold" / "artifacts"


def unmount(project: Project) -> Path:
    """Leave an empty folder in its place, as a mount point is."""
    mounted = artifacts(project).rename(project.folder / "mounted")
    artifacts(project).mkdir()
    return mounted


def mount(mounted: Path, project: Project) -> None:
    artifacts(project).rmdir()
    mounted.rename(artifacts(project))


def made(project: Project, word: str) -> int:
    """Wait until the first handler was called with a word; return how often that was."""
    calls = project.folder / "made"
    until(lambda: calls.exists() and word in calls.read_text())
    return calls.read_text().split().count(word)


def check(api: Api, runs: Mapping[str, str]) -> None:
    """Each run has ended, with an output and its own file, and met no failure."""
    for run_id, word in runs.items():
        done = api.ended(run_id, 60)
        assert done["attempts"]["failed"] == 0
        assert api.call(f"/runs/{run_id}/output") == [word, 40_000]
        assert [one["name"] for one in api.call(f"/runs/{run_id}/files")["files"]] == ["report.txt"]


@pytest.mark.sandboxed
def test_a_folder_that_vanishes_under_running_steps_loses_nothing_and_nothing_is_paid_twice(
    project: Project,
) -> None:
    """The log, `why`, `audit` and the doctor report it in the same words."""
    api = project.serve("--workers", "3")
    runs = {api.start("a", pipeline="p"): "a"}
    check(api, runs)
    (project.folder / "hold").touch()
    held = api.start("b", pipeline="p")
    made(project, "b")

    mounted = unmount(project)
    (project.folder / "hold").unlink()
    late = api.start("c", pipeline="p")
    project.has_said(AWAY)
    said = {words: project.command(*words) for words in (("why", held), ("audit",), ("doctor",))}
    made(project, "c")
    left = list(artifacts(project).iterdir())
    mount(mounted, project)
    check(api, runs | {held: "b", late: "c"})

    assert left == []
    for done in said.values():
        assert AWAY in done.stdout + done.stderr
    assert [made(project, word) for word in "abc"] == [1, 1, 1]


def test_a_server_that_starts_while_the_folder_is_away_begins_no_new_store(
    project: Project,
) -> None:
    """It never saw the folder: it stored its own runs' files in the mount point."""
    first = project.serve()
    runs = {first.start("a", pipeline="p"): "a"}
    check(first, runs)
    (project.folder / "hold").touch()
    runs |= {first.start(word, pipeline="p"): word for word in ("b", "c")}
    made(project, "c")
    project.close()

    mounted = unmount(project)
    (project.folder / "hold").unlink()
    second = project.serve()
    runs |= {second.start("d", pipeline="p"): "d"}
    project.has_said(AWAY)
    made(project, "d")
    left = list(artifacts(project).iterdir())
    mount(mounted, project)

    check(second, runs)
    assert left == []


class Namespace:
    """A shell with mounts of its own, in which a server is started."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._shell = subprocess.Popen(
            ["unshare", "--user", "--map-root-user", "--mount", "sh"],  # noqa: S607 - by PATH
            cwd=project.folder,
            env=project.environ(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def type(self, line: str) -> str:
        """Type a line, and return its exit code."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"{line}\necho exit $?\n")
        self._shell.stdin.flush()
        return next((one.strip() for one in self._shell.stdout if one.startswith("exit ")), "")

    def serve(self) -> Api:
        port = own_port()
        serve = f"{sys.executable} -m leasehold serve --port {port}"
        assert self.type(f"{serve} >ready 2>>said & trap 'kill -9 $!' EXIT") == "exit 0"
        ready = self._project.folder / "ready"
        until(lambda: ready.exists() and ready.read_text(), 60)
        return Api(f"http://127.0.0.1:{port}")

    def close(self) -> None:
        """End the shell, and with it the server."""
        self._shell.communicate()


@pytest.fixture
def namespace(project: Project) -> Iterator[Namespace]:
    if shutil.which("unshare") is None:
        pytest.skip("this machine has no unshare")
    namespace = Namespace(project)
    yield namespace
    namespace.close()


def test_a_mount_that_goes_under_a_server_and_comes_back_loses_nothing(
    project: Project, namespace: Namespace
) -> None:
    """As `umount` does it: the mount point is there, and empty."""
    disk = project.folder / "disk"
    for folder in (disk, artifacts(project)):
        folder.mkdir(parents=True)
    bind = "mount --bind disk .leasehold/artifacts"
    if namespace.type(bind) != "exit 0":
        pytest.skip("nobody but root may mount here")
    api = namespace.serve()
    runs = {api.start("a", pipeline="p"): "a"}
    check(api, runs)
    (project.folder / "hold").touch()
    runs |= {api.start("b", pipeline="p"): "b"}
    made(project, "b")

    assert namespace.type("umount .leasehold/artifacts") == "exit 0"
    (project.folder / "hold").unlink()
    project.has_said(AWAY)
    assert namespace.type(bind) == "exit 0"
    check(api, runs)

    assert list(artifacts(project).iterdir()) == []
    assert len(list(disk.glob(".store-*"))) == 1
    assert [made(project, word) for word in "ab"] == [1, 1]
