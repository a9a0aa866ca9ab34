"""What people see: a real terminal on stderr and stdout."""

from __future__ import annotations

import json
import re

from tests.worlds.shell import DEADLINE_S, Shell, only_line, without_controls
from tests.worlds.waiting import until

ORDER = ("start", "order", "--input", '{"amount": 3}', "--in-process")


def watched(shell: Shell, *words: str, **settings: str) -> str:
    return without_controls(shell.on_real_terminal(*words, **settings))


def seen(shell: Shell, *words: str) -> str:
    return without_controls(shell.on_terminal(*words))


def test_a_terminal_shows_a_line_a_step_with_its_mark(shell: Shell) -> None:
    (shell.folder / "busy").touch()

    screen = watched(shell, *ORDER, PIPELINE_MIN_BACKOFF_S="2")  # long enough to be drawn

    assert "✗ charge" in screen
    assert "AgentClientError: the provider is busy [503]" in screen
    assert re.search(r"attempt 2 in [0-2]\.\d s", screen)
    last = screen.rpartition("order r-")[2]
    assert re.findall(r"✓ (\w+)", last) == ["reserve", "charge", "ship"]
    assert "COMPLETED in" in last


def test_a_terminal_shows_a_skull_where_a_run_was_given_up(shell: Shell) -> None:
    screen = watched(shell, "start", "doomed", "--input", '{"amount": 13}', "--in-process")

    assert "💀 refuse" in screen
    assert "💀 dead-lettered, PERMANENT_FAILURE" in screen
    assert "💀 PERMANENT_FAILURE" in seen(shell, "runs")
    run_id = shell.json("runs")["runs"][0]["runId"]
    assert "💀 PERMANENT_FAILURE: Permanent failure" in seen(shell, "show", run_id)
    assert re.search(r"💀 step_dead_lettered.*PERMANENT_FAILURE", seen(shell, "trace", run_id))


def test_a_terminal_shows_a_cancelled_run(shell: Shell) -> None:
    shell.run("start", "order", "--input", '{"amount": 3}')
    run_id = shell.json("runs")["runs"][0]["runId"]

    assert f"run {run_id} PENDING cancelled" in seen(shell, "cancel", run_id)


def test_the_log_lines_of_handlers_stand_whole_above_what_is_drawn(shell: Shell) -> None:
    screen = watched(shell, "start", "order", "--input", '{"amount": 5000}', "--in-process")

    lines = [line.strip() for line in screen.replace("\r", "\n").split("\n")]
    (run_id,) = (run["runId"] for run in shell.json("runs")["runs"])
    of_run = f"INFO run={run_id} step={{}} attempt=1 shop.orders: a large order: 5000"
    logged = [line.partition(" ")[2] for line in lines if "shop.orders" in line]
    assert logged == [of_run.format("reserve"), of_run.format("ship")]
    assert re.findall(r"✓ (\w+)", screen.rpartition("order r-")[2]) == ["reserve", "charge", "ship"]


def test_the_log_lines_of_handlers_are_seen_without_a_terminal_and_beside_json(
    shell: Shell,
) -> None:
    words = ("start", "order", "--input", '{"amount": 5000}', "--in-process", "--json")

    done = shell.run(*words)
    quiet = shell.run(*words, LEASEHOLD_LOG_LEVEL="ERROR")

    assert done.stderr.count(" attempt=1 shop.orders: a large order: 5000\n") == 2
    assert json.loads(done.stdout)["status"] == "COMPLETED"
    assert "large order" not in quiet.stderr


def test_a_log_level_that_there_is_none_of_is_refused(shell: Shell) -> None:
    done = shell.run("start", "order", "--input", '{"amount": 1}', LEASEHOLD_LOG_LEVEL="loud")

    assert done.returncode == 2
    assert only_line(done.stderr).startswith(
        "error: LEASEHOLD_LOG_LEVEL is 'loud'; allowed: DEBUG, INFO, WARNING or ERROR; and "
    )


def test_a_terminal_shows_all_live_runs_until_ctrl_c_and_then_has_its_cursor_back(
    shell: Shell,
) -> None:
    (shell.folder / "hold").touch()
    worker = shell.begin(*ORDER)
    until((shell.folder / "charging").exists)
    (run_id,) = (run["runId"] for run in shell.json("runs")["runs"])

    code, sent = shell.interrupted_on_real_terminal("watch", at="IN_PROGRESS")

    (shell.folder / "hold").unlink()
    worker.communicate(timeout=DEADLINE_S)
    screen = without_controls(sent)
    assert code == 0
    assert "1 live run " in screen
    assert re.search(rf"{run_id} +order +IN_PROGRESS +charge +1 .* s ago", screen)
    assert "Traceback" not in screen
    assert sent.rindex("\x1b[?25h") > sent.rindex("\x1b[?25l")


def test_a_terminal_without_cursor_movements_gets_plain_lines(shell: Shell) -> None:
    screen = watched(shell, *ORDER, TERM="dumb")

    assert "Z step charge completed" in screen
    assert "✓" not in screen
