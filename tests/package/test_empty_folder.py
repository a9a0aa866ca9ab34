"""From an empty folder and the wheel alone to a project whose runs outlive kill -9."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.clean_environment import CleanEnvironment
from tests.worlds.ports import own_port
from tests.worlds.waiting import until

GIVEN = '{"text": "One. Two."}'
#: The user's own change of the project: a step that can be caught in the middle.
CALL = "points.append(sentence)  # a call that is slow or costs money belongs here\n"
SLOW_CALL = f"""{CALL}
        while Path("hold").exists():
            Path("began").touch()
            time.sleep(0.02)
"""
IMPORTS = "import time\nfrom pathlib import Path\n\nfrom pydantic import"


@dataclass
class Project:
    """A new project in a folder whose name has a space, as its user works in it."""

    environment: CleanEnvironment
    folder: Path

    def do(self, *command: str) -> str:
        """Run a command line that works; return what it prints."""
        done = self.environment.run(*command, cwd=self.folder)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.do("leasehold", *words, "--json"))

    def was_killed(self, run_id: str) -> bool:
        """Return whether the trace has an attempt whose worker was lost."""
        events = self.json("trace", run_id)["events"]
        return "step_terminated" in {event["type"] for event in events}

    def hold(self) -> None:
        """Have the step wait in the middle of its first attempt."""
        (self.folder / "began").unlink(missing_ok=True)
        (self.folder / "hold").touch()

    def wait_until_held(self) -> None:
        until((self.folder / "began").exists)

    def let_go(self) -> None:
        (self.folder / "hold").unlink()

    @contextlib.contextmanager
    def process(self, *command: str) -> Iterator[subprocess.Popen[str]]:
        process = self.environment.begin(*command, cwd=self.folder)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    @contextlib.contextmanager
    def server(self, command: str, port: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
        """Serve the project; give the process and its address."""
        with self.process("leasehold", command, "--port", str(port)) as process:
            assert process.stdout is not None
            word, _, url = process.stdout.readline().strip().partition(" ")
            assert word == "ready"
            yield process, url


@pytest.fixture
def project(complete: CleanEnvironment, tmp_path: Path) -> Project:
    done = complete.run("leasehold", "init", "my project", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return Project(complete, tmp_path / "my project")


@pytest.mark.nightly  # the gate has its test in the tutorial, and its types in docs/test_types.py
def test_a_new_project_passes_its_own_test_and_the_strictest_types(project: Project) -> None:
    assert "3 passed" in project.do("python", "-m", "pytest")
    assert "no issues found in 4 source files" in project.do("python", "-m", "mypy")


@pytest.mark.nightly  # the gate has that of the tutorial, whose server is killed
def test_a_run_of_a_step_of_ones_own_outlives_kill_9(project: Project) -> None:
    """In its own process, and under `serve`; its result is read, and it is purged."""
    _write_own_step(project)
    project.do("leasehold", "check")
    _killed_in_process(project)
    _killed_server(project)
    _output(project)
    _purge(project)


@pytest.mark.nightly  # the gate forks them: `served` in test_deployed_project.py
def test_the_functions_come_with_the_wheel(project: Project) -> None:
    with project.server("dev", own_port()) as (server, url):
        run = project.json("start", "summary", "--input", GIVEN, "--url", url, "--wait")
        server.send_signal(signal.SIGTERM)
        code = server.wait(timeout=60)

    assert run["status"] == "COMPLETED"
    assert code == 0


def _write_own_step(project: Project) -> None:
    file = project.folder / "pipelines" / "summary.py"
    text = file.read_text()
    assert text.count(CALL) == 1
    file.write_text(text.replace(CALL, SLOW_CALL).replace("from pydantic import", IMPORTS))


def _killed_in_process(project: Project) -> None:
    start = ("start", "summary", "--input", GIVEN, "--idempotency-key", "k", "--in-process")
    project.hold()
    with project.process("leasehold", *start) as process:
        project.wait_until_held()
        process.kill()
    project.let_go()

    run = project.json(*start)

    assert run["status"] == "COMPLETED"
    assert project.was_killed(run["runId"])


def _killed_server(project: Project) -> None:
    port = own_port()
    project.hold()
    with project.server("serve", port) as (server, url):
        run_id = project.json("start", "summary", "--input", GIVEN, "--url", url)["runId"]
        project.wait_until_held()
        server.kill()
    project.let_go()

    with project.server("serve", port) as (server, url):
        until(lambda: project.json("show", run_id, "--url", url)["status"] == "COMPLETED")
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=60) == 0

    assert project.was_killed(run_id)


def _output(project: Project) -> None:
    (newest, *_) = project.json("runs")["runs"]

    assert project.json("output", newest["runId"]) == {"text": "One; Two"}


def _purge(project: Project) -> None:
    """A purge is of runs that ended long ago: here, a second."""

    def is_empty() -> bool:
        project.do("leasehold", "purge", "--older-than", "1s")
        return not project.json("runs")["runs"]

    until(is_empty)
