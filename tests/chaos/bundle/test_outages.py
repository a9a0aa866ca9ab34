"""The whole bundle, while its artifacts are away: runs wait, and all of them complete."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

from tests.worlds.bundles import INLINE, Api, dev_server
from tests.worlds.ports import own_port
from tests.worlds.waiting import until

RUNS = 5


def post(url: str, body: Any) -> tuple[int, Any]:
    request = urllib.request.Request(url, data=json.dumps(body).encode())  # noqa: S310 - our own server
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - as above
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


class RemoteWorker:
    """Claims steps and completes them, and repeats what a store that is away did not take."""

    def __init__(self, leases: str) -> None:
        self.leases = leases
        self.answers: Counter[int] = Counter()
        self.worked: Counter[str] = Counter()
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self.work, daemon=True)

    def work(self) -> None:
        while not self.ends.wait(0.05):
            status, given = self.call("claim", {"stepType": "away", "holder": "vm-1"})
            if status != 200:
                continue
            self.worked[given["runId"]] += 1
            lease = {name: given[name] for name in ("runId", "leaseId", "fencingToken")}
            while self.call("complete", lease | {"output": given["given"]})[0] == 503:
                self.call("renew", lease)
                self.ends.wait(0.05)

    def call(self, word: str, body: Any) -> tuple[int, Any]:
        status, answer = post(f"{self.leases}/leases:{word}", body)
        self.answers[status] += 1
        return status, answer


def test_an_outage_of_the_artifacts_delays_runs_and_costs_none(tmp_path: Path) -> None:
    """Each step's work is done as often as it must: what was finished is kept, and not repeated."""
    environ = {
        **INLINE,
        "LEASEHOLD_CATALOG": "tests.chaos.outages.catalog",
        "OUTAGE_TEST_FOLDER": str(tmp_path),
        "PIPELINE_MAX_INTERRUPTIONS": "0",
        "PIPELINE_MAX_BACKOFF_S": "0.5",
    }
    with dev_server(tmp_path, environ, lease_port=own_port(), tick_s=0.5) as server:
        api, root = Api(server.url), tmp_path / "data" / "artifacts"
        warm_up = api.start({}, pipeline="makes")
        api.ended(warm_up)
        worker = RemoteWorker(server.leases_url)
        worker.call("claim", {"stepType": "away", "holder": "vm-1"})  # its function is open
        waiting = [api.start({}, pipeline="away") for _ in range(RUNS)]
        until(lambda: all(api.call(f"/runs/{run}")["currentStep"] == "away" for run in waiting))
        root.rename(tmp_path / "away")

        begun = [api.start({}, pipeline="away") for _ in range(RUNS)]
        worker.thread.start()
        until(lambda: worker.answers[503] >= 10)
        held = until(lambda: [run for run in begun if api.call(f"/runs/{run}").get("lease")])
        assert not root.exists()
        (tmp_path / "away").rename(root)
        done = [api.ended(run, 60) for run in waiting + begun]
        worker.ends.set()
        worker.thread.join(30)

    calls = Counter(tuple(line.split()) for line in (tmp_path / "calls").read_text().splitlines())
    assert held
    assert {run["status"] for run in done} == {"COMPLETED"}
    assert {calls[run["runId"], step] for run in done for step in ("make", "take")} == {1}
    assert {worker.worked[run["runId"]] for run in done} == {1}
    assert all(step["attempts"]["failed"] == 0 for run in done for step in run["steps"].values())
