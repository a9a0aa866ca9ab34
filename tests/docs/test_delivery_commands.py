"""The commands on the page about notifications can be pasted."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from leasehold.web.serve_api import ROUTES
from tests.worlds.shell import Shell

PAGE = (Path(__file__).parents[2] / "docs/notifications.md").read_text()
LINES = [
    line.strip()
    for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]
COMMANDS = [
    line for line in LINES if re.match(r"leasehold (deliver|deliveries|why|show|trace)\b", line)
]
CURLS = [line for line in LINES if line.startswith("curl ") and "$URL/" in line]

CATALOG = """
from leasehold import LogChannel, Registry, SlackChannel
from shop import PIPELINES, STEPS

CHANNELS = Registry(
    "channels", [LogChannel(name="log"), SlackChannel(name="slack", url_variable="SLACK_URL")]
)
"""


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A folder with a run that was cancelled; its announcement is due to both channels."""
    shell = Shell(tmp_path_factory.mktemp("told"))
    (shell.folder / "announcing.py").write_text(CATALOG)
    shell.settings["LEASEHOLD_CATALOG"] = "announcing"
    return shell


@pytest.fixture(scope="module")
def run_id(shell: Shell) -> str:
    run_id: str = shell.json("start", "order", "--input", '{"amount": 3}')["runId"]
    assert shell.run("cancel", run_id).returncode == 0
    return run_id


@pytest.mark.parametrize("line", COMMANDS)
def test_each_command_does_what_it_says(shell: Shell, run_id: str, line: str) -> None:
    if "| jq" not in line:
        words = shlex.split(line.replace("$RUN", run_id), comments=True)
        done = shell.run(*words[1:])
    elif shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    else:
        program = shlex.join([sys.executable, "-m", "leasehold"])
        piped = line.replace("leasehold ", f"{program} ", 1)
        done = shell.process("/bin/sh", "-c", piped)

    assert done.returncode == 0, done.stderr


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 7
    assert len(CURLS) == 3


@pytest.mark.parametrize("line", CURLS)
def test_each_address_is_served_and_each_body_is_one_it_takes(line: str) -> None:
    words = shlex.split(line)
    method = "POST" if "-d" in words else "GET"
    (address,) = (word for word in words if word.startswith("$URL"))
    path, _, query = address.replace("$URL", "").replace("$RUN", "r-1").partition("?")

    row = ROUTES.row_at(method, path)

    given = json.loads(words[words.index("-d") + 1]) if method == "POST" else None
    if query:
        given = dict(pair.split("=") for pair in query.split("&"))
    assert row is not None
    if row.takes is not None:
        row.takes.read(given)


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_the_lines_for_the_log_find_what_was_sent_and_given_up(tmp_path: Path) -> None:
    given_up, rate = (line for line in LINES if line.startswith("jq -rR"))
    facts = {"at": "2026-01-01T00:00:00Z", "runId": "r-1", "channel": "slack", "reason": "x"}
    events = ("ANNOUNCEMENT_SENT", "ANNOUNCEMENT_SENT", "ANNOUNCEMENT_GIVEN_UP")
    lines = [json.dumps(facts | {"event": event}) for event in events]
    (tmp_path / "dev.log").write_text("\n".join(["ready", "7", *lines]))

    def answer(line: str) -> str:
        return subprocess.run(
            ["/bin/sh", "-c", line],
            cwd=tmp_path,
            env=dict(os.environ),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout

    assert answer(given_up) == "2026-01-01T00:00:00Z\tr-1\tslack\tx\n"
    assert answer(rate).split() == [
        "1", "slack", "ANNOUNCEMENT_GIVEN_UP", "2", "slack", "ANNOUNCEMENT_SENT",
    ]  # fmt: skip
