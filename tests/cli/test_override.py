"""`leasehold override`: a step needs more time today."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.domain.override import override_ref
from leasehold.domain.stored import Write
from tests.worlds.shell import Shell, only_line

SET = ("override", "charge", "--timeout-s", "45", "--until", "2999-01-01", "--why", "slow day")
ORDER = ("start", "order", "--input", '{"amount": 3}')


def test_an_override_is_set_shown_dispatched_and_cleared(shell: Shell) -> None:
    set_ = shell.run(*SET)
    listed = shell.run("override")
    registry = shell.run("registry")
    shell.run("override", "reserve", "--deadline-s", "100", "--until", "2h", "--why", "slow day")
    run_id = shell.json(*ORDER)["runId"]
    dispatch = shell.json("show", run_id)["dispatch"]
    cleared = shell.run("override", "charge", "--clear")
    again = shell.json("override", "charge", "--clear")

    assert set_.returncode == 0
    head, row = set_.stdout.splitlines()
    assert head == "STEP\tSTATE\tTIMEOUT\tDEADLINE\tUNTIL\tBY\tWHY"
    assert row.startswith("charge\tin force\t45 s\tas before\t2999-01-01T00:00:00Z\t")
    assert row.endswith("\tslow day")
    assert listed.stdout == set_.stdout
    assert "45 s (override)" in registry.stdout
    assert "override of charge by " in only_line(registry.stderr)
    assert "timeout 45 s until 2999-01-01T00:00:00Z: slow day" in registry.stderr
    assert (dispatch["timeoutMs"], dispatch["deadlineS"]) == (30_000, 100)
    assert dispatch["sources"]["dispatchDeadline"] == "override"
    assert only_line(cleared.stderr).startswith("cleared: override of charge by ")
    assert again == {"stepType": "charge", "override": None, "replaced": None}
    assert [one["stepType"] for one in shell.json("override")["overrides"]] == ["reserve"]
    assert shell.json("override", "charge") == {"overrides": []}


def test_where_there_is_no_store_to_look_makes_none_and_to_set_does(shell: Shell) -> None:
    listed = shell.run("override")
    cleared = shell.run("override", "charge", "--clear")
    refused = shell.run(*SET[:3], "100", *SET[4:])
    files = shell.files()
    shell.run(*SET)

    assert only_line(listed.stderr) == "no override is set"
    assert only_line(cleared.stderr) == "no override is set for step charge"
    assert (
        "error: --timeout-s is 100; allowed: below the dispatch deadline (0:01:00)"
        in refused.stderr
    )
    assert files == ["shop.py"]
    assert len(shell.json("override")["overrides"]) == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--clear",), "STEP is missing; `leasehold registry` lists the steps."),
        (("--timeout-s", "5"), "STEP is missing"),
        (("charge", "--timeout-s", "5", "--clear"), "--clear ends what is set"),
        (("charge", "--why", "x", "--until", "2h"), "No limit is given; allowed: --timeout-s"),
        (("charge", "--timeout-s", "5", "--why", "x"), "--until is missing"),
        (("charge", "--timeout-s", "5", "--until", "2h"), "--why is missing"),
        (("charge", "--timeout-s", "5", "--until", "soon", "--why", "x"), "how long from now"),
        (("charge", "--timeout-s", "nan", "--until", "2h", "--why", "x"), "--timeout-s is nan"),
        (
            ("charge", "--timeout-s", "1e9", "--until", "2h", "--why", "x"),
            "--timeout-s is 1000000000",
        ),
        (("charge", "--deadline-s", "1.5", "--until", "2h", "--why", "x"), "--deadline-s"),
        (("charge", "--timeout-s", "5", "--until", "2020-01-01", "--why", "x"), "until is '2020"),
        (("nope", "--timeout-s", "5", "--until", "2h", "--why", "x"), "'nope' is not in the"),
        (("../x", "--clear"), "'../x' is not in the dispatch registry"),
        (("charge", "--timeout-s", "5", "--until", "2h", "--why", ""), "why is ''; allowed:"),
        (("charge", "--timeout-s", "5", "--until", "2h", "--why", "\x1b[2J"), "why is"),
    ],
)
def test_bad_input_changes_nothing_and_gets_one_line(
    shell: Shell, words: tuple[str, ...], says: str
) -> None:
    done = shell.run("override", *words)

    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("error") == 1
    assert "\x1b" not in done.stderr.replace("\x1b[31m", "").replace("\x1b[0m", "")
    assert shell.json("override") == {"overrides": []}


def test_a_deadline_that_cloud_tasks_does_not_wait_for_is_not_set(shell: Shell) -> None:
    deployed = {
        "LEASEHOLD_TASKS": "cloud-tasks://p/l",
        "LEASEHOLD_FUNCTION_URL": "https://execute-step.example",
        "LEASEHOLD_TASK_ACCOUNT": "tasks@p.iam.gserviceaccount.com",
    }
    words = ("override", "charge", "--deadline-s", "2000", "--until", "2h", "--why", "slow day")

    refused = shell.run(*words, **deployed)
    on_one_machine = shell.run(*words)

    assert "error: --deadline-s is 2000; allowed: " in refused.stderr
    assert (refused.returncode, on_one_machine.returncode) == (2, 0)


def test_a_key_in_a_reason_is_not_kept(shell: Shell) -> None:
    """All who may look read it, until a person clears it."""
    why = "the key sk-proj-0123456789 is spent"
    shell.run(*SET[:-1], why)
    shell.run("pause", "--step", "reserve", "--why", why)

    (override,) = shell.json("override")["overrides"]
    pause = shell.json("resume", "--step", "reserve")["pause"]

    assert (override["why"], pause["why"]) == ("the key [redacted] is spent",) * 2


def test_what_is_set_can_be_read_without_the_catalog(shell: Shell) -> None:
    shell.run(*SET)
    (shell.folder / "shop.py").unlink()

    (one,) = shell.json("override")["overrides"]

    assert (one["stepType"], one["state"], one["problem"]) == ("charge", "in_force", None)


def test_the_override_of_a_step_that_is_gone_is_refused_and_can_be_cleared(shell: Shell) -> None:
    shell.run(*SET)
    catalog = (shell.folder / "shop.py").read_text()
    (shell.folder / "shop.py").write_text(catalog.replace('"charge"', '"bill"'))

    (one,) = shell.json("override")["overrides"]
    cleared = shell.run("override", "charge", "--clear")

    problem = "overrides/charge refused: this deploy has no such step."
    assert (one["state"], one["problem"]) == ("refused", problem)
    assert only_line(cleared.stderr).startswith("cleared: override of charge by ")


@pytest.mark.parametrize(
    ("timeout_s", "until", "state", "problem"),
    [
        (100, "2999-01-01T00:00:00Z", "refused", "overrides/charge timeoutS refused: "),
        (20, "2020-01-01T00:00:00Z", "over", ""),
    ],
)
def test_an_override_that_was_typed_into_the_store_has_its_state(
    shell: Shell, timeout_s: int, until: str, state: str, problem: str
) -> None:
    shell.run(*SET)
    typed = {"timeoutS": timeout_s, "until": until}
    store = SqliteDocuments(shell.folder / ".leasehold/leasehold.db", SystemClock())
    store.transact(override_ref("charge"), lambda _, __: Write(None, typed))
    store.close()

    (one,) = shell.json("override")["overrides"]

    assert one["state"] == state
    assert (one["problem"] or "").startswith(problem)


def test_replacing_an_override_reports_its_author(shell: Shell) -> None:
    shell.run(*SET)

    done = shell.run("override", "charge", "--deadline-s", "90", "--until", "1h", "--why", "more")

    replaced = done.stderr.splitlines()[1]
    assert replaced.startswith("it replaces: override of charge by ")
    assert replaced.endswith(" timeout 45 s until 2999-01-01T00:00:00Z: slow day")


def test_what_the_environment_hides_of_it_is_seen_in_the_registry(shell: Shell) -> None:
    shell.run(*SET)

    answer = shell.run("registry", PIPELINE_CHARGE_TIMEOUT_MS="20000")

    assert "20 s (PIPELINE_CHARGE_TIMEOUT_MS)" in answer.stdout


def test_a_document_of_a_stranger_is_shown_and_steers_no_terminal(shell: Shell) -> None:
    shell.run(*SET)
    store = SqliteDocuments(shell.folder / ".leasehold/leasehold.db", SystemClock())

    def write(step: str, **fields: Any) -> None:
        store.transact(override_ref(step), lambda _, __: Write(None, fields))

    write("charge", timeoutS=20, until="2999-01-01", why="\x1b]0;owned\x07\u202e")
    write("\x1b[2J", **{"\x1b[31m": 1})
    store.close()

    shown = shell.on_terminal("override", COLUMNS="400") + shell.on_terminal("registry")

    assert [evil for evil in ("\x1b]0;", "\x1b[2J", "\u202e", "\x07") if evil in shown] == []
    assert "\\x1b]0;owned" in shown


def test_the_registry_is_there_without_its_store(shell: Shell) -> None:
    (shell.folder / "store.db").write_text("no database at all, but long enough to be one" * 30)

    done = shell.run("registry", LEASEHOLD_STORE="sqlite:///store.db")

    assert done.returncode == 0
    assert "30 s (entry)" in done.stdout
    assert "overrides are not shown as they are now: " in only_line(done.stderr)
    assert json.loads(shell.run("registry", "--json", LEASEHOLD_STORE="sqlite:///store.db").stdout)[
        "overridesProblem"
    ]
