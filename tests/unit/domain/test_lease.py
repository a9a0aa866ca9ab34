"""Leases: how long they run, and who still holds one."""

from __future__ import annotations

from datetime import timedelta

import pytest

from leasehold.domain.lease import Fence, compute_lease_ttl, held_lease
from leasehold.errors import LeaseLostError
from tests.unit.domain.runs import At, Runs


def test_the_cap_of_a_lease_is_the_deadline_and_five_minutes() -> None:
    """A worker that answers at the last moment must find its lease valid."""
    assert compute_lease_ttl(timedelta(seconds=1800)) == timedelta(seconds=2100)
    assert compute_lease_ttl(timedelta(seconds=15)) == timedelta(seconds=315)


def test_a_lease_is_short_and_its_cap_is_not(runs: Runs, at: At) -> None:
    leased = runs.leased(at=10)

    assert leased.position.lease.acquired_at == at(10)
    assert leased.position.lease.expires_at == at(40)
    assert leased.position.lease.max_expires_at == at(10 + 180 + 300)


def test_without_a_heartbeat_a_lease_runs_to_its_cap(runs: Runs, at: At) -> None:
    """It is not renewed, so it must outlast the attempt."""
    leased = runs.leased(runs.handed_off(), at=10)

    assert (
        leased.position.lease.expires_at
        == leased.position.lease.max_expires_at
        == at(10 + 20 + 300)
    )


def test_a_lease_is_held_until_the_moment_it_ends(runs: Runs, at: At) -> None:
    leased = runs.leased()

    held = held_lease(leased, at(29.999), Fence("lease-1", 1))

    assert held == leased.position.lease


@pytest.mark.parametrize(
    ("fence", "second", "known"),
    [
        (Fence("lease-1", 1), 30, "it ended at 2026-01-01T12:00:30+00:00"),
        (Fence("lease-1", 2), 0, "it is held by host-a, token 1"),
        (Fence("lease-2", 1), 0, "it is held by host-a, token 1"),
    ],
    ids=["over", "another token", "another lease"],
)
def test_a_lease_that_is_not_held_is_refused_with_the_known_facts(
    runs: Runs, at: At, fence: Fence, second: int, known: str
) -> None:
    """The message has to explain why a worker's result is not there."""
    with pytest.raises(LeaseLostError) as lost:
        held_lease(runs.leased(), at(second), fence)

    assert lost.value.details == {
        "lease_id": "…",
        "run_id": "r-1",
        "known": known,
        "state": "IN_PROGRESS",
        "fencing_token": 1,
        "holder": "host-a",
        "expires_at": "2026-01-01T12:00:30+00:00",
        "cancelled": False,
    }


@pytest.mark.parametrize(
    ("state", "token", "state_text", "cancelled"),
    [
        ("pending", 0, "PENDING", False),
        ("failed", 1, "ERROR", False),
        ("cancelled", 0, "cancelled and PENDING", True),
        ("dead_lettered", 1, "dead-lettered and ERROR", False),
    ],
)
def test_a_run_without_a_lease_lets_no_worker_in_and_says_what_became_of_it(
    runs: Runs, at: At, state: str, token: int, state_text: str, cancelled: bool
) -> None:
    run = runs.cancelled(runs.pending()) if state == "cancelled" else getattr(runs, state)()

    with pytest.raises(LeaseLostError) as lost:
        held_lease(run, at(0), Fence("lease-9", token))

    assert lost.value.message == (
        "Lease … of run r-1 is not held any more: "
        f"the run has no lease, it is {state_text}. Nothing was changed."
    )
    assert lost.value.details == {
        "lease_id": "…",
        "run_id": "r-1",
        "known": f"the run has no lease, it is {state_text}",
        "state": state_text,
        "fencing_token": token,
        "holder": None,
        "expires_at": None,
        "cancelled": cancelled,
    }
