"""`/ready`: a server that could not work says so, and why; `/health` only that it runs."""

from __future__ import annotations

import resource
from pathlib import Path

from tests.emulators import storage_bucket
from tests.ports import own_port
from tests.server.conftest import Api
from tests.server.servers import servers
from tests.waiting import until

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


def test_a_server_whose_artifacts_cannot_be_reached_is_not_ready_until_they_can(
    tmp_path: Path,
) -> None:
    """The bucket's address, where nobody listens, then the emulator, then nobody again."""
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
