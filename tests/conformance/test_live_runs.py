"""Before a deploy: which live runs a catalog does not fit, on real stores, each read once."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from leasehold import GateEntry
from leasehold.bootstrap import Bundle, boot
from leasehold.bootstrap.connections import Around, Purpose
from leasehold.domain.stored import Ref
from leasehold.ports.documents import Documents, Query, Snapshot
from leasehold.registry.pipelines import Catalog
from leasehold.services.catalog_fit import LiveRunCheck, RunMisfit, live_runs
from tests.conformance.changed_code import IS_GONE, TAKES_LETTERS, catalog_with, catalog_without
from tests.conformance.test_operations import TABLE_CELLS, Service, booted, run_in
from tests.worlds.catalogs.sample import PIPELINES, STEPS
from tests.worlds.wrapped import Wrapped

pytestmark = pytest.mark.one_store

STATES = list(dict.fromkeys(state for state, _, _ in TABLE_CELLS))
LIVE = [s for s in STATES if "cancelled" not in s and "dead" not in s and "COMPLETED" not in s]


@pytest.fixture(scope="module")
def service(documents: Documents, folder: Path) -> Service:
    return Service(booted(documents, folder), "test:live")


@pytest.fixture(scope="module")
def runs(service: Service, kind: str) -> dict[str, str]:
    """A run in each state of the table, by its id; in every fourth one beside the first store."""
    return {run_in(service, state): state for state in STATES[:: 1 if kind == "sqlite" else 4]}


def live_in(runs: dict[str, str]) -> set[str]:
    """Return the states of those runs that have not ended."""
    return {*runs.values()} & {*LIVE}


class CountedReads(Wrapped[Documents]):
    """A store that counts how often each run is read."""

    def __init__(self, store: Documents) -> None:
        super().__init__(store)
        self.reads: Counter[str] = Counter()

    def get(self, ref: Ref) -> Snapshot | None:
        self.reads[ref.id] += 1
        return self.inner.get(ref)

    def query(self, query: Query) -> list[Snapshot]:
        found = self.inner.query(query)
        self.reads.update(one.ref.id for one in found)
        return found


def looked_at(
    service: Service, folder: Path, catalog: Catalog
) -> tuple[list[RunMisfit], Counter[str]]:
    """Return what a check with this catalog finds, and how often it read each run."""
    counted: list[CountedReads] = []

    def count(store: Documents) -> Any:
        counted.append(CountedReads(store))
        return counted[-1]

    bundle: Bundle = boot(
        {"LEASEHOLD_ARTIFACTS": f"file://{folder}/artifacts"},
        catalog=catalog,
        documents=service.bundle.engine.documents,
        purpose=Purpose.READ,
        around=Around(documents=count),
    )
    look = LiveRunCheck(bundle.engine)
    found = [one for run in live_runs(bundle.engine) for one in look.misfits(run)]
    return found, counted[0].reads


def test_the_code_of_a_remote_worker_is_not_looked_for_here(
    service: Service, folder: Path, runs: dict[str, str]
) -> None:
    found, _ = looked_at(service, folder, catalog_with("add_again", handler="remote"))

    assert (found, bool(runs)) == ([], True)


@pytest.mark.each_store
def test_a_catalog_that_fits_finds_nothing_and_reads_each_live_run_once(
    service: Service, folder: Path, runs: dict[str, str]
) -> None:
    found, reads = looked_at(service, folder, Catalog(steps=STEPS, pipelines=PIPELINES))

    assert found == []
    live = {run_id for run_id, state in runs.items() if state in LIVE}
    assert {run_id: reads[run_id] for run_id in live} == dict.fromkeys(live, 1)
    assert set(reads.values()) == {1}


@pytest.mark.parametrize(
    ("catalog", "code", "words"),
    [
        (catalog_without("add_again"), "step_unknown", "the catalog knows no step 'add_again'"),
        (
            catalog_with("add_again", handler=IS_GONE),
            "handler_unavailable",
            "has no 'no_such_function'",
        ),
        (
            catalog_with("add_again", entry_actions=(IS_GONE,)),
            "handler_unavailable",
            "has no 'no_such_function'",
        ),
        (
            catalog_with("add_again", GateEntry(name="gone", check=IS_GONE)),
            "handler_unavailable",
            "has no 'no_such_function'",
        ),
    ],
)
def test_a_step_that_comes_later_is_looked_at_too(
    service: Service, folder: Path, runs: dict[str, str], catalog: Catalog, code: str, words: str
) -> None:
    found, _ = looked_at(service, folder, catalog)

    assert {runs[one.run_id] for one in found} == live_in(runs)
    assert {(one.step, one.code) for one in found} == {("add_again", code)}
    assert [one for one in found if words not in one.detail] == []


def test_what_a_run_holds_for_its_next_step_has_to_fit_its_model(
    service: Service, folder: Path, runs: dict[str, str]
) -> None:
    """The input of one that begins, and the output of one that waits for a decision."""
    of_first, _ = looked_at(service, folder, catalog_with("add", handler=TAKES_LETTERS))
    of_next, _ = looked_at(service, folder, catalog_with("add_later", handler=TAKES_LETTERS))

    blocked = {state for state in live_in(runs) if state.startswith("BLOCKED")}
    assert {runs[one.run_id] for one in of_first} == live_in(runs) - blocked
    assert {runs[one.run_id] for one in of_next} == blocked
    assert {(one.step, one.code) for one in of_first} == {("add", "input_mismatch")}
    assert {(one.step, one.code) for one in of_next} == {("add_later", "input_mismatch")}
    assert "does not fit Letter: text: Field required" in of_first[0].detail


def test_a_limit_that_changed_is_said(service: Service, folder: Path, runs: dict[str, str]) -> None:
    found, _ = looked_at(service, folder, catalog_with("add", max_retries=7))

    assert {(runs[one.run_id], one.code) for one in found} == {
        (state, "limit_changed") for state in live_in(runs)
    }
    assert found[0].detail.startswith("retries ")
    assert found[0].detail.endswith(", now 7")


def test_each_limit_that_a_dispatch_has_is_compared(
    service: Service, folder: Path, runs: dict[str, str]
) -> None:
    changed = catalog_with(
        "add",
        isolation="process",
        agent_timeout=timedelta(minutes=3),
        dispatch_deadline=timedelta(minutes=7),
        max_retries=7,
        heartbeat_interval=timedelta(seconds=3),
        cleanup_ttl=timedelta(seconds=4),
        memory_limit=512 * 2**20,
        silence_limit=timedelta(seconds=50),
    )

    found, _ = looked_at(service, folder, changed)
    of_remote, _ = looked_at(service, folder, catalog_with("add", handler="remote"))

    said = [part.rpartition(", now ")[0].rpartition(" ")[0] for part in found[0].detail.split("; ")]
    assert said == [
        "agent timeout in ms",
        "dispatch deadline in s",
        "retries",
        "heartbeat in s",
        "cleanup in ms",
        "memory limit in bytes",
        "silence limit in ms",
    ]
    assert {runs[one.run_id] for one in of_remote} == live_in(runs)
    assert of_remote[0].detail == "schedule to start in s None, now 3600; remote False, now True"
