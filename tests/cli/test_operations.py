"""`pause`, `resume`, `cancel`, `retry`, `approve`, `recreate`, `batch`."""

from __future__ import annotations

import getpass
import json
import shlex
import socket
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from leasehold.cli.commands import COMMANDS
from leasehold.domain import lifecycle
from leasehold.domain.change import on_run
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.lease import Fence
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import run_ref
from leasehold.domain.manifest_parts import Block, ErrorRecord
from leasehold.services.engine import Engine
from leasehold.services.read_runs import get_run
from tests.worlds.shell import LEASEHOLD, Done, Shell, only_line
from tests.worlds.waiting import until

ORDER = ("start", "order", "--input", '{"amount": 3}')
DOOMED = ("start", "doomed", "--input", '{"amount": 13}', "--in-process", "--json")
KEPT = KeptValue(text='{"amount":3}')


@pytest.fixture
def run_id(shell: Shell) -> str:
    """A run that waits for a worker."""
    return str(json.loads(shell.run(*ORDER, "--json").stdout)["runId"])


@pytest.fixture
def dead(shell: Shell) -> str:
    """A run that was given up at its second step."""
    return str(json.loads(shell.run(*DOOMED).stdout)["runId"])


def attempt(engine: Engine, run_id: str, settle: Any, **facts: Any) -> None:
    """Let a worker take the step and settle it."""
    before = get_run(engine, run_id)
    generation = before.position.dispatch.generation
    lease_id = f"lease-{generation}"
    for transition, known in (
        (
            lifecycle.arrive,
            {"generation": generation, "lease_id": lease_id, "holder": "worker-1"},
        ),
        (settle, {"fence": Fence(lease_id, before.fencing_token + 1), **facts}),
    ):

        def write(run: Any, now: Any, transition: Any = transition, known: Any = known) -> Any:
            return transition(run, now, rules=engine.rules, **known)

        engine.documents.transact(run_ref(run_id), on_run(run_id, write))


def failed(engine: Engine, run_id: str) -> None:
    attempt(engine, run_id, lifecycle.fail, error=ErrorRecord(type="E", code="e", message="no"))


def blocked(engine: Engine, run_id: str) -> None:
    found = Block(code="GATE", finding="Too dear.", remediation="Look.")
    attempt(engine, run_id, lifecycle.block, output=KEPT, output_status="SUCCESS", found=found)


def last_event(shell: Shell, run_id: str, type_: str) -> Any:
    events = shell.json("trace", run_id)["events"]
    return [event for event in events if event["type"] == type_][-1]


def test_there_is_a_command_for_each_operation() -> None:
    rows = {name for name, row in COMMANDS.items() if row.module == "operations"}

    assert rows == {operation.value for operation in Operation}


def test_a_run_is_paused_resumed_and_cancelled(shell: Shell, run_id: str) -> None:
    paused = shell.run("pause", run_id, "--reason", "lunch")
    resumed = shell.run("resume", run_id)
    cancelled = shell.run("cancel", run_id)

    assert (paused.returncode, paused.stdout) == (0, f"run {run_id} PENDING paused\n")
    assert paused.stderr == ""
    assert (resumed.returncode, resumed.stdout) == (0, f"run {run_id} PENDING\n")
    assert (cancelled.returncode, cancelled.stdout) == (0, f"run {run_id} PENDING cancelled\n")
    event = last_event(shell, run_id, "run_paused")
    assert event["reason"] == "lunch"
    assert event["actor"] == f"{getpass.getuser()}@{socket.gethostname()}"
    assert f"by {event['actor']}: lunch" in shell.run("trace", run_id).stdout


def test_a_failed_step_is_retried_and_a_blocked_one_approved(shell: Shell, engine: Engine) -> None:
    first, second = (json.loads(shell.run(*ORDER, "--json").stdout)["runId"] for _ in range(2))
    failed(engine, first)
    blocked(engine, second)

    retried = shell.json("retry", first)
    approved = shell.json("approve", second)

    assert (retried["status"], retried["currentStep"]) == ("PENDING", "reserve")
    assert (approved["status"], approved["currentStep"]) == ("PENDING", "charge")


def test_what_waits_for_a_worker_afterwards_is_said_with_what_runs_it(
    shell: Shell, run_id: str
) -> None:
    """No queue of this process outlives it; the named command finds the run where it stands."""
    shell.run("pause", run_id)

    resumed = shell.run("resume", run_id)

    sentence, _, command = only_line(resumed.stderr).partition(": ")
    assert sentence == "It waits for a worker. Unless a server of this store runs it, do so with"
    done = shell.process(*shlex.split(command))
    assert done.stdout.startswith(f"run {run_id} COMPLETED")


def test_what_runs_a_run_without_retries_keeps_it_without(shell: Shell) -> None:
    """The key began a run that is never retried: a start that says otherwise is refused."""
    run_id = shell.json(*ORDER, "--idempotency-key", "k", "--no-retry")["runId"]
    shell.run("pause", run_id)

    resumed = shell.run("resume", run_id)
    done = pasted(shell, only_line(resumed.stderr))

    assert (done.returncode, done.stdout.split()[:3]) == (0, ["run", run_id, "COMPLETED"])


def test_a_new_run_is_made_of_one_that_is_over(shell: Shell, dead: str) -> None:
    (shell.folder / "order.json").write_text('{"amount": 4}')

    plain = shell.run("recreate", dead, "--from-step", "refuse", "--reason", "mended")
    other = shell.json("recreate", dead, "--input", "@order.json", "--label", "a:1")

    made = plain.stdout.split()[1]
    assert plain.stdout == f"run {made} PENDING\n"
    lines = plain.stderr.splitlines()
    assert lines[0] == f"It is made of run {dead}, and begins at step refuse."
    assert lines[1] == "It keeps 1 output."
    assert lines[2].endswith("leasehold serve")
    kept = shell.json("show", made)
    assert (kept["currentStep"], kept["recreatedFrom"]) == ("refuse", dead)
    assert kept["steps"]["reserve"]["output"] == '{"amount":13}'
    assert (other["labels"], other["currentStep"]) == (["a:1"], "reserve")
    assert shell.json("show", other["runId"])["input"] == '{"amount":4}'
    assert f"made into: {made}, {other['runId']}\n" in shell.run("show", dead).stdout
    assert f"made of: {dead}\n" in shell.run("show", made).stdout


def test_what_the_state_forbids_exits_with_1_and_changes_nothing(
    shell: Shell, run_id: str, server: str
) -> None:
    before = shell.json("show", run_id)

    for there in ((), ("--url", server)):
        refused = shell.run("approve", run_id, *there)
        assert refused.returncode == 1
        assert only_line(refused.stderr) == (
            f"error: Cannot approve run {run_id}: it is PENDING; "
            "allowed when it is BLOCKED with an output that was kept, or for a call that may have "
            "happened."
        )
        assert refused.stdout == ""
    assert shell.json("show", run_id) == before


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--from-step", "shp"), ("'shp'", "reserve, refuse")),
        (("--input", '{"amount": "x"}'), ("amount: Input should be",)),
        (("--label", "a:"), ("'a:'", "1 to 64")),
    ],
)
def test_wrong_words_for_a_run_that_is_there_exit_with_2(
    shell: Shell, dead: str, words: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    refused = shell.run("recreate", dead, *words)

    line = only_line(refused.stderr)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert all(part in line for part in parts)
    assert len(shell.json("runs")["runs"]) == 1


def test_a_server_does_it_for_who_asks(shell: Shell, run_id: str, dead: str, server: str) -> None:
    at = ("--url", server)

    paused = shell.run("pause", run_id, "--reason", "lunch", *at)
    why = shell.json("why", run_id, *at)
    made = shell.json("recreate", dead, "--input", '{"amount": 4}', "--label", "a:1", *at)
    unknown = shell.run("pause", "r-none", *at)

    assert paused.stdout == f"run {run_id} PENDING paused\n"
    assert f"show {run_id} --url {server}" in only_line(paused.stderr)
    event = last_event(shell, run_id, "run_paused")
    assert (event["reason"], event["actor"].partition("@")[2]) == ("lunch", socket.gethostname())
    assert why["waitsFor"] == "a person to resume it (resume or cancel)"
    assert (made["labels"], shell.json("show", made["runId"])["recreatedFrom"]) == (["a:1"], dead)
    assert (unknown.returncode, "'r-none'" in only_line(unknown.stderr)) == (2, True)


# -- decisions that are bound to what was looked at ------------------------------------------------


def first(shell: Shell, engine: Engine) -> str:
    """Return the id of a run that a gate holds at its first step, generation 2."""
    run_id = str(json.loads(shell.run(*ORDER, "--json").stdout)["runId"])
    blocked(engine, run_id)
    return run_id


def pasted(shell: Shell, line: str) -> Done:
    """Run a command that was shown, as a person does who copies it."""
    program, module, name, *words = shlex.split(line.partition(": ")[2])
    assert (program, module, name) == LEASEHOLD
    return shell.run(*words)


def test_why_shows_the_whole_commands_of_a_decision(
    shell: Shell, engine: Engine, server: str
) -> None:
    run_id = first(shell, engine)

    why = shell.run("why", run_id)
    there = shell.run("why", run_id, "--url", server)
    machine = shell.json("why", run_id)
    done = pasted(shell, why.stderr.splitlines()[0])
    late = pasted(shell, why.stderr.splitlines()[2])

    assert "(approve, retry or cancel)" in only_line(why.stdout)
    assert [line.partition("-m leasehold ")[2] for line in why.stderr.splitlines()] == [
        f"approve {run_id} --generation 2",
        f"retry {run_id} --generation 2",
        f"cancel {run_id} --generation 2",
    ]
    assert there.stderr.splitlines()[0].endswith(f"--generation 2 --url {server}")
    assert (machine["generation"], machine["operations"]) == (2, ["approve", "retry", "cancel"])
    assert (done.returncode, done.stdout) == (0, f"run {run_id} PENDING\n")
    assert (late.returncode, shell.json("show", run_id).get("cancelled")) == (1, False)


def test_what_why_shows_of_a_run_that_heals_by_itself_can_be_pasted_after_a_look(
    shell: Shell,
) -> None:
    """Each look is another generation, so the commands name the step."""
    shell.settings["PIPELINE_DISPATCH_GRACE_S"] = "1"  # the alarm of the start comes after it
    run_id = shell.json(*ORDER, "--idempotency-key", "k")["runId"]
    catalog = (shell.folder / "shop.py").read_text()
    renamed = catalog.replace('step("reserve"', 'step("book"').replace('=("reserve"', '=("book"')
    (shell.folder / "shop.py").write_text(renamed)
    shell.run(*ORDER, "--idempotency-key", "k", "--in-process")
    unknown = shell.run("why", run_id)
    (shell.folder / "shop.py").write_text(catalog)

    deployed = {"LEASEHOLD_TASKS": "cloud-tasks://p/l"} | {
        "LEASEHOLD_FUNCTION_URL": "https://f",
        "LEASEHOLD_TASK_ACCOUNT": "a@p.iam.gserviceaccount.com",
    }
    retry, cancel = shell.run("why", run_id, **deployed).stderr.splitlines()
    looked, cancelled = pasted(shell, retry), pasted(shell, cancel)

    assert "retry it with" not in unknown.stderr  # it would be refused
    assert (looked.returncode, looked.stdout) == (0, f"run {run_id} PENDING\n")
    assert (cancelled.returncode, shell.json("show", run_id)["cancelled"]) == (0, True)


def test_a_run_is_held_and_let_go_as_often_as_why_says_how(shell: Shell, engine: Engine) -> None:
    """A block keeps its generation meanwhile: bound to it, the second time would be a repeat."""
    run_id = first(shell, engine)

    for _ in range(2):
        assert shell.run("pause", run_id).returncode == 0
        why = shell.run("why", run_id)
        done = pasted(shell, why.stderr.splitlines()[0])
        assert (done.returncode, done.stdout) == (0, f"run {run_id} BLOCKED\n")


def test_why_of_a_decision_says_that_the_artifacts_are_away(shell: Shell, engine: Engine) -> None:
    """An output that cannot be read is not offered for approval, and this is why."""
    run_id = first(shell, engine)
    (shell.folder / ".leasehold" / "artifacts").rename(shell.folder / "away")

    away = shell.run("why", run_id)
    (shell.folder / "away").rename(shell.folder / ".leasehold" / "artifacts")
    back = shell.run("why", run_id)

    assert "its mark is missing" in only_line(away.stdout)
    assert "its mark is missing" not in only_line(back.stdout)


def test_why_offers_no_approval_of_what_cannot_be_approved(shell: Shell, engine: Engine) -> None:
    run_id = str(json.loads(shell.run(*ORDER, "--json").stdout)["runId"])
    rules = replace(engine.rules, settings_for=lambda _: None)
    late = engine.rules.grace + timedelta(seconds=1)

    def look(run: Any, now: Any) -> Any:
        return lifecycle.on_alarm(run, now + late, rules=rules, generation=1, in_queue=False)

    engine.documents.transact(run_ref(run_id), on_run(run_id, look))

    why = shell.run("why", run_id)

    said = "to be put right at step reserve (retry or cancel): No catalog that is deployed has"
    assert said in why.stdout
    assert [line.split()[0] for line in why.stderr.splitlines()] == ["retry", "cancel"]


def test_a_decision_about_another_block_exits_with_1_and_says_what_the_run_is(
    shell: Shell, engine: Engine, server: str
) -> None:
    run_id = first(shell, engine)
    before = shell.json("show", run_id)

    for there in ((), ("--url", server)):
        refused = shell.run("approve", run_id, "--generation", "1", *there)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert only_line(refused.stderr) == (
            f"error: Cannot approve run {run_id}: you named generation 1; the run is now BLOCKED "
            "at step reserve, generation 2. Look at it, then give generation 2."
        )
        assert shell.run("retry", run_id, "--step", "charge", *there).returncode == 1
    assert shell.run("approve", run_id, "--generation", "0").returncode == 2
    assert shell.json("show", run_id) == before


def test_a_command_whose_answer_was_lost_is_given_again(
    shell: Shell, engine: Engine, server: str, losing: list[str]
) -> None:
    """The server did it, and the connection broke before it could say so."""
    run_id = first(shell, engine)
    command = ("approve", run_id, "--reason", "looked at it", "--url", server)
    losing.append(f"/runs/{run_id}:approve")

    lost = shell.run(*command, "--generation", "2")
    again = shell.run(*command, "--generation", "2")
    blocked(engine, run_id)
    unbound = shell.run(*command)

    assert (lost.returncode, again.returncode) == (2, 0)
    assert again.stdout == f"run {run_id} PENDING\n"
    assert unbound.returncode == 1
    assert "did that before, with the same reason, at step reserve" in only_line(unbound.stderr)
    assert shell.json("show", run_id)["currentStep"] == "charge"


def test_a_batch_can_be_bound_to_a_gate(shell: Shell, engine: Engine, server: str) -> None:
    early, late = first(shell, engine), first(shell, engine)
    words = ("batch", "approve", "--status", "blocked", "--limit", "10")
    assert shell.run("approve", late).returncode == 0
    blocked(engine, late)

    done = shell.run(*words, "--step", "charge")
    there = shell.json(*words, "--step", "charge", "--url", server)

    assert done.stdout.splitlines()[0] == "2 matched, 1 changed, 1 refused"
    assert there == {
        "matched": 1,
        "changed": 0,
        "refused": [{"runId": early, "code": "state_changed"}],
    }
    assert shell.json("show", late)["currentStep"] == "ship"
    assert shell.json("show", early)["currentStep"] == "reserve"


# -- batches ---------------------------------------------------------------------------------------


def test_a_batch_tells_what_it_would_do_then_does_it(shell: Shell, dead: str, run_id: str) -> None:
    words = ("batch", "recreate", "--limit", "10", "--dead-lettered", "--from-step", "refuse")

    dry = shell.run(*words, "--dry-run")
    before = len(shell.json("runs")["runs"])
    done = shell.run(*words, "--reason", "mended")
    again = shell.json(*words)

    kept = "They keep 1 output.\n"
    assert (dry.returncode, dry.stdout) == (0, f"1 matched, 1 would be changed, 0 refused\n{kept}")
    assert before == 2
    assert done.stdout == f"1 matched, 1 changed, 0 refused\n{kept}"
    assert only_line(done.stderr).startswith("They wait for a worker. Unless")
    assert again == {"matched": 0, "changed": 0, "refused": []}
    assert last_event(shell, dead, "run_recreated")["reason"] == "mended"


def test_the_counts_of_a_batch_mean_the_same_here_and_over_http(
    shell: Shell, dead: str, run_id: str, server: str
) -> None:
    """Dry: what was looked at, less the refused, is what the same batch then changes."""
    words = ("batch", "cancel", "--limit", "10", "--since", "1h")
    answers = [
        (shell.json(*words, "--dry-run", *there), shell.run(*words, "--dry-run", *there).stdout)
        for there in ((), ("--url", server))
    ]
    done = shell.json(*words)

    refused = [{"runId": dead, "code": "not_allowed"}]
    assert answers[0] == answers[1]
    assert answers[0][0] == {"matched": 2, "changed": 0, "refused": refused}
    assert answers[0][1].splitlines()[0] == "2 matched, 1 would be changed, 1 refused"
    assert done == {"matched": 2, "changed": 1, "refused": refused}


def test_labels_that_are_given_together_must_all_be_there(shell: Shell, server: str) -> None:
    one, two = ("--label", "env:test"), ("--label", "team:a")
    some = [
        json.loads(shell.run(*ORDER, *labels, "--json").stdout)["runId"]
        for labels in (one, (*one, *two), two)
    ]

    for there in ((), ("--url", server)):
        page = shell.json("runs", *one, *two, *one, *there)
        none = shell.json("runs", *one, "--label", "env:live", *there)
        words = ("batch", "cancel", *two, *one, "--limit", "9", "--dry-run")
        assert [run["runId"] for run in page["runs"]] == [some[1]]
        assert none["runs"] == []
        assert shell.json(*words, *there)["matched"] == 1


def test_a_batch_tells_which_runs_it_left_alone(shell: Shell, run_id: str, server: str) -> None:
    words = ("batch", "resume", "--limit", "10", "--pipeline", "order", "--status", "pending")

    here = shell.run(*words)
    there = shell.json(*words, "--url", server)

    assert here.returncode == 0
    assert here.stdout.splitlines() == [
        "1 matched, 0 changed, 1 refused",
        "RUN\tREFUSED",
        f"{run_id}\tnot_allowed",
    ]
    assert there["refused"] == [{"runId": run_id, "code": "not_allowed"}]


def test_a_batch_that_was_killed_is_given_again(shell: Shell, dead: str, engine: Engine) -> None:
    """Each run is recreated once, whatever its end."""
    more = [json.loads(shell.run(*ORDER, "--json").stdout)["runId"] for _ in range(4)]
    for run_id in more:
        attempt(
            engine,
            run_id,
            lifecycle.fail,
            error=ErrorRecord(type="E", code="e", message="no"),
            permanent=True,
        )
    words = ("batch", "recreate", "--limit", "100", "--dead-lettered")

    process = shell.begin(*words)
    until(lambda: engine.documents.get(run_ref(more[-1])).document.get("recreatedAs"))
    process.kill()
    process.communicate(timeout=60)
    again = shell.run(*words)

    assert again.returncode == 0
    made = [shell.json("show", run_id)["recreatedAs"] for run_id in (dead, *more)]
    assert [len(names) for names in made] == [1] * 5
    assert len(shell.json("runs")["runs"]) == 10


def test_a_hint_repeats_no_long_input(shell: Shell) -> None:
    """A command with pages of JSON in it cannot be read or pasted."""
    long = json.dumps({"amount": 3, "text": "x" * 500})
    words = ("--idempotency-key", "k", "--json")
    run_id = json.loads(shell.run("start", "order", "--input", long, *words).stdout)["runId"]
    shell.run("pause", run_id)

    hint = shell.run("resume", run_id).stderr

    assert "xxxxx" not in hint
    assert hint.rstrip().endswith("leasehold serve")
