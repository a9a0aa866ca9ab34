"""The commands of docs/doctor.md can be pasted, and it lists every code of a finding."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from leasehold.cli.commands import program
from leasehold.doctor.drift import HARMS
from tests.worlds.shell import Shell

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/doctor.md").read_text()
LINES = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shutil.copy(ROOT / "tests/deploy/doctor/letters.py", tmp_path)
    shell = Shell(tmp_path, {"LEASEHOLD_CATALOG": "letters"})
    (tmp_path / "shop.py").unlink()
    return shell


def test_each_command_is_understood(shell: Shell) -> None:
    """The deployed ones are run in tests/deploy/doctor/, against local servers."""
    assert len(LINES) == 4
    for line in LINES:
        words = shlex.split(line.partition("|")[0], comments=True)
        command = program.get_command(None, words[1])  # type: ignore[arg-type]
        assert command is not None
        command.make_context(
            words[1], [word.replace("$", "x").replace("_", "-").lower() for word in words[2:]]
        )
    assert shell.run("doctor").returncode == 0


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_the_lines_for_scripts_find_what_they_look_for(shell: Shell) -> None:
    """The answer is piped into them: its own process would take a hundred times as long."""
    answer = shell.run("doctor", "--json", LEASEHOLD_STROE="x").stdout
    piped = [line.partition("| ")[2] for line in LINES if "| jq" in line]

    shown = [_piped(each.partition("#")[0], answer) for each in piped]

    assert shown == ["unset LEASEHOLD_STROE\n", ""]


def _piped(command: str, answer: str) -> str:
    done = subprocess.run(
        ["/bin/sh", "-c", command], input=answer, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_each_code_that_is_found_has_its_row() -> None:
    sources = [*(ROOT / "shared/leasehold/doctor").rglob("*.py")]
    text = "\n".join(path.read_text() for path in sources)
    used = set(re.findall(r'Finding\(\s*"(\w+)"', text)) | {"environment"}
    used |= {harm.code for harm in HARMS.values()}

    listed = re.findall(
        r"^\| `(\w+)` \| (|warning|proposal) \| (?:here|`--live`) \|", PAGE, re.MULTILINE
    )

    assert sorted(code for code, _ in listed) == sorted(used)
