"""Several servers on one store, each with its own queue: what waits in one's is not lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.bundles import Api, calls
from tests.worlds.servers import Begun, servers
from tests.worlds.waiting import until

#: So often a waiting run is looked at in the tests below, by one server or the other.
LOOKS = 4

#: A task is late sooner than a server looks again.
OFTEN = {"PIPELINE_DISPATCH_GRACE_S": "0.05"}


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Begun]]:
    """Starts servers of one worker each, for whom a task is late after a second."""
    with servers(tmp_path, "--workers", "1") as begin:
        yield begin


def busy(begin: Callable[..., Begun], folder: Path) -> Begun:
    """A server whose worker has a step for as long as the test holds it."""
    (folder / "hold-two").touch()
    process, api = begin()
    run_id = api.start()
    until(lambda: any(call[0] == "two" for call in calls(folder, run_id)))
    return process, api


def looked_at(api: Api, run_ids: list[str]) -> list[Any]:
    """Wait until each run was looked at several times more, and return them."""
    seen: dict[str, str] = {}

    def is_seen_anew(run_id: str) -> bool:
        before, at = seen.get(run_id), api.call(f"/runs/{run_id}")["dispatch"]["seenAt"]
        seen[run_id] = at
        return at not in (None, before)

    for _ in range(1 + LOOKS):  # a server looks at all of them within its second
        for run_id in run_ids:
            until(partial(is_seen_anew, run_id))
    return [api.call(f"/runs/{run_id}") for run_id in run_ids]


def test_what_waits_in_the_queue_of_another_server_is_not_lost(
    begin: Callable[..., Begun], tmp_path: Path
) -> None:
    """Three tasks may be lost, and each look of a server that does not have one counted as one."""
    both_look = partial(begin, **OFTEN)
    _, api = busy(both_look, tmp_path)
    _, other = busy(both_look, tmp_path)
    behind = [api.start() for _ in range(4)] + [other.start() for _ in range(4)]

    waiting = looked_at(api, behind)

    assert {run["status"] for run in waiting} == {"PENDING"}
    assert {run["dispatch"]["generation"] for run in waiting} == {1}
    assert {run["dispatch"]["redispatched"] for run in waiting} == {0}
    (tmp_path / "hold-two").unlink()
    for run_id in behind:
        run = api.ended(run_id, 60)
        assert run["attempts"]["expired"] == 0
        assert [call[0] for call in calls(tmp_path, run_id)] == ["one", "two", "three"]


def test_what_waits_in_the_queue_of_a_server_that_dies_is_taken_up_as_it_is(
    begin: Callable[..., Begun], tmp_path: Path
) -> None:
    """It is not announced: a server that looks without having the task takes it."""
    first, api = busy(begin, tmp_path)
    second, other = busy(begin, tmp_path)
    behind = [api.start(), api.start()]
    waiting = looked_at(api, behind)

    first.kill()
    (tmp_path / "hold-two").unlink()

    for run_id in behind:
        assert other.ended(run_id, 60)["attempts"]["expired"] == 0
        assert {call[2] for call in calls(tmp_path, run_id)} == {str(second.pid)}
    assert {run["dispatch"]["generation"] for run in waiting} == {1}


def test_a_retry_that_waits_in_the_queue_of_a_server_that_dies_is_taken_up(
    begin: Callable[..., Begun], tmp_path: Path
) -> None:
    """Its run is in ERROR, and no adoption looks for those but at a start."""
    other, second = begin()
    process, api = begin(PIPELINE_MIN_BACKOFF_S="5")
    run_id = api.start({"fail": "one"})
    until(lambda: api.call(f"/runs/{run_id}")["status"] == "ERROR")
    process.kill()

    run = second.ended(run_id, 60)

    assert (run["deadLetterReason"], run["attempts"]["expired"]) == (None, 0)
    assert calls(tmp_path, run_id)[1] == ["one", "2", str(other.pid)]


def test_a_retry_that_waits_behind_other_steps_is_not_lost_to_the_other_server(
    begin: Callable[..., Begun], tmp_path: Path
) -> None:
    """Both look more often than each has its turn, so the one without the task comes first, too."""
    busy(partial(begin, **OFTEN), tmp_path)
    _, api = begin(PIPELINE_MIN_BACKOFF_S="8", **OFTEN)
    run_id = api.start({"fail": "one"})
    until(lambda: api.call(f"/runs/{run_id}")["status"] == "ERROR")
    failed = api.call(f"/runs/{run_id}")["dispatch"]
    behind = api.start()
    until(lambda: any(call[0] == "two" for call in calls(tmp_path, behind)))

    (waiting,) = looked_at(api, [run_id])

    assert waiting["status"] == "ERROR"
    assert waiting["dispatch"]["generation"] == failed["generation"]
    assert waiting["dispatch"]["redispatched"] == 0
    (tmp_path / "hold-two").unlink()
    assert api.ended(run_id, 60)["attempts"]["expired"] == 0
