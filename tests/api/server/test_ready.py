"""`/ready`: a server that could not work says so, and why; `/health` only that it runs."""

from __future__ import annotations

import resource
import threading
from pathlib import Path

from leasehold.server.server import ServeOptions, Server
from tests.api.server.conftest import Answer, Api
from tests.chaos.outages.test_locked_file import locked
from tests.worlds.bundles import INLINE, settings
from tests.worlds.emulators import storage_bucket
from tests.worlds.ports import own_port
from tests.worlds.servers import servers
from tests.worlds.waiting import until

NO_LIMIT = resource.RLIM_INFINITY


def test_a_server_that_works_is_ready(api: Api) -> None:
    assert api.get("/ready") == {"status": "ok"}
    assert len(api.get("/workers")["workers"]) == 1  # the probe is none


def test_a_disk_that_takes_no_write_is_not_ready_until_it_does(tmp_path: Path) -> None:
    """A real server, whose files cannot grow any more."""
    with servers(tmp_path) as begin:
        process, other = begin()
        api = Api(other.url)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, NO_LIMIT))

        refused = api.ask("GET", "/ready")
        health = api.ask("GET", "/health")
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (NO_LIMIT, NO_LIMIT))
        again = until(lambda: api.ask("GET", "/ready").status == 200)

    error = refused.body["error"]
    assert (refused.status, error["code"]) == (503, "not_ready")
    assert "does not answer: " in error["message"]
    assert health.status == 200
    assert again


def test_artifacts_that_take_no_write_are_not_ready_until_they_do(tmp_path: Path) -> None:
    """They can be read all the while, as where a disk was mounted read-only after an error."""
    with servers(tmp_path) as begin:
        _, other = begin()
        api = Api(other.url)
        unfinished = tmp_path / "artifacts" / ".unfinished"
        before = api.ask("GET", "/ready")
        unfinished.parent.mkdir(exist_ok=True)
        unfinished.touch()  # for root, too, no file can be made in it

        refused = api.ask("GET", "/ready")
        unfinished.unlink()
        after = api.ask("GET", "/ready")

    assert (before.status, refused.status, after.status) == (200, 503, 200)
    assert refused.body["error"]["code"] == "not_ready"
    assert f"Not a directory ({tmp_path / 'artifacts'})" in refused.body["error"]["message"]


def test_a_server_that_takes_up_runs_answers_and_is_not_ready_until_it_has(tmp_path: Path) -> None:
    """Of a run whose process was killed, the lease is ended: that waits for the locked file."""
    with servers(tmp_path) as begin:
        killed, other = begin()
        other.start({}, pipeline="ignores")
        until((tmp_path / "told").exists)
        killed.kill()
        killed.wait()
    own = {
        "LEASEHOLD_STORE": f"sqlite:///{tmp_path / 'leasehold.db'}",
        "LEASEHOLD_ARTIFACTS": f"file://{tmp_path / 'artifacts'}",
        **INLINE,
    }
    server = Server(ServeOptions(port=own_port()), lambda _: None, settings(tmp_path) | own)
    api = Api(server.url)
    starting = threading.Thread(target=server.start)
    try:
        with locked(tmp_path / "leasehold.db"):
            starting.start()
            refused = until(lambda: _refusal(api, "takes up the runs"))
            health = api.ask("GET", "/health")
        starting.join()
        ready = until(lambda: api.ask("GET", "/ready").status == 200)
    finally:
        server.stop()

    assert refused.body["error"]["code"] == "not_ready"
    assert health.status == 200
    assert ready


def _refusal(api: Api, words: str) -> Answer | None:
    """Return the refusal that says so, else None: the server may not listen yet."""
    try:
        answer = api.ask("GET", "/ready")
    except OSError:
        return None
    is_it = answer.status == 503 and words in answer.body["error"]["message"]
    return answer if is_it else None


def test_a_server_whose_artifacts_cannot_be_reached_is_not_ready_until_they_can(
    tmp_path: Path,
) -> None:
    """The bucket's address, without a listener, then the emulator, then no server again."""
    port = own_port()
    cloud = {
        "LEASEHOLD_ARTIFACTS": "gs://artifacts/here",
        "STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port}",
    }
    with servers(tmp_path) as begin:
        _, other = begin(**cloud)
        api = Api(other.url)

        before = api.ask("GET", "/ready")
        health = api.ask("GET", "/health")
        with storage_bucket(port):
            there = until(lambda: api.ask("GET", "/ready").status == 200)
        after = api.ask("GET", "/ready")

    assert there
    assert health.status == 200
    for refused in (before, after):
        assert (refused.status, refused.body["error"]["code"]) == (503, "not_ready")
        assert "not answer" in refused.body["error"]["message"]
