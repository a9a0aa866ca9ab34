"""docs/recipes.md: what can be run here is run, and the rest is read as its program reads it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from leasehold.services.shut_down import GRACE_S
from tests.docs.test_commands import refusal
from tests.worlds.forked_commands import SERVED, forked_commands
from tests.worlds.typed_page import Saved, Terminal, steps_of, typed

PAGE = (Path(__file__).parents[2] / "docs/recipes.md").read_text()

ANALYZE = shutil.which("systemd-analyze")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.defpath])
    home = str(tmp_path_factory.mktemp("home"))
    settings = {"PATH": path, "HOME": home, "PYTHONUTF8": "1", "LEASEHOLD_CATALOG": "steps"}
    with forked_commands(settings, *SERVED) as environ:
        yield environ


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_page_prints_what_it_says(tmp_path: Path, environ: dict[str, str]) -> None:
    terminal = Terminal(tmp_path, environ)
    try:
        differs = [*typed(PAGE, terminal, tmp_path)]
    finally:
        terminal.close()

    assert differs == []


def test_the_line_of_the_crontab_starts_one_run_however_often_it_is_run(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    """In the form that the page has for where there is no server."""
    (line,) = blocks("crontab")
    *times, command = line.split(maxsplit=5)
    assert times == ["10", "3", "*", "*", "*"]
    assert "%" not in command.replace(r"\%", ""), "cron would take it for the end of the line"
    for page, here in (
        (r"\%", "%"),
        ("cd /srv/pipelines && .venv/bin/", ""),
        ("--url http://127.0.0.1:8080", "--in-process --json"),
        (" >> cron.log 2>&1", ""),
    ):
        assert page in command
        command = command.replace(page, here)
    next(one for one in steps_of(PAGE) if isinstance(one, Saved)).save(tmp_path)

    runs = [
        subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        for _ in range(2)
    ]

    first, second = (json.loads(run.stdout)["runId"] for run in runs)
    assert first == second


@pytest.mark.skipif(ANALYZE is None, reason="there is no systemd")
def test_the_timer_is_one_that_systemd_takes(tmp_path: Path) -> None:
    for name, text in zip(("paper.service", "paper.timer"), blocks("ini"), strict=True):
        (tmp_path / name).write_text(text.replace("User=leasehold\n", ""))

    checked = subprocess.run(
        [
            str(ANALYZE),
            "verify",
            "--man=no",
            "--recursive-errors=no",
            tmp_path / "paper.timer",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert [line for line in checked.stderr.splitlines() if "paper." in line] == []


def test_what_the_timer_runs_is_one_command_with_the_day_in_its_key() -> None:
    """In a unit, systemd reads C escapes in single quotes, and `%%` as `%`."""
    (line,) = re.findall(r"^ExecStart=/bin/sh -c '(.*)'$", PAGE, re.MULTILINE)

    command = line.replace(r"\'", "'").replace("%%", "%").removeprefix("exec .venv/bin/")

    assert refusal(command) is None
    assert "paper-$(date +%F)" in shlex.split(command)


def test_the_container_serves_with_the_copied_files() -> None:
    (text,) = blocks("dockerfile")
    instructions = [line.split(" ", 1) for line in text.splitlines()]
    names = {name for name, _ in instructions}
    copied = [words.split()[0] for name, words in instructions if name == "COPY"]
    (command,) = (json.loads(words) for name, words in instructions if name == "CMD")

    assert names == {"FROM", "RUN", "WORKDIR", "COPY", "ENV", "USER", "CMD"}
    assert copied == ["leasehold-0.1.0-py3-none-any.whl", "steps.py"]
    assert refusal(shlex.join(command)) is None


def test_the_compose_file_keeps_what_the_container_stores_and_lets_it_stop() -> None:
    (text,) = blocks("yaml")
    compose = yaml.safe_load(text)
    service = compose["services"]["leasehold"]

    (volume,) = service["volumes"]
    name, _, folder = volume.partition(":")
    assert name in compose["volumes"]
    assert f"sqlite:///{folder}/leasehold.db" in PAGE
    assert int(service["stop_grace_period"].removesuffix("s")) > GRACE_S
    assert service["ports"] == ["127.0.0.1:8080:8080"]
    compile(service["healthcheck"]["test"][-1], "healthcheck", "exec")


@pytest.mark.skipif(shutil.which("docker") is None, reason="docker is not installed")
def test_docker_takes_the_compose_file(tmp_path: Path) -> None:
    compose = ["docker", "compose"]
    if subprocess.run([*compose, "version"], capture_output=True, check=False).returncode:
        pytest.skip("docker has no compose")
    (tmp_path / "compose.yaml").write_text(blocks("yaml")[0])
    (tmp_path / "Dockerfile").write_text(blocks("dockerfile")[0])

    done = subprocess.run(
        [*compose, "config", "--quiet"], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
