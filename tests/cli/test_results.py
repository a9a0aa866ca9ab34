"""`output` and `files`: what a run gave, whole, from the store and from a server."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tests.worlds.shell import LEASEHOLD, Shell, only_line, without_controls

BOOK = ("start", "book", "--input", '{"amount": 3}', "--in-process", "--json")
TEXT = {"text": "é" * 40_000}
PAGE = bytes(range(256))


@pytest.fixture
def run_id(shell: Shell) -> str:
    """A run with an output that lies in the artifacts, and two files."""
    return str(json.loads(shell.run(*BOOK).stdout)["runId"])


@pytest.fixture(params=["store", "server"])
def where(request: pytest.FixtureRequest, run_id: str) -> tuple[str, ...]:
    """The words that say where to read; each command does the same at both."""
    assert run_id
    return () if request.param == "store" else ("--url", request.getfixturevalue("server"))


# -- outputs ---------------------------------------------------------------------------------------


def test_an_output_is_printed_whole(shell: Shell, run_id: str, where: tuple[str, ...]) -> None:
    large = shell.run("output", run_id, *where)
    small = shell.run("output", run_id, "reserve", *where)

    assert (large.returncode, json.loads(large.stdout), large.stderr) == (0, TEXT, "")
    assert small.stdout == '{\n  "amount": 3\n}\n'
    assert shell.run("output", run_id, "reserve", *where, "--json").stdout == small.stdout


def test_who_waits_with_json_gets_the_output_too(shell: Shell, run_id: str, server: str) -> None:
    """However large; the run of the same key is completed at once."""
    again = (*BOOK, "--idempotency-key", "one")
    waited = [word for word in again if word != "--in-process"]

    for words in (again, (*waited, "--wait"), (*waited, "--wait", "--url", server)):
        answer = json.loads(shell.run(*words).stdout)
        assert (answer["status"], answer["output"]) == ("COMPLETED", TEXT)
    assert answer["runId"] != run_id


def test_a_run_that_did_not_complete_has_no_output(shell: Shell) -> None:
    doomed = ("start", "doomed", "--input", '{"amount": 1}', "--in-process", "--json")
    done = shell.run(*doomed)
    run_id = json.loads(done.stdout)["runId"]

    refused = shell.run("output", run_id)

    assert (done.returncode, json.loads(done.stdout)["output"]) == (1, None)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert only_line(refused.stderr) == (
        f"error: Run {run_id} has no result: it is dead-lettered and ERROR at step refuse: "
        "PERMANENT_FAILURE: PermanentError: 13 is refused; choose another amount."
    )


def test_an_output_that_is_gone_is_one_clear_line(
    shell: Shell, run_id: str, where: tuple[str, ...]
) -> None:
    (kept,) = shell.folder.glob(".leasehold/artifacts/runs/*/*/values/*")
    kept.unlink()

    done = shell.run("output", run_id, *where)

    assert (done.returncode, done.stdout) == (2, "")
    assert "is missing" in only_line(done.stderr)
    assert kept.name in done.stderr


def test_a_result_that_cannot_be_read_does_not_hide_the_run(shell: Shell) -> None:
    """It is completed, and its caller learns its id."""
    again = (*BOOK, "--idempotency-key", "one")
    run_id = json.loads(shell.run(*again).stdout)["runId"]
    shutil.rmtree(shell.folder / ".leasehold" / "artifacts" / "runs")

    done = shell.run(*again)

    answer = json.loads(done.stdout)
    assert (answer["runId"], answer["status"], answer["output"]) == (run_id, "COMPLETED", None)
    assert done.returncode == 74
    assert "error: the run is completed, but its output cannot be read: The store" in done.stderr
    assert f"leasehold output {run_id}" in done.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("output", "r-none"), "Run 'r-none' is not in the store"),
        (("files", "r-none"), "Run 'r-none' is not in the store"),
        (("output", "RUN", "none"), "has no step 'none'; it has reserve, bind."),
        (("files", "RUN", "none"), "`leasehold files RUN` lists those it has."),
        (("files", "RUN", "../values"), "it is not a relative path of plain parts"),
        (("files", "RUN", "/etc/passwd"), "it is not a relative path of plain parts"),
    ],
)
def test_what_is_not_there_is_one_clear_line(
    shell: Shell, run_id: str, words: tuple[str, ...], sentence: str
) -> None:
    done = shell.run(*(word.replace("RUN", run_id) for word in words))

    assert (done.returncode, done.stdout) == (2, "")
    assert sentence.replace("RUN", run_id) in only_line(done.stderr)


# -- files -----------------------------------------------------------------------------------------


def test_the_files_are_listed_and_written_whole(
    shell: Shell, run_id: str, where: tuple[str, ...]
) -> None:
    listed = shell.run("files", run_id, *where)
    answer = shell.json("files", run_id, *where)
    written = shell.run("files", run_id, "pages/1.bin", "-o", "one", *where)

    assert listed.stdout == "FILE\tBYTES\ncover.txt\t7\npages/1.bin\t256\n"
    assert answer["files"][1] == {"name": "pages/1.bin", "size": 256}
    assert (written.returncode, written.stdout) == (0, "")
    assert only_line(written.stderr).startswith("256 bytes written to ")
    assert (shell.folder / "one").read_bytes() == PAGE
    assert shell.files() == [".leasehold", "one", "shop.py"]


def test_a_run_without_files_says_so(shell: Shell) -> None:
    order = ("start", "order", "--input", '{"amount": 3}', "--json")
    run_id = json.loads(shell.run(*order).stdout)["runId"]

    assert shell.run("files", run_id).stderr == "no files\n"
    assert shell.json("files", run_id) == {"files": []}


def test_a_pipe_gets_the_bytes(shell: Shell, run_id: str) -> None:
    done = subprocess.run(
        [*LEASEHOLD, "files", run_id, "pages/1.bin"],
        cwd=shell.folder,
        env=shell.settings,
        capture_output=True,
        check=False,
    )

    assert (done.stdout, done.stderr) == (PAGE, b"")


def test_nothing_is_replaced_unasked(shell: Shell, run_id: str) -> None:
    (shell.folder / "one").write_text("mine")
    words = ("files", run_id, "cover.txt", "-o", "one")

    refused = shell.run(*words)
    kept = (shell.folder / "one").read_text()
    forced = shell.run(*words, "--force")

    assert (refused.returncode, kept) == (2, "mine")
    assert only_line(refused.stderr) == "error: one exists; --force replaces it."
    assert (forced.returncode, (shell.folder / "one").read_text()) == (0, "A book\n")


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        (".", "is not a file"),
        ("/dev/null", "is not a file"),
        ("none/one", "does not exist; make it first."),
        ("x" * 300, "cannot be written: File name too long."),
    ],
)
def test_a_place_that_cannot_be_written_is_one_clear_line(
    shell: Shell, run_id: str, target: str, problem: str
) -> None:
    """Known before the file is read; --force makes a place no better."""
    for words in ((), ("--force",)):
        done = shell.run("files", run_id, "cover.txt", "-o", target, *words)

        assert done.returncode == 2
        assert problem in only_line(done.stderr)
    assert shell.files() == [".leasehold", "shop.py"]


def test_a_terminal_is_shown_text_and_no_more(shell: Shell, run_id: str) -> None:
    """Bytes of a stranger could steer it."""
    (files,) = shell.folder.glob(f".leasehold/artifacts/runs/{run_id}/*/files")
    (files / "escape.txt").write_bytes(b"\x1b[31mred")
    (files / "large.txt").write_bytes(b"x" * (1024 * 1024 + 1))

    shown = shell.on_terminal("files", run_id, "cover.txt")
    refused = [
        without_controls(shell.on_terminal("files", run_id, name))
        for name in ("pages/1.bin", "escape.txt", "large.txt")
    ]

    assert shown == "A book\n"
    assert "pages/1.bin is not shown on a terminal: it is not plain text." in refused[0]
    assert "-o FILE" in refused[0]
    assert "it is not plain text" in refused[1]
    assert "it has 1,048,577 bytes" in refused[2]


@pytest.mark.parametrize(
    "words", [("-o", "one"), ("--force",), ("cover.txt", "--json")], ids=" ".join
)
def test_options_that_mean_nothing_together_are_refused(
    shell: Shell, run_id: str, words: tuple[str, ...]
) -> None:
    done = shell.run("files", run_id, *words)

    assert done.returncode == 2
    assert "allowed: with" in only_line(done.stderr)
