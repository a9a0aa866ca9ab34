"""Values of a deployment that its runs ask for: what is proposed, and what applies it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.factory import open_documents
from leasehold.deploy.resources.queue import Queue
from leasehold.doctor.proposals import other_shares, warm_instances
from leasehold.domain.budget import budget_ref
from leasehold.domain.ledger import ledger_ref
from leasehold.domain.stored import Ref, Write
from leasehold.registry.function_table import FUNCTIONS
from tests.deploy.cloud import REGION, Cloud
from tests.deploy.google_services.refusals import permission_denied
from tests.deploy.google_services.run import CloudRun
from tests.worlds.emulators import firestore_host, need_firestore

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PICK_UP, PACK = Queue("pick-up", ("pick_up",), 6), Queue("pack", ("pack",), 6)


def entry(minute: float, **steps: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of the ledger of a run that ended so long after noon."""
    at = NOON + timedelta(minutes=minute)
    times = {"startedAt": at, "completedAt": at}
    return {"endedAt": at, "steps": {name: times | dict(step) for name, step in steps.items()}}


def cold(seconds: float) -> dict[str, Any]:
    return {"coldStart": True, "bootstrapSeconds": seconds}


def warm(seconds: float) -> dict[str, Any]:
    return {"coldStart": False, "bootstrapSeconds": seconds}


@pytest.mark.parametrize(("usual", "proposed"), [(1.0, [12]), (28.0, [])])
def test_instances_are_kept_warm_for_what_a_cold_start_takes_more_than_a_warm_one(
    usual: float, proposed: list[int]
) -> None:
    """A handler that loads its model in each attempt waits as long in a warm instance."""
    entries = [entry(0, one=cold(30.0), other=warm(usual)) for _ in range(25)]

    found = list(warm_instances(entries, FUNCTIONS.of_tasks))

    assert [one.wanted for one in found] == proposed
    if proposed:
        assert "took up to 29.0 s more than warm ones" in found[0].sentence


def shares(*entries: Mapping[str, Any], total: int = 12) -> dict[str, int]:
    found = list(other_shares(entries, (PICK_UP, PACK), total))
    assert all("ran at once" in one.why for one in found)
    return {one.name: one.wanted for one in found}


def test_a_queue_that_was_full_gets_what_another_does_not_use() -> None:
    picked = [entry(number // 6 * 2, pick_up={"executingS": 60.0}) for number in range(60)]
    packed = [entry(number * 2, pack={"executingS": 60.0}) for number in range(60)]

    assert shares(*picked, *packed) == {"pick-up": 9, "pack": 2}
    assert shares(*packed) == {}, "none was full"
    assert shares(*picked[:12], *packed) == {}, "too few to tell"
    assert shares(*picked, *packed, total=2) == {}, "nothing is left to share"


def test_an_entry_that_a_person_has_damaged_proposes_nothing() -> None:
    odd: list[dict[str, Any]] = [
        {"steps": [1]},
        {"steps": {"pick_up": 7}},
        *(entry(0, pick_up=cold(number)) for number in (float("nan"), -1.0, 1e12)),
        *(entry(0, pick_up={"executingS": what}) for what in ("long", -1, None, True)),
        {"steps": {"pick_up": {"completedAt": "x", "startedAt": 1, "executingS": 5.0} | cold(9)}},
    ]

    assert list(warm_instances(odd * 30, FUNCTIONS.of_tasks)) == []
    assert shares(*odd * 30) == {}


# As they are typed.


@pytest.fixture(scope="module")
def cloud(make_cloud: Callable[[], Cloud]) -> Cloud:
    """Return one project for all tests, with a store whose runs ask for more."""
    need_firestore()
    cloud = make_cloud()
    assert cloud.provision("apply").code == 0
    with patch.dict(os.environ, FIRESTORE_EMULATOR_HOST=firestore_host()):
        write_runs(cloud)
    return cloud


def write_runs(cloud: Cloud) -> None:
    runs = [
        entry(number // 6 * 2, pick_up={"executingS": 60.0} | cold(30.0)) for number in range(60)
    ]
    with closing(open_documents(f"firestore://{cloud.project}/(default)", SystemClock())) as store:
        for number, run in enumerate(runs):
            write(store, ledger_ref(f"r-{number}"), run)
        limits = {"totalS": 2400.0, "executionS": 2300.0, "timeoutS": 2395.0}
        budget = {
            **dict.fromkeys(("declared", "proposed", "applied"), limits),
            "stepType": "pick_up",
            "strategy": "propose",
            "derivedAt": NOON,
            "windowDays": 7.0,
            "reasons": ["It takes long."],
        }
        write(store, budget_ref("pick_up"), budget)


@pytest.fixture
def installed(cloud: Cloud) -> Callable[..., Any]:
    """Give each queue what it was created with; calls a command in the project."""
    for name in ("pick-up", "pack"):
        deliver(cloud, name, 6)
    cloud.forget()
    return lambda *words: cloud.provision(*words, FIRESTORE_EMULATOR_HOST=firestore_host())


def deliver(cloud: Cloud, queue: str, at_once: int) -> None:
    """Do what a person does who has a queue deliver so many tasks at once."""
    name = f"projects/{cloud.project}/locations/{REGION}/queues/{queue}"
    changed = {"name": name, "rate_limits": {"max_concurrent_dispatches": at_once}}
    mask = {"paths": ["rate_limits.max_concurrent_dispatches"]}
    cloud.clients.tasks.update_queue({"queue": changed, "update_mask": mask})


def write(store: Any, ref: Ref, document: Mapping[str, Any]) -> None:
    store.transact(ref, lambda *_: Write(None, dict(document)))


def values(cloud: Cloud) -> tuple[int, int, int, timedelta]:
    """Return what both queues deliver at once, and what the function has."""
    queues = [
        cloud.clients.tasks.get_queue(
            {"name": f"projects/{cloud.project}/locations/{REGION}/queues/{name}"}
        ).rate_limits.max_concurrent_dispatches
        for name in ("pick-up", "pack")
    ]
    name = f"projects/{cloud.project}/locations/{REGION}/services/execute-step"
    template = cloud.server.service(CloudRun).services[name].template
    return (*queues, template.scaling.min_instance_count, template.timeout)


def test_a_plan_proposes_and_an_apply_changes_what_it_is_asked_to(
    cloud: Cloud, installed: Callable[..., Any]
) -> None:
    cloud.server.service(CloudRun).deploy(REGION, "execute-step", template={"timeout": "1860s"})

    planned, as_json = installed("plan"), installed("plan", "--json")
    plainly = installed("apply")

    lines = [line for line in planned.stdout.splitlines() if line.startswith("proposal: ")]
    assert planned.code == 0, planned.stderr
    of_function = "in the row execute_step of deployment.py"
    assert "\n".join(lines) == (
        f"proposal: min_instances=12 {of_function} (now 0): 95% of 60 cold starts took up to 30.0 "
        f"s, and there are 60.0 of them an hour. It costs that many idle instances.\n"
        f"proposal: timeout=2460 {of_function} (now 1860): step pick_up would have 2400 s. It "
        f"takes long.\n"
        "proposal: CONCURRENCY['pick-up']=11 in deployment.py (now 6): 6 of its tasks ran at "
        "once, and pick-up had no room for more.\n"
        "proposal: CONCURRENCY['pack']=1 in deployment.py (now 6): 0 of its tasks ran at once, "
        "and pick-up had no room for more."
    )
    assert [(one["field"], one["found"], one["wanted"]) for one in as_json.json["proposals"]] == [
        ("min_instances", 0, 12),
        ("timeout", 1860, 2460),
        ("concurrency", 6, 11),
        ("concurrency", 6, 1),
    ]
    assert plainly.code == 0
    assert values(cloud) == (6, 6, 0, timedelta(seconds=1860)), "nobody asked for more"

    cloud.server.refuse("CloudScheduler/GetJob", permission_denied("cloudscheduler.jobs.get"))
    failed = installed("apply", "--with-proposals")
    cloud.forget()

    assert (failed.code, "applied: " in failed.stderr) == (1, False)
    assert values(cloud) == (6, 6, 0, timedelta(seconds=1860)), "not all is there"

    done = installed("apply", "--with-proposals")

    assert done.code == 0, done.stderr
    assert done.stderr.count("applied: ") == 4
    assert "write these values into deployment.py" in done.stderr
    assert values(cloud) == (11, 1, 12, timedelta(seconds=2460))


def test_a_queue_that_a_person_changed_is_left_as_it_is(
    cloud: Cloud, installed: Callable[..., Any]
) -> None:
    deliver(cloud, "pack", 3)

    assert "CONCURRENCY" not in installed("plan").stdout


def test_what_cannot_be_applied_fails_and_the_others_are(
    cloud: Cloud, installed: Callable[..., Any]
) -> None:
    cloud.server.refuse("Services/GetService", permission_denied("run.services.get"))

    done = installed("apply", "--with-proposals")

    assert done.code == 1
    assert "not applied: min_instances=12 in the row execute_step" in done.stderr
    assert done.stderr.count("\napplied: CONCURRENCY") == 2
