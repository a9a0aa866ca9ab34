"""One attempt, one code: what is on disk may change under a server, and an import may take long."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.server.project import HOLDS, SAYS, Project
from tests.worlds.ports import own_port
from tests.worlds.waiting import until


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = Project(tmp_path)
    yield project
    project.close()


def write_version(project: Project, mark: str) -> None:
    """Marks have other lengths: Python keeps the code of a file by its second and its size."""
    project.write(
        a=HOLDS.format(mark=mark),
        b=SAYS.format(mark=mark),
        marks=f"MARK = 'marks-{mark}'\n",
        late=f"LATE = 'late-{mark}'\n",
    )


@pytest.mark.parametrize("isolation", ["", "inline"])
def test_a_change_on_disk_is_said_once_and_never_mixed_in(project: Project, isolation: str) -> None:
    """Not even what no attempt has imported until then; the next server has it all."""
    project.of_steps(a="", b="")
    write_version(project, "old")
    (project.folder / "hold").touch()
    api = project.serve(LEASEHOLD_ISOLATION=isolation)
    run_id = api.start("x", pipeline="p")
    until((project.folder / "told").exists)

    write_version(project, "newer")
    (project.folder / "hold").unlink()

    api.ended(run_id)
    assert api.call(f"/runs/{run_id}/output") == "a-old marks-old late-old b-old"
    assert len(project.has_said("the code on disk changed since this server started")) == 1
    second = api.start("x", pipeline="p")
    api.ended(second)
    assert api.call(f"/runs/{second}/output") == "a-old marks-old late-old b-old"
    assert len(project.has_said("the code on disk changed since this server started")) == 1

    project.close()
    api = project.serve(LEASEHOLD_ISOLATION=isolation)
    third = api.start("x", pipeline="p")
    api.ended(third)
    assert api.call(f"/runs/{third}/output") == "a-newer marks-newer late-newer b-newer"


@pytest.mark.sandboxed
def test_an_import_that_takes_longer_than_the_agent_timeout_costs_no_attempt(
    project: Project,
) -> None:
    project.of_steps(slow="agent_timeout=timedelta(seconds=1)")
    project.write(slow="import time\ntime.sleep(3)\ndef handle(ctx, given):\n    return 'done'\n")

    api = project.serve()
    run_id = api.start("x", pipeline="p")

    attempts = api.ended(run_id, 60)["attempts"]
    assert (attempts["failed"], attempts["interrupted"], attempts["expired"]) == (0, 0, 0)


HANGS = "import time\ntime.sleep(600)\ndef handle(ctx, given):\n    return 1\n"


@pytest.mark.sandboxed
def test_an_import_that_hangs_is_ended_at_its_own_limit_and_named(project: Project) -> None:
    project.of_steps(hangs="")
    project.write(hangs=HANGS)

    done = project.command("serve", "--port", str(own_port()), PIPELINE_IMPORT_TIMEOUT_S="1")

    assert done.returncode == 2
    assert "importing 'app.hangs' took longer than 1 s" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_does_not_begin_with_what_does_not_resolve(project: Project) -> None:
    """It says each thing in its own line, and begins all the same where that is asked for."""
    project.of_steps(a="", gone="", broken="")
    write_version(project, "old")
    project.write(broken="import no_such_package\n")

    done = project.command("serve", "--port", str(own_port()))

    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    assert len(lines) == 3
    assert "error: app/catalog.py:" in lines[0]
    assert "No module named 'app.gone'" in lines[0]
    assert "error: app/broken.py:1" in lines[1]
    assert "No module named 'no_such_package'" in lines[1]
    assert lines[2].startswith("not started: ")
    assert not (project.folder / ".leasehold").exists()

    api = project.serve("--allow-broken")

    assert api.call("/health")["status"] == "ok"
    project.has_said("No module named 'no_such_package'")


@pytest.mark.sandboxed
def test_dev_reloads_between_attempts_and_never_in_one(project: Project) -> None:
    project.of_steps(a="", b="")
    write_version(project, "old")
    api = project.serve("--reload", "--workers", "1", command="dev")
    first = api.start("x", pipeline="p")
    api.ended(first)
    assert api.call(f"/runs/{first}/output") == "a-old marks-old late-old b-old"

    write_version(project, "newer")
    project.has_said("the code on disk changed: the functions begin with it")

    def is_new() -> bool:
        run_id = api.start("x", pipeline="p")
        api.ended(run_id)
        a, *of_b = api.call(f"/runs/{run_id}/output").split()
        assert [word.rpartition("-")[2] for word in of_b] == 3 * [of_b[-1].rpartition("-")[2]]
        return bool(a == "a-newer" and of_b[-1] == "b-newer")

    until(is_new, 60)
    project.write(b="def (\n")
    project.has_said("app/b.py:1 is not Python (invalid syntax): the steps that import it block")


def test_dev_says_what_does_not_resolve_and_what_changed(project: Project) -> None:
    project.of_steps(a="", broken="")
    write_version(project, "old")
    project.write(broken="import no_such_package\n")

    project.serve(command="dev")

    project.has_said("warning: app/broken.py:1: Handler 'app.broken:handle' of step 'broken'")
    project.has_said("app/broken.py imports 'no_such_package', which is not installed")
    write_version(project, "newer")
    project.has_said("the code on disk changed since this server started")


def test_live_runs_are_compared_with_the_code_that_is_here(project: Project) -> None:
    """Before the deploy, a large input included; the server has the old code.

    The command asks the server, or reads the store itself.
    """
    project.of_steps(a="", b="")
    write_version(project, "old")
    (project.folder / "hold").touch()
    api = project.serve()
    run_id, large = api.start("x", pipeline="p"), api.start("x" * 800_000, pipeline="p")
    server = ["--url", api.url]

    fits = [project.command("check", "--live-runs", "--json", *way) for way in (server, [])]
    project.of_steps(a="")
    lacks = project.command("check", "--live-runs", "--json", *server)
    project.of_steps(a="", b="")
    typed = (
        (project.folder / "app" / "a.py").read_text().replace("(ctx, given)", "(ctx, given: int)")
    )
    project.write(a=typed)
    misfits = project.command("check", "--live-runs")

    for said in fits:
        assert (said.returncode, json.loads(said.stdout)) == (0, {"runs": []}), said.stderr
    assert lacks.returncode == 1
    found = json.loads(lacks.stdout)["runs"]
    assert {(one["runId"], one["step"], one["code"]) for one in found} == {
        (run_id, "b", "step_unknown"),
        (large, "b", "step_unknown"),
    }
    assert misfits.returncode == 1
    assert sorted(line.split(":")[0] for line in misfits.stdout.splitlines()) == sorted(
        f"{one} a input_mismatch" for one in (run_id, large)
    )
    assert "2 live runs looked at, 2 would not go on with this catalog" in misfits.stderr
    doctor = project.command("doctor")
    assert "2 live runs would block at step a (input_mismatch), such as r-" in doctor.stdout
