"""What people see of a failure: at once where they wait, and later where they look."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.worlds.shell import Shell, only_line, without_controls

CATALOG = """
from datetime import timedelta
from pydantic import BaseModel
from leasehold import AgentClientError, PipelineEntry, Registry, RetryPolicy, StepDispatchEntry

class Order(BaseModel):
    amount: int
    name: str = ""

def fail_twice(ctx, given: Order):
    if ctx.attempt < 3:
        secret = dict(password="hunter2")
        raise AgentClientError("busy \\x1b[31m[503]", code="busy")
    return 1

STEPS = Registry("dispatch", [StepDispatchEntry(
    step_type="flaky", handler="flaky:fail_twice", agent_timeout=timedelta(seconds=30),
    dispatch_deadline=timedelta(seconds=60),
    retry=RetryPolicy(timedelta(seconds=0.2), 1, non_retryable=("KeyError",)),
)])
PIPELINES = Registry("pipelines", [PipelineEntry(name="flaky", steps=("flaky",))])
"""
HERE = ("start", "flaky", "--input", '{"amount": 3}', "--in-process")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (tmp_path / "flaky.py").write_text(CATALOG)
    return Shell(tmp_path, {"LEASEHOLD_CATALOG": "flaky"})


def run_id_of(shell: Shell) -> str:
    run_id: str = shell.json("runs")["runs"][0]["runId"]
    return run_id


def test_the_first_failure_is_shown_whole_and_the_next_of_its_kind_in_a_line(shell: Shell) -> None:
    """The next attempt is due after a second: so long a busy machine has to look at the run."""
    (shell.folder / "flaky.py").write_text(CATALOG.replace("seconds=0.2", "seconds=1"))
    done = shell.run(*HERE)

    assert done.returncode == 0
    lines = done.stderr.splitlines()
    first = next(n for n, line in enumerate(lines) if "failed, attempt 1: " in line)
    assert lines[first + 1 : first + 4] == [
        "  Traceback (most recent call last):",
        '    File "flaky.py", line 13, in fail_twice',
        '      raise AgentClientError("busy \\x1b[31m[503]", code="busy")',
    ]
    rest = "\n".join(lines[first + 4 :])
    assert re.search(r"step flaky is due again, attempt 2 of 6, in [\d.]+ s$", rest, re.MULTILINE)
    assert rest.index("is due again, attempt 2") < rest.index("failed, attempt 2: ")
    assert done.stderr.count("Traceback") == 1
    assert "\x1b[31m" not in done.stderr


def test_a_terminal_keeps_the_first_failure_above_what_it_draws(shell: Shell) -> None:
    """It is there for a second: so long a busy machine has to look at the run."""
    (shell.folder / "flaky.py").write_text(CATALOG.replace("seconds=0.2", "seconds=1"))

    screen = without_controls(shell.on_terminal(*HERE))

    assert "✗ step flaky failed, attempt 1: AgentClientError: busy" in screen
    assert '    File "flaky.py", line 13, in fail_twice' in screen
    assert re.search(r"again: attempt 2 of 6, in [\d.]+ s", screen)
    assert screen.count("Traceback") == 1


def test_without_retries_the_first_failure_ends_the_run(shell: Shell) -> None:
    done = shell.run(*HERE, "--no-retry")

    assert done.returncode == 1
    assert "RETRIES_EXHAUSTED" in done.stdout
    assert "in fail_twice" in done.stderr
    assert "due again" not in done.stderr
    assert shell.json("show", run_id_of(shell))["maxRetries"] == 0


def test_a_run_without_retries_is_continued_without_them(shell: Shell) -> None:
    recorded = shell.run("start", "flaky", "--input", '{"amount": 3}', "--no-retry")

    assert only_line(recorded.stderr).endswith("--no-retry --in-process")
    other = shell.run(*HERE, "--idempotency-key", re.findall(r"cli-\w+", recorded.stderr)[0])
    assert "started with another maxRetries (--no-retry); use a new key" in only_line(other.stderr)


@pytest.mark.parametrize("command", ["show", "trace", "why"])
def test_the_traceback_is_shown_where_people_look(shell: Shell, command: str) -> None:
    shell.run(*HERE, "--no-retry")

    for seen in (
        shell.run(command, run_id_of(shell)).stdout,
        without_controls(shell.on_terminal(command, run_id_of(shell))),
    ):
        assert '\n    File "flaky.py", line 13, in fail_twice\n      raise AgentClient' in seen
        assert seen.rstrip().endswith("leasehold.errors.AgentClientError: busy \\x1b[31m[503]")
        assert "\x1b[31m[503]" not in seen


REFUSING = CATALOG.replace(
    'raise AgentClientError("busy \\x1b[31m[503]", code="busy")',
    """
        if given.name == "details":
            raise AgentClientError("no", details={"status": 422, "model": "large \\x1b[2J"})
        class Answer(BaseModel):
            pages: list[int]
        Answer.model_validate({"pages": [f"page {n} \\x1b[2J" for n in range(70)]})""",
)


@pytest.mark.parametrize("command", ["show", "trace"])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "issues",
            [
                "  70 issues:\n    pages.0: Input should be a valid integer",
                "\n    pages.49: Input should",
                "(input: 'page 49 \\x1b[2J')\n    [20 more are not kept]\n",
            ],
        ),
        ("details", ["  details:\n    status: 422\n    model: large \\x1b[2J\n"]),
    ],
)
def test_all_that_is_kept_of_an_error_is_shown(
    shell: Shell, command: str, name: str, words: list[str]
) -> None:
    (shell.folder / "flaky.py").write_text(REFUSING)
    given = json.dumps({"amount": 3, "name": name})
    shell.run("start", "flaky", "--input", given, "--in-process", "--no-retry")

    for seen in (
        shell.run(command, run_id_of(shell)).stdout,
        without_controls(shell.on_terminal(command, run_id_of(shell))).replace("\r\n", "\n"),
    ):
        for each in words:
            assert each in seen


def test_a_traceback_that_comes_again_is_not_repeated(shell: Shell) -> None:
    shell.run(*HERE)

    seen = shell.run("trace", run_id_of(shell)).stdout

    assert "\nattempt 1 of step flaky:\n" in seen
    assert seen.endswith("\nattempt 2 of step flaky: the same\n")


def test_an_error_is_json_for_programs_and_a_line_for_people(shell: Shell) -> None:
    refused = shell.run("start", "flaky", "--input", '{"amount": "x", "name": 7}', "--json")

    error = json.loads(refused.stdout)["error"]
    assert (refused.returncode, error["code"]) == (2, "invalid_input")
    assert [(issue["loc"], issue["type"]) for issue in error["details"]["issues"]] == [
        (["amount"], "int_parsing"),
        (["name"], "string_type"),
    ]
    assert only_line(refused.stderr) == f"error: {error['message']}"
    assert error["message"].endswith(" (and 1 more).")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("show", "r-none", "--json"), "unknown_run"),
        (("start", "--json"), "usage"),
        (("runs", "--json", "--url", "http://127.0.0.1:1"), "server_unreachable"),
    ],
)
def test_each_error_has_its_code(shell: Shell, words: tuple[str, ...], code: str) -> None:
    refused = shell.run(*words)

    assert json.loads(refused.stdout)["error"]["code"] == code
    assert refused.returncode == 2


def test_the_waits_of_a_step_are_in_the_registry(shell: Shell) -> None:
    (step,) = shell.json("registry")["steps"]
    table = shell.run("registry").stdout

    assert step["retry"] == {
        "firstS": 0.2,
        "factor": 1.0,
        "maxS": 300.0,
        "nonRetryable": ["KeyError"],
        "source": "entry",
    }
    assert "0.2 s, x1 up to 300 s, never KeyError (entry)" in table


def test_a_policy_that_cannot_be_used_is_one_line(shell: Shell) -> None:
    (shell.folder / "flaky.py").write_text(CATALOG.replace("0.2), 1,", "0.2), 0.5,"))

    refused = shell.run("registry")

    assert refused.returncode == 2
    assert "retry.factor of 'flaky'" in only_line(refused.stderr)
    assert "is 0.5; allowed: a number from 1 to 100" in only_line(refused.stderr)
