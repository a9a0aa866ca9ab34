"""`recreate`, `retry` and `approve` with all that a person may say: over a store and a server."""

from __future__ import annotations

import json
import sys

import pytest

from tests.worlds.catalogs import reviewed
from tests.worlds.shell import Shell, only_line

pytestmark = pytest.mark.catalog(reviewed)

PAPER = ("start", "paper", "--input", '{"scores": [1.0]}', "--in-process", "--json")


@pytest.fixture
def papers(shell: Shell) -> Shell:
    shell.settings["LEASEHOLD_CATALOG"] = reviewed.__name__
    return shell


@pytest.fixture
def blocked(papers: Shell) -> str:
    return str(json.loads(papers.run(*PAPER).stdout)["runId"])


def test_bad_words_get_one_line_and_change_nothing(
    papers: Shell, blocked: str, server: str
) -> None:
    (papers.folder / "misfit.json").write_text('{"settled": "perhaps"}')
    before = papers.json("show", blocked)

    for there in ((), ("--url", server)):
        for command, words in (
            (("retry", "--anew"), "anew is True; allowed: nothing here, as no checkpoint"),
            (("retry", "--note", "x" * 20_000), "allowed: a text of 1 to 4096 bytes"),
            (("approve", "--output", "@misfit.json"), "Nothing was changed; correct it and send"),
            (("approve", "--output", "@nowhere.json"), "cannot be read"),
            (("approve", "--output", "{"), "is not JSON"),
            (("approve", "--output", "@/dev/zero"), "it is larger than 64 MiB"),
        ):
            done = papers.run(command[0], blocked, *command[1:], *there)
            assert (done.returncode, done.stdout) == (2, ""), command
            assert words in only_line(done.stderr.splitlines()[-1] + "\n"), command
            assert "Traceback" not in done.stderr
    assert papers.json("show", blocked) == before
    assert sys.modules[reviewed.__name__] is reviewed


def test_what_is_kept_is_said_in_a_sentence_and_in_numbers(
    papers: Shell, blocked: str, server: str
) -> None:
    said = papers.run("retry", blocked, "--note", "look at the sources", "--reason", "a")
    papers.run("cancel", blocked)
    there = papers.json("recreate", blocked, "--url", server)
    again = papers.run("recreate", blocked, "--reason", "b")

    assert said.stdout == f"run {blocked} PENDING\n"
    assert said.stderr.splitlines()[0] == "It keeps 1 output."
    assert there["kept"] == {"steps": 1, "checkpoint": 0, "calls": 0, "trials": 0, "unjudged": 0}
    assert there["currentStep"] == "review"
    assert "and begins at step review." in again.stderr
    assert papers.json("show", there["runId"])["note"] == "look at the sources"


def test_an_edited_output_is_handed_off(papers: Shell, blocked: str, server: str) -> None:
    (papers.folder / "edited.json").write_text('{"settled": true, "score": 0.7, "findings": []}')

    done = papers.run("approve", blocked, "--output", "@edited.json", "--url", server)

    assert (done.returncode, done.stdout) == (0, f"run {blocked} PENDING\n")
    assert papers.json("output", blocked, "review") == {
        "settled": True,
        "score": 0.7,
        "findings": [],
    }
    (event,) = (
        one for one in papers.json("trace", blocked)["events"] if one["type"] == "run_approved"
    )
    assert event["edited"] is True


def test_words_of_one_operation_are_for_no_other(papers: Shell, blocked: str) -> None:
    words = ("batch", "pause", "--pipeline", "paper", "--limit", "1")

    for option in (("--anew",), ("--note", "x")):
        refused = papers.run(*words, *option)
        assert refused.returncode == 2
        assert f"{option[0]} is for" in refused.stderr
