"""Remote workers, while the artifact store is away: nothing changes, and they may ask again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from leasehold.adapters.folder import FolderArtifacts
from leasehold.domain.json_text import MAX_JSON_LEVELS
from leasehold.domain.lease import Fence
from leasehold.domain.manifest import Manifest, run_ref
from leasehold.domain.stored import Write
from leasehold.errors import NothingToClaimError, StoreUnavailableError
from leasehold.remote_workers.claim_step import acquire_run, claim_step
from leasehold.remote_workers.manage_lease import LeaseCredentials, complete_step, renew_lease
from leasehold.services.sweep import sweep
from leasehold.testing import FrozenClock, InProcessEngine
from tests.chaos.outages.catalog import GATES, LARGE, PIPELINES, STEPS, nested
from tests.chaos.outages.conftest import Meddling, Store
from tests.worlds.functions import function_of

Call = Callable[..., tuple[int, Any]]


@pytest.fixture
def environ(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    environ |= {"PIPELINE_LEASE_TTL_S": "30", "PIPELINE_HEARTBEAT_S": "10"}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return environ


@pytest.fixture
def now(environ: dict[str, str], store: Store) -> Iterator[InProcessEngine]:
    """An engine of today, beside the functions."""
    with InProcessEngine(STEPS, PIPELINES, GATES, environ=environ, workers=0) as engine:
        yield engine


@pytest.fixture
def call(store: Store, environ: dict[str, str]) -> Iterator[Call]:
    for function in function_of("manage_lease"):
        function.provider.engine  # noqa: B018 - it is open before the store goes away
        yield lambda word, _post=function.post, **body: _post(f"/leases:{word}", body)


def waiting(engine: InProcessEngine) -> Manifest:
    """A run whose remote step is given a large value."""
    run = engine.start("away", {})
    engine.run_until_idle()
    return engine.show(run.run_id)


def lease_of(given: Any) -> dict[str, Any]:
    return {name: given[name] for name in ("runId", "leaseId", "fencingToken")}


def test_a_claim_that_cannot_load_what_it_gives_leaves_no_lease(
    now: InProcessEngine, call: Call, store: Store
) -> None:
    run = waiting(now)
    store.goes()

    refused = [call("claim", stepType="away", holder="vm-1") for _ in range(3)]
    refused.append(call("acquire", runId=run.run_id, holder="vm-1"))

    left = now.show(run.run_id)
    assert [(status, body["error"]["code"]) for status, body in refused] == [
        (503, "store_unavailable")
    ] * 4
    assert left.position.lease is None
    assert (left.status, left.fencing_token) == ("PENDING", run.fencing_token)
    store.comes_back()
    status, given = call("claim", stepType="away", holder="vm-1")
    assert status == 200
    assert given["given"] == {"text": LARGE}
    assert given["attempt"] == 1


def test_a_claim_that_cannot_load_the_checkpoint_leaves_no_lease(
    now: InProcessEngine, call: Call, store: Store
) -> None:
    run = waiting(now)
    _, given = call("claim", stepType="away", holder="vm-1")
    call("checkpoint", **lease_of(given), iterationCount=1, partialResults=LARGE)
    call("release", **lease_of(given))
    store.goes()

    refused = call("claim", stepType="away", holder="vm-2")

    assert refused[0] == 503
    assert now.show(run.run_id).position.lease is None
    store.comes_back()
    _, again = call("claim", stepType="away", holder="vm-2")
    assert again["resume"]["partialResults"] == LARGE


@pytest.mark.parametrize(
    ("word", "further"),
    [
        ("checkpoint", {"iterationCount": 1, "partialResults": LARGE}),
        ("complete", {"output": {"text": LARGE}}),
    ],
)
def test_what_a_worker_gives_while_the_store_is_away_may_be_given_again(
    now: InProcessEngine, call: Call, store: Store, word: str, further: dict[str, Any]
) -> None:
    run = waiting(now)
    _, given = call("claim", stepType="away", holder="vm-1")
    before = now.show(run.run_id)
    store.goes()

    status, refused = call(word, **lease_of(given), **further)

    assert (status, refused["error"]["code"]) == (503, "store_unavailable")
    assert now.show(run.run_id) == before
    store.comes_back()
    assert call(word, **lease_of(given), **further)[0] == 200


def test_an_outage_does_not_use_up_the_time_that_a_step_may_wait(
    engine: InProcessEngine, clock: FrozenClock, store: Store
) -> None:
    """Workers asked for it again and again: the run is not at fault that none started it."""
    run = waiting(engine)
    store.goes()

    for _ in range(18):
        clock.advance(timedelta(minutes=10))
        with pytest.raises(StoreUnavailableError):
            claim_step(engine.engine, "away", "vm-1")
        sweep(engine.engine)

    store.comes_back()
    assert claim_step(engine.engine, "away", "vm-1").manifest.run_id == run.run_id


def test_a_step_that_no_worker_asks_for_is_given_up_while_the_sweep_runs(
    engine: InProcessEngine, clock: FrozenClock
) -> None:
    """The hour that it may wait is counted anew after one in which no sweep came."""
    run = waiting(engine)
    clock.advance(timedelta(minutes=61))
    sweep(engine.engine)

    looks = [engine.show(run.run_id).dead_letter_reason]
    for _ in range(6):
        clock.advance(timedelta(minutes=10))
        sweep(engine.engine)
        looks.append(engine.show(run.run_id).dead_letter_reason)

    assert looks == [None] * 6 + ["NEVER_STARTED"]


def test_that_a_step_was_asked_for_in_vain_is_noted_once_a_grace(
    engine: InProcessEngine, clock: FrozenClock, store: Store
) -> None:
    """Workers ask each second."""
    run = waiting(engine)
    store.goes()

    noted = []
    for _ in range(65):
        clock.advance(1)
        with pytest.raises(StoreUnavailableError):
            acquire_run(engine.engine, run.run_id, "vm-1")
        noted.append(engine.show(run.run_id).position.dispatch.seen_at)

    assert len(set(noted)) == 2


class Away(FolderArtifacts):
    """A store that says after two seconds that it is away; or that a part of it is."""

    def __init__(self, root: Path, clock: FrozenClock, *part: str) -> None:
        super().__init__(root, clock)
        self.asked: list[str] = []
        self._frozen, self._part = clock, part

    def get(self, name: str) -> bytes:
        if self._part and name not in self._part:
            return super().get(name)
        self.asked.append(name)
        self._frozen.advance(2)
        raise StoreUnavailableError(store="artifacts", problem="it is away")


def test_a_run_whose_value_cannot_be_read_does_not_hide_its_neighbour(
    engine: InProcessEngine, clock: FrozenClock, store: Store
) -> None:
    first = waiting(engine)
    clock.advance(1)
    second = waiting(engine)
    ref = first.steps["make"].output_ref
    assert ref is not None
    partly_away = replace(engine.engine, artifacts=Away(store.root, clock, ref))

    claimed = claim_step(partly_away, "away", "vm-1")

    assert claimed.manifest.run_id == second.run_id
    assert engine.show(first.run_id).position.lease is None
    assert engine.show(first.run_id).status == "PENDING"


def test_a_claim_looks_for_a_run_whose_values_are_there_for_no_longer_than_it_may(
    engine: InProcessEngine, clock: FrozenClock, store: Store
) -> None:
    away = Away(store.root, clock)
    for _ in range(6):
        waiting(engine)

    with pytest.raises(StoreUnavailableError):
        claim_step(replace(engine.engine, artifacts=away), "away", "vm-1")

    assert len(away.asked) == 3


def test_what_was_loaded_before_the_run_moved_on_is_never_given_out(
    engine: InProcessEngine, store: Store
) -> None:
    run = engine.start("away_twice", {})
    engine.run_until_idle()

    def another_worker_completes_the_step() -> None:
        held = acquire_run(engine.engine, run.run_id, "vm-2").manifest
        assert held.position.lease is not None
        credentials = LeaseCredentials(run.run_id, fence_of(held))
        complete_step(engine.engine, credentials, '{"text":"of the other"}', "SUCCESS")

    slow = replace(engine.engine, artifacts=Meddling(store.root, another_worker_completes_the_step))
    claimed = acquire_run(slow, run.run_id, "vm-1")

    assert claimed.manifest.current_step == "away_too"
    assert claimed.given == '{"text":"of the other"}'


def test_a_lease_that_is_renewed_while_the_output_is_stored_is_not_lost(
    engine: InProcessEngine, store: Store, clock: FrozenClock
) -> None:
    """The store is slower than the lease that was read; the worker renews beside the call."""
    run = engine.start("remote", {})
    held = acquire_run(engine.engine, run.run_id, "vm-1").manifest
    credentials = LeaseCredentials(run.run_id, fence_of(held))

    def is_slow() -> None:
        clock.advance(20)
        renew_lease(engine.engine, credentials)
        clock.advance(20)

    slow = replace(engine.engine, artifacts=Meddling(store.root, is_slow))
    settled = complete_step(slow, credentials, f'"{LARGE}"', "SUCCESS")

    assert settled.changed
    assert engine.show(run.run_id).status == "COMPLETED"


def fence_of(run: Manifest) -> Fence:
    assert run.position.lease is not None
    return Fence(run.position.lease.lease_id, run.fencing_token)


def test_unreadable_runs_hide_no_other_from_a_claim(
    engine: InProcessEngine, clock: FrozenClock
) -> None:
    """They are the oldest, and more than a claim once looked at."""
    for _ in range(75):
        spoil(engine, engine.start("remote", {}).run_id)
    clock.advance(1)
    run = engine.start("remote", {})

    claimed = claim_step(engine.engine, "away", "vm-1")

    assert claimed.manifest.run_id == run.run_id
    with pytest.raises(NothingToClaimError):
        claim_step(engine.engine, "away", "vm-1")


def spoil(engine: InProcessEngine, run_id: str) -> None:
    engine.engine.documents.transact(
        run_ref(run_id), lambda found, _: Write(None, {**(found or {}), "status": "WAITING_V2"})
    )


def test_an_output_of_status_error_fails_the_attempt_of_a_remote_worker(
    now: InProcessEngine, call: Call
) -> None:
    run = now.start("remote", {})
    output = {"problem": "no gpu", "token": "abcdefghijkl"}

    answers = []
    for _ in range(2):
        _, given = call("claim", stepType="away", holder="vm-1")
        answers.append(call("complete", **lease_of(given), output=output, status="ERROR"))
        wait_for_backoff(now, run.run_id)

    done = now.show(run.run_id)
    assert [body["outcome"] for _, body in answers] == ["retry_scheduled", "dead_lettered"]
    assert done.dead_letter_reason == "RETRIES_EXHAUSTED"
    assert done.error is not None
    assert done.error.code == "output_error"
    assert done.error.details == '{"output":{"problem":"no gpu","token":"[redacted]"}}'


def wait_for_backoff(engine: InProcessEngine, run_id: str) -> None:
    """Have the next attempt due now."""

    def due(found: Any, now: Any) -> Write[None]:
        position = found["position"]
        dispatch = {**position["dispatch"], "notBefore": now}
        return Write(None, {**found, "position": {**position, "dispatch": dispatch}})

    engine.engine.documents.transact(run_ref(run_id), due)


@pytest.mark.parametrize("word", ["complete", "checkpoint"])
def test_what_is_nested_too_deep_is_refused_with_400(
    now: InProcessEngine, call: Call, word: str
) -> None:
    """A claim could not tell it to the next worker, nor a handler read it."""
    now.start("remote", {})
    _, given = call("claim", stepType="away", holder="vm-1")
    field = {"complete": "output", "checkpoint": "partialResults"}[word]
    further = {"iterationCount": 1} if word == "checkpoint" else {}

    refused = call(word, **lease_of(given), **further, **{field: nested(MAX_JSON_LEVELS + 1)})
    taken = call(word, **lease_of(given), **further, **{field: nested(MAX_JSON_LEVELS)})

    assert (refused[0], refused[1]["error"]["code"]) == (400, "invalid_request")
    assert "nested more than 198 levels deep" in refused[1]["error"]["message"]
    assert taken[0] == 200
    if word == "checkpoint":
        call("release", **lease_of(given))
        assert call("claim", stepType="away", holder="vm-2")[0] == 200


def test_a_list_of_details_of_a_remote_worker_is_a_list_of_issues(
    now: InProcessEngine, call: Call
) -> None:
    run = now.start("remote", {})
    _, given = call("claim", stepType="away", holder="vm-1")
    details = [{"path": f"a.{n}", "message": "missing"} for n in range(60)]

    call("fail", **lease_of(given), error={"message": "it does not fit", "details": details})

    error = now.show(run.run_id).error
    assert error is not None
    assert error.validation_issues == tuple(details[:50])
    assert error.validation_issue_count == 60
