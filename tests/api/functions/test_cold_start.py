"""What a function imports until it has answered: nothing that only others need.

The functions of the table run one after the other in new processes on one project of the
emulators, and get real requests: a run is started, runs, is announced, and is looked at.
Their processes are forked from one that has imported what none of them can do without.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.firestore import FirestoreDocuments
from leasehold.devserver.cloud_tasks import CloudTasksDouble
from leasehold.devserver.server import QUEUES
from leasehold.domain.delivery import Delivery
from leasehold.domain.event_message import EventMessage
from leasehold.domain.manifest import run_ref
from leasehold.domain.stored import Write
from leasehold.ports.documents import Query
from leasehold.registry.function_table import FUNCTIONS
from tests.worlds.emulators import (
    environment,
    firestore_host,
    need_firestore,
    need_pubsub,
    pubsub_host,
    storage_bucket,
)

ROOT = Path(__file__).parents[3]
NOBODY = "http://127.0.0.1:9"

#: What takes long to import, or belongs to one function alone, by what it is for.
COSTLY = {
    "google.cloud.firestore": "Firestore",
    "google.cloud.tasks_v2": "Cloud Tasks",
    "google.cloud.storage": "Cloud Storage",
    "google.pubsub_v1": "Pub/Sub",
    "google.cloud.pubsub_v1": "the other client of Pub/Sub",
    "tenacity": "tries",
    "slack_sdk": "Slack",
    "smtplib": "mail",
    "rich": "terminals",
    "sqlite3": "SQLite",
    "cronsim": "schedules",
    "tests.worlds.catalogs.cold_steps": "handlers",
    "leasehold.cli": "commands",
    "leasehold.client": "the client",
    "leasehold.devserver": "leasehold dev",
    "leasehold.in_process": "the engine without functions",
    "leasehold.google_clients": "what is deployed",
    "leasehold.services.deliver_notification": "announcements",
    "leasehold.dashboard": "pages",
    "leasehold.telemetry": "telemetry",
    "opentelemetry.sdk": "the SDK of telemetry",
    "opentelemetry.exporter.otlp": "the exporter of telemetry",
}


class Call(NamedTuple):
    """A request, how it is answered, and what is loaded then beyond what was before."""

    method: str
    path: str
    body: Any
    status: int
    loads: set[str]


#: What an entry file loads by itself, before any request.
BY_IMPORT = {"deliver_notification": {"tries", "announcements"}}


class Bundle(NamedTuple):
    """Where the functions work: emulators, and a queue that takes tasks and delivers none."""

    forking: subprocess.Popen[str]
    documents: FirestoreDocuments


@pytest.fixture
def bundle() -> Iterator[Bundle]:
    need_firestore()
    need_pubsub()
    project, tasks = f"p-{secrets.token_hex(8)}", CloudTasksDouble(QUEUES)
    firestore = {"FIRESTORE_EMULATOR_HOST": firestore_host()}
    with storage_bucket() as (storage, bucket), environment(**firestore):
        environ = {
            **os.environ,
            "CLOUD_TASKS_EMULATOR_URL": tasks.start(),
            "PUBSUB_EMULATOR_HOST": pubsub_host(),
            "STORAGE_EMULATOR_HOST": storage,
            "LEASEHOLD_STORE": f"firestore://{project}/(default)",
            "LEASEHOLD_TASKS": f"cloud-tasks://{project}/here",
            "LEASEHOLD_EVENTS": f"pubsub://{project}/no-such-topic",
            "LEASEHOLD_ARTIFACTS": f"gs://{bucket}",
            "LEASEHOLD_FUNCTION_URL": NOBODY,
            "LEASEHOLD_PUBLIC_URL": NOBODY,
            "LEASEHOLD_CATALOG": "tests.worlds.catalogs.cold",
            "LEASEHOLD_ISOLATION": "",
        }
        tasks.stop_deliveries()
        documents = FirestoreDocuments(project, "(default)", SystemClock())
        with subprocess.Popen(
            [sys.executable, "-m", "tests.api.functions.cold_requests"],
            cwd=ROOT,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as forking:
            yield Bundle(forking, documents)
        documents.close()
    tasks.stop()


def answers(bundle: Bundle, name: str, *calls: Call) -> list[Any]:
    """Have a new process of a function answer; check what it loads; return the bodies."""
    stdin, stdout = bundle.forking.stdin, bundle.forking.stdout
    assert stdin is not None
    assert stdout is not None
    requests = [[call.method, call.path, call.body] for call in calls]
    stdin.write(json.dumps([name, requests]) + "\n")
    stdin.flush()
    told = json.loads(stdout.readline())
    assert told is not None, "it failed: its traceback is among the errors"
    _, *answered = told
    loaded = [{COSTLY[it] for it in modules if it in COSTLY} for *_, modules in told]
    found = [after - before for before, after in itertools.pairwise(loaded)]
    assert [status for status, *_ in answered] == [call.status for call in calls], answered
    assert (loaded[0], found) == (BY_IMPORT.get(name, set()), [call.loads for call in calls])
    return [body for _, body, _ in answered]


def test_each_function_of_the_table_loads_what_it_uses_when_it_uses_it(bundle: Bundle) -> None:
    """Handlers run in processes of their own; only to start a run are they looked at."""
    # the first one: however long the others take, no alarm is due yet
    answers(bundle, "sweep_dead_letters", Call("POST", "/", None, 200, {"Firestore"}))
    start = {"pipeline": "letters", "input": {"text": "Dear reader"}}
    _, first, second = answers(
        bundle,
        "serve_api",
        Call("GET", "/runs", None, 200, {"Firestore"}),
        Call("POST", "/runs", start, 201, {"handlers", "Cloud Tasks"}),
        Call("POST", "/runs", start, 201, set()),
    )
    tasks = [{"runId": first["runId"], "generation": number} for number in (1, 2)]
    answers(
        bundle,
        "execute_step",
        Call("POST", "/", tasks[0], 200, {"Firestore", "Cloud Tasks"}),
        Call("POST", "/", tasks[1], 200, {"Pub/Sub"}),
    )
    (owed,) = bundle.documents.query(Query("deliveries"))
    answers(
        bundle,
        "deliver_notification",
        Call("POST", "/", push(Delivery.model_validate(owed.document)), 200, {"Firestore"}),
    )
    claim = {"stepType": "elsewhere", "holder": "w-1"}
    answers(bundle, "manage_lease", Call("POST", "/leases:claim", claim, 404, {"Firestore"}))
    (derived,) = answers(bundle, "derive_budgets", Call("POST", "/", None, 200, {"Firestore"}))
    assert derived == {"derived": 1, "changed": [], "problems": {}}
    bundle.documents.transact(run_ref(second["runId"]), due_now)
    answers(
        bundle, "sweep_dead_letters", Call("POST", "/", None, 200, {"Firestore", "Cloud Tasks"})
    )


def due_now(found: Any, now: datetime) -> Write[None]:
    return Write(None, {**found, "alarmAt": now - timedelta(minutes=1)})


def push(delivery: Delivery) -> dict[str, Any]:
    """Return what Pub/Sub pushes of a message that says a delivery is due."""
    content = json.dumps(EventMessage(delivery).content("")).encode()
    message = {"data": base64.b64encode(content).decode(), "messageId": "1", "attributes": {}}
    return {"message": message, "subscription": "projects/p/subscriptions/s"}


def test_no_function_of_the_table_is_left_out() -> None:
    source = Path(__file__).read_text()

    assert [entry.name for entry in FUNCTIONS if f'"{entry.name}"' not in source] == []


#: The client of Pub/Sub, what tries an announcement again, and what sends one; what checks the
#: signature of a token, which Cloud Run has done.
TELLING = (
    *("google.pubsub_v1", "google.cloud.pubsub_v1", "tenacity", "slack_sdk", "smtplib"),
    *("google.auth", "cryptography", "requests", "urllib.request"),
)


def test_functions_that_send_no_announcements_do_not_import_channels(
    announcing: dict[str, str],
) -> None:
    """Their engines are opened, with a bus of this process and one of Pub/Sub, and no message."""
    program = f"""
import os, sys
os.environ["LEASEHOLD_EVENTS"] = "in-process"
from leasehold.functions import derive_budgets, execute_step, manage_lease, serve_api
from leasehold.functions import sweep_dead_letters
for function in (derive_budgets, execute_step, manage_lease, serve_api, sweep_dead_letters):
    function.provider.engine
os.environ["LEASEHOLD_EVENTS"] = "pubsub://project/topic"
type(execute_step.provider)().engine
print([name for name in {TELLING} if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"
