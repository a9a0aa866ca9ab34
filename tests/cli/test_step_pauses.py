"""`leasehold pause --step` and `--all`: nothing begins until it is resumed."""

from __future__ import annotations

import pytest

from tests.worlds.shell import Shell, only_line

ORDER = ("start", "order", "--input", '{"amount": 3}')
WHY = ("--why", "the provider is down")


def test_a_step_is_paused_seen_and_resumed(shell: Shell) -> None:
    paused = shell.run("pause", "--step", "reserve", *WHY)
    run_id = shell.json(*ORDER)["runId"]
    why = shell.run("why", run_id)
    resumed = shell.run("resume", "--step", "reserve")
    again = shell.json("resume", "--step", "reserve")

    assert paused.stdout == "step reserve is paused\n"
    assert "everywhere within 10 s" in paused.stderr
    assert "leasehold resume --step reserve" in paused.stderr
    assert "step reserve is paused by " in why.stdout
    assert ": the provider is down" in why.stdout
    assert resumed.stdout == "step reserve is resumed\n"
    assert again == {"pause": None, "released": 0, "more": False}


def test_all_steps_are_paused_and_json_says_what_was_before(shell: Shell) -> None:
    first = shell.json("pause", "--all", "--why", "one")
    second = shell.json("pause", "--all", "--why", "two")
    overrides = shell.json("override")
    resumed = shell.json("resume", "--all")

    assert first["replaced"] is None
    assert (second["pause"]["step"], second["pause"]["why"]) == (None, "two")
    assert second["replaced"]["why"] == "one"
    assert resumed["pause"]["why"] == "two"
    assert overrides == {"overrides": []}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("pause",), "Give RUN, or --step STEP, or --all."),
        (("pause", "--step", "reserve", "--all", *WHY), "Give RUN, or --step STEP, or --all."),
        (("pause", "--step", "reserve"), "--why is missing"),
        (("pause", "--step", "no-such", *WHY), "no-such"),
        (("pause", "--all", "--why", "x", "--reason", "y"), "--reason is for a RUN."),
        (("pause", "r-0123456789abcdef", "--all"), "--all and --why pause steps"),
        (("resume", "r-0123456789abcdef", "--all"), "--all resumes steps"),
        (("resume", "--all", "--budget", "usd=1"), "--budget is for a RUN."),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(
    shell: Shell, words: tuple[str, ...], says: str
) -> None:
    refused = shell.run(*words)

    assert refused.returncode == 2
    assert says in only_line(refused.stderr)
