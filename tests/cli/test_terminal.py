"""What people see: a real terminal on stderr and stdout."""

from __future__ import annotations

import re

from tests.cli.shell import Shell, without_controls

ORDER = ("start", "order", "--input", '{"amount": 3}', "--in-process")


def watched(shell: Shell, *words: str, **settings: str) -> str:
    return without_controls(shell.on_real_terminal(*words, **settings))


def seen(shell: Shell, *words: str) -> str:
    return without_controls(shell.on_terminal(*words))


def test_a_terminal_shows_a_line_a_step_with_its_mark(shell: Shell) -> None:
    (shell.folder / "busy").touch()

    screen = watched(shell, *ORDER)

    assert "✗ charge" in screen
    assert "AgentClientError: the provider is busy [503]" in screen
    assert re.search(r"attempt 2 in 0\.\d s", screen)
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


def test_a_terminal_without_cursor_movements_gets_plain_lines(shell: Shell) -> None:
    screen = watched(shell, *ORDER, TERM="dumb")

    assert "Z step charge completed" in screen
    assert "✓" not in screen
