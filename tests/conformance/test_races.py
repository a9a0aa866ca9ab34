"""Two who write to one run at the same time, on a real store: one of them wins, and which is seen.

A worker decides on what it wrote last, without a read. Where another process wrote in between, the
store refuses it (VersionConflictError), and it reads and decides again, as HeldRun does.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from threading import Barrier

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.change import Change, Transition, on_manifest, on_run
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.lease import Fence
from leasehold.domain.manifest import Manifest, manifest_of, to_document
from leasehold.domain.status import Outcome
from leasehold.domain.stored import Document, Ref, Write, replace
from leasehold.errors import (
    LeaseHeldError,
    LeaseholdError,
    LeaseLostError,
    VersionConflictError,
)
from leasehold.ports.documents import Documents, Query, Snapshot
from tests.worlds.builders import at_position, new_run, rules_of, step_settings

#: How often a race is run: who wins is not ours to say.
ROUNDS = 8

RULES = rules_of(step_settings(remote=True), max_interruptions=2)
OUTPUT = KeptValue(text='"Dear Ada"')


class Run:
    """One run of one step in a store, and what workers and people do to it."""

    def __init__(self, documents: Documents, ref: Ref) -> None:
        self.documents = documents
        self.ref = ref
        new = new_run(ref.id, plan=("draft",))
        start = partial(lifecycle.start, rules=RULES, new=new)
        documents.transact(ref, on_manifest(ref.id, start))

    def change(self, transition: Transition, known: Snapshot | None = None) -> Change:
        """Write on what is known, once; without it on what is read."""
        decide = on_run(self.ref.id, transition)
        return self.documents.transact(self.ref, decide, if_version=known).answer

    def persist(self, transition: Transition, known: Snapshot) -> tuple[Change, bool]:
        """Write on what is known; where it is stale, read and decide again, and say so."""
        try:
            return self.change(transition, known), False
        except VersionConflictError:
            return self.change(transition), True

    def claim(self, lease_id: str) -> Change:
        claim = partial(lifecycle.claim, rules=RULES, lease_id=lease_id, holder=lease_id)
        decide = on_run(self.ref.id, claim)
        return self.documents.transact(self.ref, decide, in_transaction=True).answer

    def expired(self) -> None:
        """Set the end of the lease back, as if its time had passed."""

        def over(document: Document | None, now: datetime) -> Write[None]:
            run = manifest_of(self.ref.id, document or {})
            assert run.position.lease is not None
            lease = replace(run.position.lease, expires_at=now - timedelta(seconds=1))
            return Write(
                None, to_document(at_position(replace(run, alarm_at=lease.expires_at), lease=lease))
            )

        self.documents.transact(self.ref, over)

    def seen(self) -> Snapshot:
        found = self.documents.get(self.ref)
        assert found is not None
        return found

    def stored(self) -> Manifest:
        return manifest_of(self.ref.id, self.seen().document)

    def trace(self) -> list[str]:
        return [str(e.document["type"]) for e in self.documents.query(Query(f"{self.ref}/trace"))]


@pytest.fixture
def run(documents: Documents, ref: Ref) -> Run:
    """A run whose step lease-1 holds."""
    run = Run(documents, ref)
    run.claim("lease-1")
    return run


@pytest.fixture
def runs(documents: Documents, unique: str) -> list[Run]:
    """As many of them as there are rounds."""
    runs = [Run(documents, Ref("runs", f"{unique}-{number}")) for number in range(ROUNDS)]
    for run in runs:
        run.claim("lease-1")
    return runs


def held(transition: Callable[..., Change], **facts: object) -> Transition:
    """Return what the holder of lease-1 does."""
    return partial(transition, rules=RULES, fence=Fence("lease-1", 1), **facts)


def by_ada(operation: Callable[..., Change]) -> Transition:
    """Return what ada asks for."""
    return partial(operation, rules=RULES, actor="ada", reason="testing")


RENEW = held(lifecycle.renew)
COMPLETE = held(lifecycle.complete, output=OUTPUT)
CHECKPOINT = held(
    lifecycle.checkpoint, iteration_count=3, phase="read", partial_results=KeptValue(text="[1]")
)
RELEASE = held(lifecycle.release, reason="instance_shutdown")


def at_once(*acts: Callable[[], object]) -> list[object]:
    """Do all of it at the same moment, each in a thread; return answers and errors of ours."""
    ready = Barrier(len(acts))

    def do(act: Callable[[], object]) -> object:
        ready.wait()
        try:
            return act()
        except LeaseholdError as error:
            return error

    with ThreadPoolExecutor(len(acts)) as threads:
        return list(threads.map(do, acts))


# -- a renewal and a settlement --------------------------------------------------------------------


def test_a_settlement_that_a_renewal_came_before_reads_and_settles(run: Run) -> None:
    known = run.seen()
    run.change(RENEW, known)

    change, conflicted = run.persist(COMPLETE, known)

    stored = run.stored()
    assert (change.outcome, conflicted) == (Outcome.COMPLETED, True)
    assert (stored.status, stored.position.lease, stored.owes_archive) == ("COMPLETED", None, True)
    assert stored.steps["draft"].output == '"Dear Ada"'


@pytest.mark.parametrize("late", [RENEW, CHECKPOINT], ids=["a renewal", "a checkpoint"])
def test_who_comes_after_the_settlement_is_told_that_the_lease_is_over(
    run: Run, late: Transition
) -> None:
    """On what it knows it would have brought the lease back to life."""
    known = run.seen()
    run.change(COMPLETE, known)
    settled = run.seen()

    with pytest.raises(LeaseLostError, match="the run has no lease, it is COMPLETED"):
        run.persist(late, known)

    assert run.seen().document == settled.document


def test_a_renewal_that_races_a_settlement_never_undoes_it(runs: list[Run]) -> None:
    for run in runs:
        known = run.seen()

        renewed, settled = at_once(
            partial(run.persist, RENEW, known), partial(run.persist, COMPLETE, known)
        )

        stored = run.stored()
        assert isinstance(settled, tuple)
        assert settled[0].outcome is Outcome.COMPLETED
        if isinstance(renewed, LeaseLostError):
            assert not settled[1], "the settlement came first, on what was known"
        else:
            assert isinstance(renewed, tuple)
            assert renewed[0].outcome is Outcome.RENEWED
            assert settled[1], "the settlement came second, and read"
        assert (stored.status, stored.position.lease, stored.fencing_token) == (
            "COMPLETED",
            None,
            1,
        )
        assert stored.position.last_settlement is not None
        assert stored.position.last_settlement.fencing_token == 1
        assert run.trace() == []


def test_a_checkpoint_that_races_a_release_is_kept_or_refused_whole(runs: list[Run]) -> None:
    for run in runs:
        known = run.seen()

        kept, _ = at_once(
            partial(run.persist, CHECKPOINT, known), partial(run.persist, RELEASE, known)
        )

        stored = run.stored()
        assert (stored.position.checkpoint is None) is isinstance(kept, LeaseLostError)
        assert (stored.status, stored.position.lease, stored.claimable) == (
            "PENDING",
            None,
            "draft",
        )
        assert (stored.position.attempts.interrupted, stored.position.interruptions) == (1, 1)
        assert stored.position.dispatch.generation == 2
        assert run.trace() == ["step_terminated"]


# -- a person, between what a worker read and its settlement ---------------------------------------


def test_what_is_delivered_after_a_cancellation_is_discarded(run: Run) -> None:
    known = run.seen()
    run.change(by_ada(lifecycle.cancel))
    cancelled = run.seen()

    change, conflicted = run.persist(COMPLETE, known)

    assert (change.outcome, change.changed, conflicted) == (Outcome.CANCELLED, False, True)
    assert run.seen().document == cancelled.document
    assert run.trace() == ["run_cancelled", "step_terminated"]


def test_what_is_delivered_after_a_pause_is_recorded(run: Run) -> None:
    """A pause lets a running attempt end."""
    known = run.seen()
    run.change(by_ada(lifecycle.pause))

    change, conflicted = run.persist(COMPLETE, known)

    stored = run.stored()
    assert (change.outcome, conflicted) == (Outcome.COMPLETED, True)
    assert (stored.status, stored.paused) == ("COMPLETED", False)
    assert stored.steps["draft"].output == '"Dear Ada"'
    assert run.trace() == ["run_paused"]


def test_what_is_given_back_after_a_pause_waits_for_the_person(run: Run) -> None:
    known = run.seen()
    run.change(by_ada(lifecycle.pause))

    change, _ = run.persist(RELEASE, known)

    stored = run.stored()
    assert (change.outcome, change.owed) == (Outcome.RELEASED, ())
    assert (stored.status, stored.paused, stored.position.lease) == ("PENDING", True, None)
    assert (stored.position.dispatch.generation, stored.claimable, stored.alarm_at) == (
        1,
        None,
        None,
    )
    assert run.trace() == ["run_paused", "step_terminated"]


def test_a_cancellation_and_a_settlement_at_once_have_one_winner(runs: list[Run]) -> None:
    for run in runs:
        known = run.seen()

        settled, cancelled = at_once(
            partial(run.persist, COMPLETE, known), partial(run.change, by_ada(lifecycle.cancel))
        )

        stored = run.stored()
        assert isinstance(settled, tuple)
        if isinstance(cancelled, Change):
            assert (settled[0].outcome, settled[0].changed) == (Outcome.CANCELLED, False)
            assert (stored.status, stored.cancelled) == ("PENDING", True)
            assert stored.steps["draft"].output is None
            assert run.trace() == ["run_cancelled", "step_terminated"]
        else:
            assert isinstance(cancelled, LeaseholdError)
            assert cancelled.code == "not_allowed"
            assert settled[0].outcome is Outcome.COMPLETED
            assert (stored.status, stored.cancelled) == ("COMPLETED", False)
            assert run.trace() == []
        assert (stored.position.lease, stored.is_moving) == (None, False)


# -- what is stale ---------------------------------------------------------------------------------


@pytest.mark.parametrize("settlement", [COMPLETE, RELEASE], ids=["complete", "release"])
def test_a_settlement_on_what_is_stale_writes_nothing(run: Run, settlement: Transition) -> None:
    """Neither the run nor the events of its commit."""
    known = run.seen()
    run.change(RENEW)
    renewed = run.seen()

    with pytest.raises(VersionConflictError):
        run.change(settlement, known)

    assert run.seen().document == renewed.document
    assert run.trace() == []


def test_a_worker_that_was_replaced_is_refused_on_what_it_knows_and_on_what_it_reads(
    run: Run,
) -> None:
    known = run.seen()
    run.expired()
    run.claim("lease-2")
    taken = run.seen()

    with pytest.raises(VersionConflictError):
        run.change(COMPLETE, known)
    with pytest.raises(LeaseLostError) as lost:
        run.persist(COMPLETE, known)

    assert lost.value.details["known"] == "it is held by lease-2, token 2"
    assert (lost.value.details["holder"], lost.value.details["fencing_token"]) == ("lease-2", 2)
    assert run.seen().document == taken.document


def test_a_settlement_whose_answer_was_lost_is_repeated_on_what_is_stale(run: Run) -> None:
    known = run.seen()
    run.change(COMPLETE, known)
    settled = run.seen()

    change, conflicted = run.persist(COMPLETE, known)

    assert (change.outcome, change.changed, conflicted) == (Outcome.COMPLETED, False, True)
    assert run.seen().document == settled.document


# -- two who want an expired lease -----------------------------------------------------------------


def test_of_those_who_claim_an_expired_lease_one_gets_it(runs: list[Run]) -> None:
    for run in runs[:3]:
        run.expired()

        answers = at_once(partial(run.claim, "lease-2"), partial(run.claim, "lease-3"))

        won = [answer for answer in answers if isinstance(answer, Change)]
        lost = [answer for answer in answers if isinstance(answer, LeaseHeldError)]
        stored = run.stored()
        assert [len(won), len(lost)] == [1, 1]
        assert won[0].outcome is Outcome.ACQUIRED
        assert stored.position.lease is not None
        assert won[0].manifest.position.lease is not None
        assert stored.position.lease.lease_id == won[0].manifest.position.lease.lease_id
        assert lost[0].details["holder"] == stored.position.lease.holder
        assert (stored.fencing_token, stored.position.attempts.expired) == (2, 1)
        assert run.trace() == ["step_terminated"]


def test_a_claim_and_a_sweep_of_an_expired_lease_count_it_once(runs: list[Run]) -> None:
    expire = partial(lifecycle.expire, rules=RULES, lease_id="lease-1")
    for run in runs[:3]:
        run.expired()

        claimed, swept = at_once(partial(run.claim, "lease-2"), partial(run.change, expire))

        stored = run.stored()
        assert isinstance(claimed, Change)
        assert isinstance(swept, Change)
        assert claimed.outcome is Outcome.ACQUIRED
        assert swept.outcome in (Outcome.EXPIRED, Outcome.MOVED_ON)
        assert stored.position.lease is not None
        assert (stored.position.lease.lease_id, stored.fencing_token) == ("lease-2", 2)
        assert (stored.position.attempts.expired, stored.position.interruptions) == (1, 1)
        assert stored.position.dispatch.generation == (2 if swept.outcome is Outcome.EXPIRED else 1)
        assert run.trace() == ["step_terminated"]


def test_the_holder_and_one_who_takes_over_never_both_go_on(runs: list[Run]) -> None:
    """Not even without a write in between: the time is over."""
    for run in runs[:3]:
        run.expired()
        known = run.seen()

        settled, claimed = at_once(
            partial(run.persist, COMPLETE, known), partial(run.claim, "lease-2")
        )

        stored = run.stored()
        assert isinstance(settled, LeaseLostError)
        assert isinstance(claimed, Change)
        assert stored.position.lease is not None
        assert (stored.position.lease.lease_id, stored.steps["draft"].output) == ("lease-2", None)
