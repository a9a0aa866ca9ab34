"""The next step in the request of the one before, in the functions, and killed there."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.chaos.bundle.conftest import Begin
from tests.worlds.bundles import INLINE, calls
from tests.worlds.waiting import until


def test_a_worker_that_is_killed_in_the_second_step_of_a_request_loses_that_step_alone(
    begin: Begin, tmp_path: Path
) -> None:
    """The queue delivers the task of the request again, and that takes the lease over."""
    _, api = begin(PIPELINE_OWN_TASKS="", **INLINE)
    held = tmp_path / "hold-two"
    held.touch()
    run_id = api.start()
    until(lambda: any(call[0] == "two" for call in calls(tmp_path, run_id)))
    dispatch = api.call(f"/runs/{run_id}")["dispatch"]
    first, second = (call[2] for call in calls(tmp_path, run_id))

    os.kill(int(second), signal.SIGKILL)
    held.unlink()
    run = api.ended(run_id)

    assert (first, dispatch["taskOf"]) == (second, 1)
    assert run["steps"]["three"]["output"] == '{"done":["one","two","three"]}'
    assert [call[0] for call in calls(tmp_path, run_id)] == ["one", "two", "two", "three"]
    assert run["steps"]["two"]["attempts"]["expired"] == 1
