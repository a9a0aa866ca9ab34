"""`leasehold start`, from the first word to the exit code."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from tests.worlds.shell import LEASEHOLD, Shell, only_line
from tests.worlds.waiting import until

PROGRAM = " ".join(LEASEHOLD)
ORDER = ("start", "order", "--input", '{"amount": 3}')


def test_a_run_in_this_process_is_told_line_by_line_and_answered_in_one(shell: Shell) -> None:
    done = shell.run(*ORDER, "--in-process")

    assert done.returncode == 0
    assert re.fullmatch(r"run r-[0-9a-f]{16} COMPLETED in \S+ s\n", done.stdout)
    lines = [re.sub(r"^\d{4}-.*?Z ", "", line) for line in done.stderr.splitlines()]
    run_id = done.stdout.split()[1]
    half = {f"step {step}: 50%, half of it" for step in ("reserve", "ship")}
    said = {"reserving"} | half  # by the handler; a busy machine shows more of it
    assert [line for line in lines if line not in said] == [
        "run started: order",
        "step reserve started",
        "step reserve completed",
        "step charge started",
        "step charge completed",
        "step ship started",
        "step ship completed",
        "run completed",
        'output: {"amount":3}',
        f"next: {PROGRAM} output {run_id} · {PROGRAM} show {run_id} · {PROGRAM} trace {run_id}",
    ]


@pytest.mark.sandboxed
def test_what_a_handler_in_its_own_process_prints_is_a_line_of_its_log(shell: Shell) -> None:
    done = shell.run(*ORDER, "--in-process", "--json")

    run_id = json.loads(done.stdout)["runId"]
    assert json.loads(done.stdout)["output"] == {"amount": 3}
    said = [line.partition(" INFO ")[2] for line in done.stderr.splitlines()]
    assert said == [
        f"run={run_id} step={step} attempt=1 leasehold.step: reserving"
        for step in ("reserve", "ship")
    ]


def test_with_json_the_answer_is_the_summary_and_the_output_and_nothing_else(shell: Shell) -> None:
    done = shell.run(*ORDER, "--in-process", "--json", "--label", "env:test")

    summary = json.loads(done.stdout)
    assert done.stderr.splitlines() == ["reserving", "reserving"]
    assert set(summary) == {
        *("runId", "pipeline", "status", "currentStep", "createdAt", "updatedAt", "completedAt"),
        *(
            "paused",
            "held",
            "waitsIn",
            "cancelled",
            "deadLettered",
            "deadLetteredAt",
            "deadLetterReason",
        ),
        *("attempts", "progress", "labels", "generation", "errorCode", "blockCode"),
        *("heartbeatAt", "spend", "output"),
    }
    assert summary["output"] == {"amount": 3}
    assert summary["status"] == "COMPLETED"
    assert summary["labels"] == ["env:test"]
    assert summary["completedAt"].endswith("Z")
    assert summary["progress"] == {"stepsDone": 3, "steps": 3, "fraction": 1.0, "message": ""}


def test_an_input_comes_from_a_file_or_from_stdin(shell: Shell) -> None:
    (shell.folder / "order.json").write_text('{"amount": 5}')

    of_file = shell.run("start", "order", "--input", "@order.json", "--in-process", "--json")
    of_stdin = shell.run(
        "start", "order", "--input", "@-", "--in-process", "--json", stdin='{"amount": 6}'
    )

    for done, given in ((of_file, '{"amount":5}'), (of_stdin, '{"amount":6}')):
        assert shell.json("show", json.loads(done.stdout)["runId"])["input"] == given


def test_a_recorded_run_waits_for_a_worker_and_the_command_it_names_runs_it(shell: Shell) -> None:
    recorded = shell.run("start", "order", "--input", '{"amount":  3}')

    assert recorded.returncode == 0
    run_id = recorded.stdout.split()[1]
    assert recorded.stdout == f"run {run_id} PENDING\n"
    sentence, _, command = only_line(recorded.stderr).partition(": ")
    assert sentence == "It waits for a worker; this command runs it here"
    words = re.fullmatch(
        r".* -m leasehold (start order) --input '(.*)' --idempotency-key (\S+) --in-process",
        command,
    )
    assert words is not None
    _, given, key = words.groups()
    done = shell.run("start", "order", "--input", given, "--idempotency-key", key, "--in-process")
    assert done.stdout.startswith(f"run {run_id} COMPLETED")


def test_waiting_ends_when_another_process_has_run_it(shell: Shell) -> None:
    words = (*ORDER, "--idempotency-key", "k")
    waiting = shell.begin(*words, "--wait")
    until(lambda: shell.json("runs")["runs"])

    worker = shell.run(*words, "--in-process")
    stdout, _ = waiting.communicate(timeout=60)

    assert (worker.returncode, waiting.returncode) == (0, 0)
    assert "COMPLETED" in stdout


def test_the_same_key_gives_the_same_run_and_its_steps_run_once(shell: Shell) -> None:
    first = shell.run(*ORDER, "--idempotency-key", "k", "--in-process")
    again = shell.run(*ORDER, "--idempotency-key", "k", "--in-process")

    assert again.stdout == first.stdout
    assert len(shell.json("runs")["runs"]) == 1


def test_a_run_that_is_given_up_exits_with_1_and_says_why(shell: Shell) -> None:
    done = shell.run("start", "doomed", "--input", '{"amount": 13}', "--in-process")

    assert done.returncode == 1
    assert "💀 dead-lettered, PERMANENT_FAILURE" in done.stdout
    assert "at step refuse: PermanentError: 13 is refused; choose another amount" in done.stdout
    assert f"leasehold trace {done.stdout.split()[1]}" in done.stderr


def test_a_failed_attempt_is_reported_with_its_error_and_its_next_time(shell: Shell) -> None:
    (shell.folder / "busy").touch()

    done = shell.run(*ORDER, "--in-process")

    assert done.returncode == 0
    assert "step charge failed, attempt 1: AgentClientError: the provider is busy" in done.stderr
    assert "step charge is due again, attempt 2" in done.stderr


def test_a_run_that_waits_for_a_person_exits_with_1_and_says_for_what(shell: Shell) -> None:
    """Its step is gone from the catalog that goes on with it."""
    shell.settings["PIPELINE_DISPATCH_GRACE_S"] = "1"  # the alarm of the start comes after it
    shell.run(*ORDER, "--idempotency-key", "k")
    catalog = (shell.folder / "shop.py").read_text()
    renamed = catalog.replace('step("reserve"', 'step("book"').replace('=("reserve"', '=("book"')
    (shell.folder / "shop.py").write_text(renamed)

    done = shell.run(*ORDER, "--idempotency-key", "k", "--in-process")

    assert done.returncode == 1
    assert "BLOCKED" in done.stdout
    assert "step_unknown: No catalog that is deployed has the step 'reserve'." in done.stdout


def test_a_refused_override_is_said_once_and_the_entry_holds(shell: Shell) -> None:
    done = shell.run(
        *ORDER,
        "--in-process",
        "--json",
        PIPELINE_CHARGE_TIMEOUT_MS="soon",
        PIPELINE_REFUSE_TIMEOUT_MS="never",
    )

    assert done.returncode == 0
    warnings = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    (warning,) = warnings
    assert warning.startswith("warning: PIPELINE_CHARGE_TIMEOUT_MS refused: it is 'soon'")
    assert warning.endswith("allowed: whole milliseconds above 0.")


def test_the_command_that_runs_a_run_here_gives_its_labels_too(shell: Shell) -> None:
    """A key that is used again with other labels is refused."""
    labelled = (*ORDER, "--idempotency-key", "k", "--label", "env:test", "--label", "team:a b")
    noted = shell.run(*labelled).stderr.splitlines()[-1]
    words = shlex.split(noted.partition("runs it here: ")[2])

    other = shell.run(*ORDER, "--idempotency-key", "k", "--label", "env:live")
    done = shell.run(*words[words.index("start") :])

    assert other.returncode == 2
    assert "started with another set of labels; use a new key." in other.stderr
    assert done.returncode == 0


AWAY = """
from datetime import timedelta
from leasehold import PipelineEntry, Registry, StepDispatchEntry

STEPS = Registry("dispatch", [StepDispatchEntry(
    step_type="weigh", handler="remote",
    agent_timeout=timedelta(seconds=20), dispatch_deadline=timedelta(seconds=30))])
PIPELINES = Registry("pipelines", [PipelineEntry(name="weighing", steps=("weigh",))])
"""


def test_a_run_with_a_remote_step_says_at_the_start_that_it_will_wait(shell: Shell) -> None:
    (shell.folder / "away.py").write_text(AWAY)

    process = shell.begin("start", "weighing", "--in-process", LEASEHOLD_CATALOG="away")
    assert process.stderr is not None
    line = process.stderr.readline()
    process.kill()
    process.communicate()

    assert line.startswith("step weigh is for remote workers: the run waits there until one claims")


def test_a_run_of_this_process_warns_of_variables_that_look_like_settings(shell: Shell) -> None:
    """They are of what runs here, as in a server; a run that is left to a server has its own."""
    settings = {"PIPELINE_CHRAGE_TIMEOUT_MS": "9", "PIPELINE_WORKSPACE": "/of/another/program"}

    here = shell.run(*ORDER, "--in-process", **settings)
    elsewhere = shell.run(*ORDER, **settings)

    assert here.stderr.count("PIPELINE_CHRAGE_TIMEOUT_MS is set, and nothing reads it: is") == 1
    assert "PIPELINE_WORKSPACE" not in here.stderr
    assert "is set" not in elsewhere.stderr
