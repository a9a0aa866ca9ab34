"""A run outlives the process that ran it: killed, interrupted, terminated, or busy elsewhere."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.worker.stopping.holder import host_name
from tests.worlds.shell import LEASEHOLD, Shell
from tests.worlds.waiting import until

ORDER = ("start", "order", "--input", '{"amount": 3}', "--idempotency-key", "k", "--in-process")
LEASE = {"PIPELINE_LEASE_TTL_S": "600"}
#: What a command in this file hangs at: any machine is faster, and a lease runs for 600 s.
SOON = 300.0


@pytest.fixture
def charging(shell: Shell) -> Iterator[subprocess.Popen[str]]:
    """A command in the middle of step 2."""
    (shell.folder / "hold").touch()
    process = shell.begin(*ORDER, **LEASE)
    until((shell.folder / "charging").exists)
    yield process
    process.kill()  # where the test did not come so far
    process.communicate()


def test_a_killed_run_is_completed_by_the_same_command_at_once(
    shell: Shell, charging: subprocess.Popen[str]
) -> None:
    charging.kill()
    charging.communicate()
    (shell.folder / "hold").unlink()
    began = time.monotonic()

    again = shell.run(*ORDER)

    assert time.monotonic() - began < SOON
    assert again.returncode == 0
    (run,) = shell.json("runs")["runs"]
    assert run["status"] == "COMPLETED"
    story = shell.story(run["runId"])
    assert story.count("step_handed_off reserve") == 1
    assert story.count("step_handed_off charge") == 1
    assert story.count("step_completed ship") == 1
    assert story.count("step_terminated charge") == 1
    attempts = shell.json("show", run["runId"])["steps"]["charge"]["attempts"]
    assert {end: count for end, count in attempts.items() if count} == {"expired": 1}
    assert (shell.folder / "charging").read_text() == "2"


def test_why_does_not_say_that_a_killed_process_will_finish(
    shell: Shell, charging: subprocess.Popen[str]
) -> None:
    (run,) = shell.json("runs")["runs"]
    works = shell.run("why", run["runId"])
    charging.kill()
    charging.communicate()
    (shell.folder / "hold").unlink()

    gone = shell.run("why", run["runId"])
    command = shlex.split(gone.stderr.partition(": ")[2])
    done = shell.process(*command)

    assert "to finish attempt 1 of step charge" in works.stdout
    assert works.stderr == ""
    assert "waits for a worker to take over attempt 1 of step charge, whose process" in gone.stdout
    assert "to finish" not in gone.stdout
    assert gone.stderr.startswith("this takes it up at once: ")
    assert done.returncode == 0
    assert shell.json("show", run["runId"])["status"] == "COMPLETED"


def terminations(shell: Shell, run_id: str) -> list[tuple[str, str]]:
    events = shell.json("trace", run_id)["events"]
    ended = [event for event in events if event["type"] == "step_terminated"]
    return [(event["step"], event["reason"]) for event in ended]


def released_at(shell: Shell, run_id: str) -> datetime:
    (at,) = [
        event["at"]
        for event in shell.json("trace", run_id)["events"]
        if event["type"] == "step_terminated"
    ]
    return datetime.fromisoformat(at)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_command_says_how_the_run_goes_on(
    shell: Shell, charging: subprocess.Popen[str], number: signal.Signals, code: int
) -> None:
    charging.send_signal(number)
    stdout, stderr = charging.communicate(timeout=60)

    assert (charging.returncode, stdout) == (code, "")
    (message,) = [line for line in stderr.splitlines() if line.startswith("interrupted: ")]
    assert "is durable" in message
    assert message.endswith(
        "leasehold start order --input '{\"amount\": 3}' --idempotency-key k --in-process"
    )
    assert "Traceback" not in stderr
    (shell.folder / "hold").unlink()
    (left,) = shell.json("runs")["runs"]
    assert (left["status"], left["currentStep"]) == ("PENDING", "charge")
    began = time.monotonic()
    assert shell.run(*ORDER).returncode == 0
    assert time.monotonic() - began < SOON
    assert terminations(shell, left["runId"]) == [("charge", "instance_shutdown")]
    attempts = shell.json("show", left["runId"])["steps"]["charge"]["attempts"]
    assert {end: count for end, count in attempts.items() if count} == {"interrupted": 1}
    story = shell.story(left["runId"])
    assert story.count("step_handed_off charge") == 1
    assert story[-1] == "run_completed"


def test_the_lease_of_a_handler_that_does_not_stop_is_given_back_all_the_same(
    tmp_path: Path,
) -> None:
    """In the 10 s that Cloud Run leaves. Two commands at once: each of them takes 7 s."""
    deaf = ("start", "deaf", "--input", '{"amount": 1}', "--idempotency-key", "k", "--in-process")
    codes = {signal.SIGINT: 130, signal.SIGTERM: 143}
    shells = {}
    for number in codes:
        (tmp_path / number.name).mkdir()
        (tmp_path / number.name / "hold").touch()
        shells[number] = Shell(tmp_path / number.name)
    processes = {number: shell.begin(*deaf) for number, shell in shells.items()}
    until(lambda: all((shell.folder / "charging").exists() for shell in shells.values()))

    began, began_at = time.monotonic(), SystemClock().now()
    for number, process in processes.items():
        process.send_signal(number)
    for process in processes.values():
        process.communicate(timeout=60)

    assert time.monotonic() - began >= 7
    for number, shell in shells.items():
        (shell.folder / "hold").unlink()
        (left,) = shell.json("runs")["runs"]
        again = shell.run(*deaf)
        assert (processes[number].returncode, again.returncode) == (codes[number], 0)
        assert left["status"] == "PENDING"
        assert (shell.folder / "charging").read_text() == "2"
        assert terminations(shell, left["runId"]) == [("deaf", "instance_shutdown")]
        assert released_at(shell, left["runId"]) - began_at < timedelta(seconds=10)
        attempts = shell.json("show", left["runId"])["steps"]["deaf"]["attempts"]
        assert {end: count for end, count in attempts.items() if count} == {"interrupted": 1}


def test_a_second_interrupt_leaves_a_handler_that_does_not_stop(shell: Shell) -> None:
    (shell.folder / "hold").touch()
    process = shell.begin("start", "deaf", "--input", '{"amount": 1}', "--in-process")
    assert process.stderr is not None
    until((shell.folder / "charging").exists)

    process.send_signal(signal.SIGINT)
    until(lambda: "interrupted: " in process.stderr.readline())  # type: ignore[union-attr] # as asserted above
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)

    assert process.returncode == 130
    assert "Traceback" not in stderr


def test_a_run_that_another_process_works_on_is_waited_for(
    shell: Shell, charging: subprocess.Popen[str]
) -> None:
    second = shell.begin(*ORDER)
    assert second.stderr is not None
    message = second.stderr.readline()
    (shell.folder / "hold").unlink()
    stdout, _ = second.communicate(timeout=60)
    charging.communicate(timeout=60)

    assert f"is worked on by {host_name()}/{charging.pid}@" in message
    assert "its lease ends at 20" in message
    assert (second.returncode, charging.returncode) == (0, 0)
    assert "COMPLETED" in stdout
    assert (shell.folder / "charging").read_text() == "1"


def test_an_interrupt_of_a_waiting_command_leaves_the_run_alone(
    shell: Shell, charging: subprocess.Popen[str]
) -> None:
    waiting = shell.begin(*ORDER[:-1], "--wait")
    assert waiting.stderr is not None
    until(lambda: "step charge started" in waiting.stderr.readline())  # type: ignore[union-attr] # as asserted above

    waiting.send_signal(signal.SIGINT)
    _, stderr = waiting.communicate(timeout=60)

    assert waiting.returncode == 130
    assert "is durable and goes on; look at it with: " in stderr
    assert "-m leasehold show r-" in stderr
    (shell.folder / "hold").unlink()
    charging.communicate(timeout=60)
    assert charging.returncode == 0


def test_a_reader_that_goes_away_is_no_error(shell: Shell) -> None:
    for amount in range(3):
        shell.run("start", "order", "--input", f'{{"amount": {amount}}}')
    reader, writer = os.pipe()
    os.close(reader)

    listed = subprocess.run(
        [*LEASEHOLD, "runs", "--json"],
        cwd=shell.folder,
        env=shell.settings,
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)

    assert (listed.returncode, listed.stderr) == (141, b"")


def test_ctrl_c_while_the_command_line_is_imported_is_one_line(tmp_path: Path) -> None:
    """A tenth of a second after it is typed, a command has not begun."""
    early = tmp_path / "click.py"  # the first package that the command line imports
    early.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")

    done = subprocess.run(
        [*LEASEHOLD, "runs"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "error: interrupted.\n")


#: So long a second signal is the first one: a busy machine may let a second pass between them.
TEN_MINUTES = """
from leasehold.cli import main, stop_signals
stop_signals.SAME_SIGNAL_S = 600.0
main()
"""


def test_a_sigterm_that_comes_twice_within_a_second_is_one(shell: Shell) -> None:
    """The second one cut the end short: the lease was left to run out."""
    (shell.folder / "hold").touch()
    process = shell.begin(
        *("start", "deaf", "--input", '{"amount": 1}', "--in-process"),
        program=(sys.executable, "-c", TEN_MINUTES),
    )
    assert process.stderr is not None
    until((shell.folder / "charging").exists)

    process.send_signal(signal.SIGTERM)
    until(lambda: "interrupted: " in process.stderr.readline())  # type: ignore[union-attr] # as asserted above
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)

    assert process.returncode == 143
    (left,) = shell.json("runs")["runs"]
    assert (left["status"], left["attempts"]["interrupted"]) == ("PENDING", 1)
