"""`purge`: what it says, asks and refuses; and what becomes of one that is killed."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
from datetime import datetime
from pathlib import Path

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.domain.manifest import run_ref
from tests.worlds.shell import LEASEHOLD, Shell, only_line
from tests.worlds.waiting import until

ORDER = ("start", "order", "--input", '{"amount": 3}')
ALL = ("purge", "--older-than", "0s")


def ended(shell: Shell, *words: str) -> str:
    run_id = str(json.loads(shell.run(*ORDER, *words, "--json").stdout)["runId"])
    shell.run("cancel", run_id)
    return run_id


def listed(shell: Shell) -> list[str]:
    return [run["runId"] for run in shell.json("runs")["runs"]]


def test_a_purge_tells_what_it_would_delete_and_the_command_that_does_it(shell: Shell) -> None:
    """The command names a time: a run that ends before it is given does not go with them."""
    gone, other = ended(shell), ended(shell, "--label", "env:live")

    dry = shell.run(*ALL, "--dry-run", "--pipeline", "order", "--since", "1h", "--cancelled")
    none = shell.run(*ALL, "--dry-run", "--label", "env:test")
    at_another_step = shell.run(*ALL, "--dry-run", "--step", "ship")
    words = shlex.split(only_line(dry.stderr).partition("than these: ")[2])
    later = ended(shell)
    done = shell.run(*words[words.index("purge") :])

    assert (dry.returncode, dry.stdout) == (0, "2 matched, 2 would be deleted, 0 kept\n")
    assert (none.stdout, none.stderr) == ("0 matched, 0 would be deleted, 0 kept\n", "")
    assert at_another_step.stdout == none.stdout
    assert (done.returncode, done.stdout) == (0, "2 matched, 2 deleted, 0 kept\n")
    assert listed(shell) == [later]
    assert shell.run("show", gone).returncode == 2
    assert shell.run("show", other).returncode == 2


def test_of_several_labels_a_run_that_goes_has_each(shell: Shell) -> None:
    gone = ended(shell, "--label", "env:test", "--label", "team:a b")
    other = ended(shell, "--label", "env:test")

    dry = shell.run(*ALL, "--dry-run", "--label", "env:test", "--label", "team:a b")
    words = shlex.split(only_line(dry.stderr).partition("than these: ")[2])
    done = shell.run(*words[words.index("purge") :])

    assert dry.stdout == "1 matched, 1 would be deleted, 0 kept\n"
    assert done.stdout == "1 matched, 1 deleted, 0 kept\n"
    assert listed(shell) == [other]
    assert shell.run("show", gone).returncode == 2


def test_a_purge_answers_with_json_and_names_what_it_keeps(shell: Shell) -> None:
    old = ended(shell)
    child = json.loads(shell.run("recreate", old, "--json").stdout)["runId"]

    done = shell.json(*ALL)
    text = shell.run(*ALL)

    assert datetime.fromisoformat(done.pop("endedBefore"))
    kept = [{"runId": old, "code": "needed"}]
    assert done == {"matched": 1, "purged": 0, "kept": kept, "dryRun": False}
    assert text.stdout.splitlines()[1:] == ["RUN\tKEPT", f"{old}\tneeded"]
    assert listed(shell) == [child, old]


def test_the_disk_shrinks(shell: Shell) -> None:
    large = {"amount": 3, "note": "x" * 30_000}
    for _ in range(20):
        words = ("start", "order", "--input", json.dumps(large), "--json")
        shell.run("cancel", json.loads(shell.run(*words).stdout)["runId"])
    larger = json.dumps({**large, "note": "x" * 50_000})
    shell.run("cancel", json.loads(shell.run(*words[:3], larger, "--json").stdout)["runId"])
    file, artifacts = (
        shell.folder / ".leasehold/leasehold.db",
        shell.folder / ".leasehold/artifacts",
    )
    before, folders = file.stat().st_size, list((artifacts / "runs").iterdir())
    SqliteDocuments(empty := shell.folder / "empty.db", SystemClock()).close()

    assert shell.json(*ALL)["purged"] == 21

    assert before > 600_000
    assert len(folders) == 1
    assert file.stat().st_size < empty.stat().st_size + 20_000
    assert list((artifacts / "runs").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "Missing option '--older-than'"),
        (("--older-than", "30"), "'30'; allowed: an age such as 90s, 15m, 2h, 3d or 4w, a time"),
        (("--older-than", "2999-01-01"), "a time to come; allowed: one that is past"),
        (("--older-than", "1d", "--status", "PENDING"), "--status PENDING means live runs"),
        (("--older-than", "1d", "--paused"), "allowed: --status COMPLETED, --cancelled, --dead"),
        (("--older-than", "1d", "--since", "1h"), "since is '"),
        (("--older-than", "1d", "--url", "http://127.0.0.1:1"), "No such option"),
    ],
)
def test_a_purge_that_could_only_be_a_slip_is_refused_in_one_line(
    shell: Shell, words: tuple[str, ...], problem: str
) -> None:
    run_id = ended(shell)

    refused = shell.run("purge", *words)

    assert (refused.returncode, refused.stdout) == (2, "")
    assert problem in only_line(refused.stderr)
    assert listed(shell) == [run_id]


def test_a_purge_needs_no_catalog_and_makes_no_store(shell: Shell) -> None:
    none = shell.run(*ALL, LEASEHOLD_CATALOG="nowhere")
    files = shell.files()
    ended(shell)

    done = shell.run(*ALL, LEASEHOLD_CATALOG="nowhere")

    assert none.stdout == "0 matched, 0 deleted, 0 kept\n"
    assert files == ["shop.py"]
    assert done.stdout == "1 matched, 1 deleted, 0 kept\n"


@pytest.mark.parametrize(
    ("answer", "code", "left"),
    [("n\n", 1, 1), ("\n", 1, 1), ("\x04", 1, 1), ("y\n", 0, 0)],
    ids=ascii,
)
def test_on_a_terminal_a_person_is_asked(shell: Shell, answer: str, code: int, left: int) -> None:
    ended(shell)
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        [*LEASEHOLD, *ALL],
        cwd=shell.folder,
        env=shell.settings,
        stdin=end,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.write(terminal, answer.encode())
    stdout, stderr = process.communicate(timeout=60)
    os.close(end)
    os.close(terminal)

    assert "Delete 1 run that ended before" in stderr
    assert process.returncode == code
    assert stdout == ("" if code else "1 matched, 1 deleted, 0 kept\n")
    assert ("nothing was deleted" in stderr) == bool(code)
    assert len(listed(shell)) == left


def test_a_purge_that_was_killed_is_given_again(shell: Shell) -> None:
    """Half a run is never shown; the rest is deleted later."""
    runs = [json.loads(shell.run(*ORDER, "--json").stdout)["runId"] for _ in range(30)]
    shell.run("batch", "cancel", "--limit", "100", "--pipeline", "order")
    folders = Path(shell.folder / ".leasehold/artifacts/runs")
    documents = SqliteDocuments(shell.folder / ".leasehold/leasehold.db", SystemClock())
    for run_id in runs:
        life = documents.get(run_ref(run_id)).document["life"]
        (folders / run_id / life / "files").mkdir(parents=True)
    documents.close()

    process = shell.begin(*ALL)
    until(lambda: len(list(folders.iterdir())) < len(runs))
    process.kill()
    process.communicate(timeout=60)
    seen = [shell.run("show", run_id).returncode for run_id in listed(shell)]
    audited = shell.json("audit")
    again = shell.run(*ALL)

    assert set(seen) <= {0}
    assert (audited["found"], audited["left"]) == ([], 0)
    assert again.returncode == 0
    assert (listed(shell), list(folders.iterdir())) == ([], [])


def test_the_sweep_keeps_runs_as_long_as_the_setting_says(shell: Shell) -> None:
    run_id = ended(shell)

    young = shell.json("sweep")
    refused = shell.run("sweep", LEASEHOLD_RETENTION_DAYS="0")
    kept = json.loads(shell.run("sweep", "--json", LEASEHOLD_RETENTION_DAYS="1").stdout)

    assert (young["purged"], kept["purged"]) == (0, 0)
    assert only_line(refused.stderr) == (
        "error: LEASEHOLD_RETENTION_DAYS is '0'; allowed: a whole number of days from 1 to 36500."
    )
    assert listed(shell) == [run_id]
