"""An outage of the artifacts beside Firestore: the same rules, on the other store of documents."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import datetime

import pytest

from leasehold.domain.manifest_parts import Lease
from leasehold.errors import StoreUnavailableError
from leasehold.remote_workers.claim_step import claim_step
from leasehold.testing import InProcessEngine
from tests.chaos.outages.catalog import CALLS, DOES, GATES, LARGE, PIPELINES, STEPS
from tests.chaos.outages.conftest import Store
from tests.worlds.emulators import environment, firestore_host, need_firestore
from tests.worlds.waiting import until


@pytest.fixture
def engine(
    environ: dict[str, str], store: Store, request: pytest.FixtureRequest
) -> Iterator[InProcessEngine]:
    need_firestore()
    environ |= {
        "LEASEHOLD_STORE": f"firestore://p-{secrets.token_hex(8)}/(default)",
        "LEASEHOLD_ARTIFACTS_SHARED": "yes",
        "PIPELINE_LEASE_TTL_S": request.param,
        "PIPELINE_HEARTBEAT_S": "0.2",
    }
    with (
        environment(FIRESTORE_EMULATOR_HOST=firestore_host()),
        InProcessEngine(STEPS, PIPELINES, GATES, environ=environ, workers=1) as engine,
    ):
        yield engine


def _ends_after(lease: Lease | None, moment: datetime) -> bool:
    return lease is not None and lease.expires_at > moment


# Finished work outlasts an outage only while its lease can be renewed, and a busy machine is slow.
@pytest.mark.parametrize("engine", ["30"], indirect=True)
def test_finished_work_is_kept_and_a_claim_leaves_no_lease(
    engine: InProcessEngine, store: Store
) -> None:
    DOES["make"] = store.goes_once
    run = engine.start("away", {})
    until(lambda: CALLS[run.run_id, "make"])
    first = engine.show(run.run_id).position.lease
    assert first is not None
    until(lambda: _ends_after(engine.show(run.run_id).position.lease, first.expires_at))
    DOES.clear()
    store.comes_back()
    until(lambda: engine.show(run.run_id).claimable == "away")
    store.goes()

    with pytest.raises(StoreUnavailableError):
        claim_step(engine.engine, "away", "vm-1")

    waiting = engine.show(run.run_id)
    store.comes_back()
    claimed = claim_step(engine.engine, "away", "vm-1")
    assert CALLS[run.run_id, "make"] == 1
    assert (waiting.position.lease, waiting.fencing_token) == (None, 1)
    assert waiting.position.dispatch.seen_at is not None
    assert LARGE in claimed.given


@pytest.mark.parametrize("engine", ["3"], indirect=True)
def test_a_call_that_meets_an_outage_defers_its_attempt(
    engine: InProcessEngine, store: Store
) -> None:
    DOES["ask"] = store.goes_once
    run = engine.start("asks", {"how": "put", "passes": "as a cause"})
    until(lambda: engine.show(run.run_id).position.attempts.deferred >= 1)
    DOES.clear()
    store.comes_back()
    done = engine.wait(run.run_id, 30)

    assert done.status == "COMPLETED"
    assert done.position.attempts.failed == 0
