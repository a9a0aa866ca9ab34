"""`runs`, `show`, `trace`, `registry`: what can be asked, of a store that may not be there."""

from __future__ import annotations

import json

import pytest

from leasehold.cli.commands import COMMANDS
from leasehold.cli.deploy import COMMANDS as DEPLOY_COMMANDS
from tests.worlds.shell import LEASEHOLD, Shell, only_line

ORDER = ("start", "order", "--input", '{"amount": 3}')


def test_a_store_that_is_not_there_is_read_as_empty_and_not_made(shell: Shell) -> None:
    assert shell.json("runs") == {"runs": [], "nextPageToken": None}
    absent = only_line(shell.run("runs").stderr)
    assert absent.startswith("no runs: there is no store yet at sqlite:///")
    assert shell.run("show", "r-1").returncode == 2
    assert shell.json("registry")["pipelines"][0]["name"] == "order"
    assert shell.files() == ["shop.py"]


def test_the_table_of_a_run_has_both_phases_of_each_step(shell: Shell) -> None:
    done = shell.run(*ORDER, "--in-process", "--json")
    run = json.loads(done.stdout)

    head, *rows = shell.run("show", run["runId"]).stdout.partition("\n\n")[2].splitlines()

    columns = head.split("\t")
    assert columns[2:5] == ["TIME", "BOOTSTRAP", "EXECUTION"]
    cells = [row.split("\t")[3:5] for row in rows]
    assert [bootstrap.removesuffix(", cold")[-2:] for bootstrap, _ in cells] == [" s"] * len(rows)
    assert [", cold" in bootstrap for bootstrap, _ in cells] == [True] + [False] * (len(rows) - 1)
    assert all(execution.endswith(" s") for _, execution in cells)


def test_runs_are_listed_newest_first_page_by_page(shell: Shell) -> None:
    started = [json.loads(shell.run(*ORDER, "--json").stdout)["runId"] for _ in range(3)]

    page = shell.json("runs", "--limit", "2")
    rest = shell.json("runs", "--limit", "2", "--page-token", page["nextPageToken"])

    listed = [run["runId"] for run in page["runs"] + rest["runs"]]
    assert listed == started[::-1]
    assert rest["nextPageToken"] is None


def test_runs_are_found_by_status_pipeline_label_and_dead_letter(shell: Shell) -> None:
    waiting = json.loads(shell.run(*ORDER, "--label", "env:test", "--json").stdout)["runId"]
    doomed = ("start", "doomed", "--input", '{"amount": 1}', "--in-process", "--json")
    dead = json.loads(shell.run(*doomed).stdout)["runId"]

    for words, expected in (
        (("--status", "pending"), [waiting]),
        (("--status", "ERROR"), [dead]),
        (("--pipeline", "order"), [waiting]),
        (("--label", "env:test"), [waiting]),
        (("--label", "env:live"), []),
        (("--dead-lettered",), [dead]),
        ((), [dead, waiting]),
    ):
        assert [run["runId"] for run in shell.json("runs", *words)["runs"]] == expected


def test_the_filters_of_a_list_combine(shell: Shell) -> None:
    labelled = ("--label", "env:test", "--json")
    doomed = ("start", "doomed", "--input", '{"amount": 1}', "--in-process")
    dead = json.loads(shell.run(*doomed, *labelled).stdout)["runId"]
    waiting = json.loads(shell.run(*ORDER, *labelled).stdout)["runId"]
    shell.run(*ORDER)

    def found(*words: str) -> list[str]:
        return [run["runId"] for run in shell.json("runs", *words)["runs"]]

    assert found("--label", "env:test", "--pipeline", "order") == [waiting]
    assert found("--label", "env:test", "--status", "error", "--dead-lettered") == [dead]
    assert found("--dead-lettered", "--pipeline", "order") == []
    assert found("--dead-letter-reason", "PERMANENT_FAILURE") + found(
        "--dead-letter-reason", "RETRIES_EXHAUSTED"
    ) == [dead]


def test_runs_are_found_by_what_people_did_by_time_and_by_step(shell: Shell) -> None:
    waiting, paused, cancelled = (
        json.loads(shell.run(*ORDER, "--json").stdout)["runId"] for _ in range(3)
    )
    shell.run("pause", paused)
    shell.run("cancel", cancelled)

    for words, expected in (
        (("--paused",), [paused]),
        (("--cancelled",), [cancelled]),
        (("--status", "PENDING"), [paused, waiting]),
        (("--status", "PENDING", "--cancelled"), [cancelled]),
        (("--step", "reserve", "--since", "1h"), [cancelled, paused, waiting]),
        (("--step", "charge"), []),
        (("--until", "1h"), []),
        (("--since", "2026-01-01", "--until", "2999-12-31T00:00:00Z", "--paused"), [paused]),
        (("--id-prefix", waiting[:-1]), [waiting]),
        (("--trouble", "silent"), []),
        (("--dead-letter-reason", "never_started"), []),
    ):
        assert [run["runId"] for run in shell.json("runs", *words)["runs"]] == expected


def test_a_list_goes_on_where_an_answer_ended_before_it_was_full(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = [json.loads(shell.run(*ORDER, "--json").stdout)["runId"] for _ in range(4)]
    for run_id in started[:2]:
        shell.run("pause", run_id)
    monkeypatch.setattr("leasehold.services.read_runs.MAX_RUNS_SEARCHED", 1)
    monkeypatch.setattr("leasehold.services.read_runs.SUMMARIES_PER_READ", 1)

    page = shell.json("runs", "--paused", "--limit", "1")
    rest = shell.json("runs", "--paused", "--page-token", page["nextPageToken"])

    assert [run["runId"] for run in page["runs"] + rest["runs"]] == [started[1], started[0]]
    assert rest["nextPageToken"] is None


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--since", "yesterday"), "'yesterday'; allowed: an age such as 90s, 15m, 2h, 3d or 4w, "),
        (("--until", "2026-11-22T06:00"), "a time with its zone such as 2026-11-22T06:00:00Z"),
        (("--since", "1h", "--until", "2h"), "until is '"),
    ],
)
def test_a_time_that_names_none_is_refused_in_one_line(
    shell: Shell, words: tuple[str, ...], problem: str
) -> None:
    shell.run(*ORDER)

    refused = shell.run("runs", *words)

    assert (refused.returncode, refused.stdout) == (2, "")
    assert problem in only_line(refused.stderr)


def test_why_says_in_one_sentence_what_a_run_waits_for(shell: Shell) -> None:
    run_id = json.loads(shell.run(*ORDER, "--json").stdout)["runId"]

    pending = shell.run("why", run_id).stdout
    answer = shell.json("why", run_id)
    shell.run("pause", run_id)
    paused = shell.json("why", run_id)

    assert only_line(pending) == answer["words"]
    assert answer["words"].startswith(
        f"Run {run_id} waits for a worker to take attempt 1 of step reserve from queue reserve, "
    )
    assert answer["until"].endswith("Z")
    assert (answer["runId"], answer["then"]) == (run_id, "redispatched")
    assert paused == {
        "runId": run_id,
        "waitsFor": "a person to resume it (resume or cancel)",
        "until": None,
        "then": None,
        "words": f"Run {run_id} waits for a person to resume it (resume or cancel).",
        "generation": 1,
        "operations": ["resume", "cancel"],
        "owed": [],
        "deliveries": [],
    }


def test_a_pipe_gets_one_plain_line_a_run(shell: Shell) -> None:
    doomed = ("start", "doomed", "--input", '{"amount": 1}', "--in-process", "--json")
    summary = json.loads(shell.run(*doomed).stdout)

    head, line = shell.run("runs").stdout.splitlines()

    assert head.split("\t") == [
        "RUN",
        "PIPELINE",
        "STATUS",
        "STEP",
        "DONE",
        "CREATED",
        "GENERATION",
    ]
    created = summary["createdAt"][:23] + "Z"
    status = "ERROR dead-lettered PERMANENT_FAILURE"
    assert line.split("\t") == [
        summary["runId"],
        "doomed",
        status,
        "refuse",
        "1/2",
        created,
        str(summary["generation"]),
    ]


def test_show_tells_people_why_and_machines_everything(shell: Shell) -> None:
    doomed = ("start", "doomed", "--input", '{"amount": 1}', "--in-process", "--json")
    run_id = json.loads(shell.run(*doomed).stdout)["runId"]

    answer = shell.run("show", run_id).stdout
    manifest = shell.json("show", run_id)

    assert "status: ERROR dead-lettered\n" in answer
    assert "dead letter: 💀 PERMANENT_FAILURE: Permanent failure\n" in answer
    assert "meaning: The step failed in a way that no retry can repair.\n" in answer
    assert "remedy: Read the error; correct the input or the code, then recreate the run" in answer
    assert "error: PermanentError (unlucky): 13 is refused; choose another amount\n" in answer
    assert "raised: attempt 1 of step refuse at shop.py:" in answer
    assert "reserve\tCOMPLETED\t" in answer
    assert manifest["steps"]["reserve"]["output"] == '{"amount":1}'
    assert manifest["error"]["code"] == "unlucky"
    assert "lease" not in manifest


def test_trace_tells_all_events_oldest_first(shell: Shell) -> None:
    (shell.folder / "busy").touch()
    run_id = json.loads(shell.run(*ORDER, "--in-process", "--json").stdout)["runId"]

    events = shell.json("trace", run_id)["events"]

    assert [event["type"] for event in events if event["step"] == "charge"] == [
        "step_started",
        "step_error",
        "step_completed",
        "step_handed_off",
    ]
    (error,) = [event for event in events if event["type"] == "step_error"]
    assert error["errorCode"] == "provider_busy"
    assert (error["reason"], error["attempt"]) == ("AgentClientError", 1)
    assert [event["at"] for event in events] == sorted(event["at"] for event in events)
    assert (
        "step_error\tcharge\t1\tAgentClientError: the provider" in shell.run("trace", run_id).stdout
    )


def test_runs_can_be_read_without_their_catalog(shell: Shell) -> None:
    shell.run(*ORDER)
    (shell.folder / "shop.py").unlink()

    assert len(shell.json("runs")["runs"]) == 1


def test_registry_names_the_source_of_each_value_and_what_was_refused(shell: Shell) -> None:
    shell.settings |= {
        "PIPELINE_CHARGE_TIMEOUT_MS": "15000",
        "PIPELINE_CHARGE_DEADLINE_S": "9",
        "PIPELINE_MAX_RETRIES": "2",
    }

    steps = {step["stepType"]: step for step in shell.json("registry")["steps"]}

    assert steps["charge"]["agentTimeoutMs"] == {
        "value": 15000,
        "source": "PIPELINE_CHARGE_TIMEOUT_MS",
    }
    assert steps["charge"]["dispatchDeadlineS"] == {"value": 60.0, "source": "entry"}
    assert steps["charge"]["maxRetries"] == {"value": 2, "source": "threshold"}
    (refused,) = steps["charge"]["refused"]
    assert refused.startswith("PIPELINE_CHARGE_DEADLINE_S refused")
    assert steps["ship"]["refused"] == []
    answer = shell.run("registry")
    assert "15 s (PIPELINE_CHARGE_TIMEOUT_MS)" in answer.stdout
    assert "order\treserve → charge → ship" in answer.stdout
    assert answer.stderr.startswith("warning: PIPELINE_CHARGE_DEADLINE_S refused")


def test_registry_lists_the_options_that_no_other_table_has(shell: Shell) -> None:
    catalog = shell.folder / "shop.py"
    without = shell.run("registry").stdout
    entry = "step_type=name,"
    catalog.write_text(
        catalog.read_text().replace(
            entry, f'{entry} schedule_to_start=timedelta(seconds=90), entry_actions=("shop:x",),'
        )
    )

    steps = {step["stepType"]: step["options"] for step in shell.json("registry")["steps"]}
    shown = shell.run("registry").stdout

    assert "OPTION" not in without
    assert steps["charge"] == {"scheduleToStartS": 90.0, "entryActions": ["shop:x"]}
    assert steps["ship"] == steps["charge"]
    assert "charge\tscheduleToStartS\t90.0\ncharge\tentryActions\tshop:x\n" in shown


@pytest.mark.sandboxed
def test_registry_shows_where_each_handler_runs_and_who_said_so(shell: Shell) -> None:
    as_entered = shell.run("registry").stdout
    shell.settings["LEASEHOLD_ISOLATION"] = "inline"

    assert "charge\tprocess (entry)\t5 s (entry)\tnone (entry)" in as_entered
    assert "charge\tinline (LEASEHOLD_ISOLATION)\t" in shell.run("registry").stdout
    step = shell.json("registry")["steps"][0]
    assert (step["isolation"], step["isolationSource"]) == ("inline", "LEASEHOLD_ISOLATION")


def test_help_comes_fast_with_an_example_and_version_is_the_packages(shell: Shell) -> None:
    calls = [*COMMANDS, *(f"deploy {name}" for name in DEPLOY_COMMANDS)]
    for call in calls:
        help_text = shell.run(*call.split(), "--help").stdout
        assert f"leasehold {call}" in help_text.partition("Example")[2], call

    assert shell.run("--version").stdout == "leasehold 0.1.0\n"
    loaded = shell.process(*LEASEHOLD, "--help", PYTHONPROFILEIMPORTTIME="1").stderr
    heavy = ("rich", "sqlite3", "pydantic", "leasehold.bootstrap", "leasehold.cli.start")
    assert not [name for name in heavy if name in loaded]


@pytest.mark.parametrize("name", COMMANDS)
def test_each_row_of_the_help_is_how_the_help_of_its_command_begins(
    shell: Shell, name: str
) -> None:
    page = " ".join(shell.run(name, "--help").stdout.split())

    assert f"leasehold {name} [OPTIONS]" in page
    assert COMMANDS[name].summary in page
