"""A server that ends, however it does, leaves no process behind: neither handlers nor children."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from leasehold.devserver.server_process import running_processes
from tests.worlds.bundles import Api
from tests.worlds.servers import Begun, servers
from tests.worlds.waiting import until

#: The handler and its 20 children, some of them in the second generation.
NOTED = 21


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Begun]]:
    """Starts servers on the test's own file; each is ready when it returns."""
    with servers(tmp_path) as begin:
        yield partial(begin, LEASEHOLD_CATALOG="tests.chaos.sandbox.long_steps")


def test_what_a_server_ran_ends_with_it_and_is_run_again(
    begin: Callable[[], Begun], tmp_path: Path
) -> None:
    """The one is killed and can do nothing about it; the other is asked to stop."""

    def start(api: Api, name: str) -> tuple[str, set[int]]:
        folder = tmp_path / name
        folder.mkdir()
        run_id = api.start({"folder": str(folder)}, pipeline="long")
        until(lambda: len(list(folder.iterdir())) == NOTED)
        return run_id, {int(path.name) for path in folder.iterdir()}

    first, api = begin()
    run_id, pids = start(api, "killed")

    first.kill()

    until(lambda: not pids & set(running_processes()))
    second, api = begin()
    done = api.ended(run_id)
    counts = done["steps"]["has_many_children"]["attempts"]
    assert (counts["expired"], counts["failed"]) == (1, 0)

    run_id, pids = start(api, "stopped")
    second.send_signal(signal.SIGTERM)
    _, said = second.communicate(timeout=60)

    assert second.returncode == 0, said
    until(lambda: not pids & set(running_processes()))
    _, api = begin()
    done = api.ended(run_id)
    counts = done["steps"]["has_many_children"]["attempts"]
    assert (counts["interrupted"], counts["failed"]) == (1, 0)
