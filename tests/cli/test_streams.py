"""Commands whose streams are closed, full, or not read."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from tests.worlds.shell import DEADLINE_S, LEASEHOLD, Done, Shell, only_line

ORDER = ("start", "order", "--input", '{"amount": 3}')
READ = [("runs",), ("runs", "--json"), ("registry",), ("--help",), ("audit",)]

needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")


def sh(shell: Shell, words: tuple[str, ...], streams: str) -> Done:
    """Run a command as a shell does, with streams that only a shell can close."""
    return shell.process("/bin/sh", "-c", f'"$@" {streams}', "sh", *LEASEHOLD, *words)


def process(shell: Shell, words: tuple[str, ...], **streams: Any) -> Done:
    """Run a command as a process with these streams; what is not given is read."""
    return subprocess.run(
        [*LEASEHOLD, *words],
        cwd=shell.folder,
        env=shell.settings,
        stdin=subprocess.DEVNULL,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


@pytest.fixture
def full_disk() -> Iterator[IO[str]]:
    with Path("/dev/full").open("w") as file:
        yield file


def test_a_closed_stdout_is_refused_before_anything_is_done(shell: Shell) -> None:
    refused = [sh(shell, (*ORDER, "--in-process"), ">&-")]
    refused += [shell.run_without_stdout(*words) for words in (*READ, (*ORDER, "--in-process"))]

    for done in refused:
        assert done.returncode == 2
        assert only_line(done.stderr).startswith("error: stdout is closed")
    assert shell.files() == ["shop.py"]


@pytest.mark.parametrize("words", [("doctor",), ("deploy", "init"), ("deploy", "bundle"), ORDER])
def test_a_folder_that_was_deleted_is_said_so(shell: Shell, words: tuple[str, ...]) -> None:
    gone = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    refused = shell.process("/bin/sh", "-c", gone, "sh", *LEASEHOLD, *words)

    line = "error: the folder that this command works in was deleted: go to another one\n"
    assert (refused.returncode, refused.stdout, refused.stderr) == (2, "", line)


@needs_full
@pytest.mark.parametrize("words", READ[:-1])
def test_an_answer_that_cannot_be_written_is_said_so(
    shell: Shell, full_disk: IO[str], words: tuple[str, ...]
) -> None:
    shell.run(*ORDER)

    full = process(shell, words, stdout=full_disk)

    assert full.returncode == 74
    assert only_line(full.stderr) == (
        "error: the command has finished, but its output cannot be written: "
        "No space left on device."
    )


@needs_full
def test_a_run_completes_whose_answer_cannot_be_written(shell: Shell, full_disk: IO[str]) -> None:
    full = process(shell, (*ORDER, "--in-process"), stdout=full_disk)

    assert full.returncode == 74
    assert "its output cannot be written" in full.stderr.splitlines()[-1]
    assert [run["status"] for run in shell.json("runs")["runs"]] == ["COMPLETED"]


@needs_full
def test_a_run_is_recorded_where_the_disk_behind_stderr_is_full(
    shell: Shell, full_disk: IO[str]
) -> None:
    """The prints of handlers there are their own."""
    done = process(shell, ORDER, stderr=full_disk)
    refused = process(shell, ("show", "r-none"), stderr=full_disk)

    assert (done.returncode, refused.returncode) == (0, 2)
    assert "PENDING" in done.stdout


@pytest.mark.parametrize(
    "streams", [pytest.param("2>&-", marks=pytest.mark.nightly), "2>&- <&-"], ids=str
)
def test_a_run_completes_where_it_cannot_be_printed(shell: Shell, streams: str) -> None:
    done = sh(shell, (*ORDER, "--in-process", "--json"), streams)

    assert (done.returncode, done.stderr) == (0, "")
    assert '"status": "COMPLETED"' in done.stdout


def test_a_stdin_that_is_closed_is_empty(shell: Shell) -> None:
    refused = sh(shell, ("start", "order", "--input", "@-"), "<&-")

    assert refused.returncode == 2
    assert "is not JSON" in only_line(refused.stderr)


@pytest.mark.parametrize(
    ("words", "code"), [(("runs",), 141), (("runs", "--json"), 141), (("show", "r-none"), 2)]
)
def test_a_reader_of_both_that_goes_away_hears_nothing_more(
    shell: Shell, words: tuple[str, ...], code: int
) -> None:
    shell.run(*ORDER)
    reader, writer = os.pipe()
    os.close(reader)

    piped = process(shell, words, stdout=writer, stderr=writer)
    os.close(writer)

    assert piped.returncode == code


HALF = "\udcff"  # the byte FF, as Python has what is not UTF-8


@pytest.mark.parametrize(
    "words",
    [
        (HALF,),
        ("start", HALF),
        ("start", "order", "--input", HALF),
        ("start", "order", "--input", f"@{HALF}"),
        (*ORDER, "--idempotency-key", HALF),
        (*ORDER, "--label", f"{HALF}:a"),
        (*ORDER, "--url", f"http://{HALF}"),
        ("runs", "--pipeline", HALF),
        ("runs", "--status", HALF),
        ("runs", "--label", f"a:{HALF}"),
        ("runs", "--page-token", HALF),
        ("runs", f"--{HALF}"),
        ("show", HALF),
        ("trace", HALF),
        ("why", HALF),
        ("pause", HALF),
        ("pause", "r-1", "--reason", HALF),
        ("recreate", "r-1", "--from-step", HALF),
        ("batch", HALF),
        ("batch", "pause", "--pipeline", HALF, "--limit", "1"),
        ("dev", "--data", HALF),
    ],
)
def test_a_word_that_is_not_text_is_refused(shell: Shell, words: tuple[str, ...]) -> None:
    refused = shell.run(*words)

    assert refused.returncode == 2
    assert "\\udcff" in only_line(refused.stderr)
    assert "is not text; allowed: UTF-8" in refused.stderr
    assert shell.files() == ["shop.py"]
