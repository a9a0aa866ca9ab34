"""Why, audit and the sweep agree on every state that a run can be in, possible or not.

The oracle below is written from the words of the rule alone: nothing rests without an owner or an
alarm, unless a person holds it or it is over.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal, get_args

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.bootstrap import Hooks, Purpose, boot
from leasehold.domain import lifecycle
from leasehold.domain.change import Change
from leasehold.domain.dispatch import Rules
from leasehold.domain.effect import dispatch_task
from leasehold.domain.explanation import explain
from leasehold.domain.manifest import Manifest, run_ref, to_document
from leasehold.domain.manifest_parts import Block, ErrorRecord, Lease
from leasehold.domain.status import DeadLetterReason, Outcome, RunStatus
from leasehold.domain.stored import replace
from leasehold.registry.pipelines import Catalog
from leasehold.services.audit import audit
from leasehold.services.engine import Engine
from leasehold.services.sweep import sweep
from tests.worlds.builders import at_position, new_run, with_step
from tests.worlds.catalogs.sample import PIPELINES, STEPS
from tests.worlds.queues import SeenByAll
from tests.worlds.stores import DOCUMENTS, put

pytestmark = pytest.mark.one_store

Overlay = Literal["plain", "paused", "cancelled", "dead-lettered"]
Held = Literal["nobody", "live", "expired", "live, no holder", "expired, no holder"]
Owed = Literal["task not created", "task enqueued", "task lost", "backlog", "remote"]
Alarm = Literal["right", "none", "long past", "a night ago"]

MINUTE: Final = timedelta(minutes=1)
GRACE: Final = MINUTE
WAIT: Final = timedelta(hours=1)  # for a worker elsewhere
AGO: Final = 9 * MINUTE  # how long past an alarm is that no sweep attended yet
NIGHT: Final = timedelta(hours=9)  # and one for which nobody was there to look
NOW: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Case:
    """One state that a manifest can show."""

    status: RunStatus
    overlay: Overlay
    held: Held
    owed: Owed
    alarm: Alarm

    @property
    def is_over(self) -> bool:
        return self.status == "COMPLETED" or self.overlay in ("cancelled", "dead-lettered")

    @property
    def is_leased(self) -> bool:
        return self.status == "IN_PROGRESS" and not self.is_over

    @property
    def is_parked(self) -> bool:
        return self.overlay == "paused" or self.status == "BLOCKED"

    @property
    def is_past(self) -> bool:
        return self.alarm in ("long past", "a night ago")

    @property
    def ago(self) -> timedelta:
        """How long past its alarm is."""
        return NIGHT if self.alarm == "a night ago" else AGO

    @property
    def ends_at(self) -> timedelta:
        """When the lease ends, if there is one."""
        if self.held.startswith("live"):
            return timedelta(seconds=20)
        return -self.ago if self.is_past else timedelta(seconds=-1)

    @property
    def due_at(self) -> timedelta:
        """When the dispatch was due: its own alarm, the last one there is, is `alarm_at`."""
        return self.alarm_at - (WAIT if self.owed == "remote" else GRACE)

    @property
    def alarm_at(self) -> timedelta:
        """When a dispatch that waits is looked at."""
        return -self.ago if self.is_past else timedelta(seconds=30)

    def __str__(self) -> str:
        return f"{self.status}, {self.overlay}, {self.held}, {self.owed}, alarm {self.alarm}"


CASES: Final = [
    Case(*facts)
    for facts in itertools.product(
        RunStatus, *(get_args(kind) for kind in (Overlay, Held, Owed, Alarm))
    )
]


# -- the oracle ----------------------------------------------------------------------------------


def has_owner(case: Case) -> bool:
    return case.is_leased and case.held in ("live", "expired")


def needs_alarm(case: Case) -> bool:
    """An attempt that runs needs one even of a paused run; who waits needs one unless parked."""
    if case.is_over:
        return False
    return (case.is_leased and case.held != "nobody") or not case.is_parked


def wrong(case: Case) -> set[str]:
    """The findings of the audit on the run."""
    found = set()
    if case.is_leased and case.held == "nobody":
        found.add("no_lease")
    if case.is_leased and case.held.endswith("no holder"):
        found.add("no_holder")
    if not case.is_leased and case.held != "nobody":
        found.add("stray_lease")
    if needs_alarm(case) and case.alarm == "none":
        found.add("no_alarm")
    if not needs_alarm(case) and case.is_past:
        found.add("stray_alarm")
    if needs_alarm(case) and case.is_past:
        found.add("overdue")
    return found


def at_alarm(case: Case, *, in_queue: bool) -> str:
    """The action at the alarm of a run that has one."""
    if wrong(case) & {"no_lease", "no_holder"}:
        return "redispatched"
    if not case.is_leased and (case.is_over or case.is_parked):
        return "repaired"  # and no more is due
    if case.is_leased:
        is_live = case.held == "live" and case.is_past
        return "alarm_set" if is_live else "expired"  # the alarm of a live one is set right
    if case.owed == "remote":  # whose time is over, if somebody was there to see it
        return "awaits_claim" if case.alarm == "a night ago" else "dead_lettered"
    return "still_queued" if in_queue else "redispatched"


def has_alarm(case: Case) -> bool:
    return case.is_past or (case.alarm == "right" and needs_alarm(case))


# -- how a state looks ---------------------------------------------------------------------------


def manifest_for(case: Case, now: datetime, rules: Rules, run_id: str = "r-1") -> Manifest:
    """The manifest of the state."""
    plan = ("away", "add") if case.owed == "remote" else ("add", "add_again")
    new = new_run(run_id, pipeline="agreement", plan=plan, nonce=f"nonce of {run_id}")
    run = lifecycle.start(None, now + case.due_at, rules=rules, new=new).manifest
    dispatch = replace(
        run.position.dispatch, enqueued=case.owed in ("task enqueued", "task lost", "backlog")
    )
    run = at_position(run, dispatch=dispatch)
    facts: dict[str, Any] = {
        "status": case.status,
        "steps": with_step(run, plan[0], status=case.status),
        "claimable": None,
        "alarm_at": None,
        "paused": case.overlay == "paused",
        "cancelled": case.overlay == "cancelled",
    }
    if case.held != "nobody":
        run = at_position(run, lease=lease_for(case, now), heartbeat_at=now + case.ends_at - MINUTE)
    elif case.owed == "remote" and not case.is_over and case.overlay != "paused":
        facts["claimable"] = "away" if case.status in ("PENDING", "ERROR") else None
    if has_alarm(case):
        waits = not case.is_leased or case.held == "nobody"
        facts["alarm_at"] = now + (case.alarm_at if waits else case.ends_at)
        if case.is_past:
            facts["alarm_at"] = now - case.ago
    return replace(run, **facts, **marks(case, now))


def lease_for(case: Case, now: datetime) -> Lease:
    return Lease(
        lease_id="lease-1",
        holder="" if case.held.endswith("no holder") else "host-a",
        acquired_at=now + case.ends_at - MINUTE,
        expires_at=now + case.ends_at,
        max_expires_at=now + case.ends_at + 5 * MINUTE,
    )


def marks(case: Case, now: datetime) -> dict[str, Any]:
    """The fields of a manifest beside its status."""
    found: dict[str, Any] = {}
    if case.status == "ERROR":
        error = ErrorRecord(type="AgentClientError", code="overloaded", message="Try later.")
        found |= {"error": error, "error_at": now - 15 * MINUTE}
    if case.status == "BLOCKED":
        found["block"] = Block(code="TOO_SHORT", finding="2 letters.", remediation="Retry.")
    if case.status == "COMPLETED":
        found["completed_at"] = now - MINUTE
    if case.overlay == "dead-lettered":
        found |= {
            "dead_lettered": True,
            "dead_lettered_at": now - MINUTE,
            "dead_letter_reason": DeadLetterReason.NEVER_STARTED,
            "dead_letter_detail": "No task came.",
        }
    return found


# -- every state, on paper -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Rules:
    environ = {"LEASEHOLD_ARTIFACTS": f"file://{tmp_path_factory.mktemp('values')}"}
    bundle = boot(
        environ, catalog=Catalog(steps=STEPS, pipelines=PIPELINES), purpose=Purpose.PREVIEW
    )
    bundle.engine.leases.close()
    return bundle.engine.rules


def attended(run: Manifest, at: datetime, rules: Rules, *, in_queue: bool) -> Change:
    generation = run.position.dispatch.generation
    return lifecycle.on_alarm(run, at, rules=rules, generation=generation, in_queue=in_queue)


def repaired(run: Manifest, rules: Rules, *, in_queue: bool) -> Change:
    generation = run.position.dispatch.generation
    return lifecycle.on_audit(run, NOW, rules=rules, generation=generation, in_queue=in_queue)


def codes(run: Manifest, rules: Rules) -> set[str]:
    return {breach.code for breach in lifecycle.breaches(run, NOW, rules)}


def test_every_combination_is_looked_at() -> None:
    assert len(CASES) == 5 * 4 * 5 * 5 * 4


@pytest.mark.parametrize("status", RunStatus)
def test_the_audit_finds_what_breaks_the_rule_and_nothing_else(
    rules: Rules, status: RunStatus
) -> None:
    for case in (case for case in CASES if case.status is status):
        assert codes(manifest_for(case, NOW, rules), rules) == wrong(case), str(case)


@pytest.mark.parametrize("status", RunStatus)
def test_why_says_what_the_sweep_then_does(rules: Rules, status: RunStatus) -> None:
    for case in (case for case in CASES if case.status is status):
        run = manifest_for(case, NOW, rules)

        explanation = explain(run, NOW, rules)

        if case.is_over:
            assert (explanation.what, explanation.until, explanation.then) == (
                None,
                None,
                None,
            ), str(case)
            assert "waits for nothing" in explanation.words
            continue
        is_broken = bool(wrong(case) - {"overdue"})
        assert ("a repair" in explanation.words) is is_broken, str(case)
        assert explanation.until == run.alarm_at, str(case)
        if run.alarm_at is None:
            assert explanation.then is None, str(case)
            assert not attended(run, NOW + timedelta(days=9), rules, in_queue=False).changed
            continue
        done = attended(run, max(NOW, run.alarm_at), rules, in_queue=False)
        assert (explanation.then, done.outcome) == (
            done.outcome,
            at_alarm(case, in_queue=False),
        ), str(case)
        if reason := done.manifest.dead_letter_reason:
            assert f"given up as {reason}" in explanation.words
        early = attended(run, run.alarm_at - timedelta(microseconds=1), rules, in_queue=False)
        assert not early.changed


@pytest.mark.parametrize("status", RunStatus)
def test_a_backlog_is_not_dispatched_again(rules: Rules, status: RunStatus) -> None:
    for case in (case for case in CASES if case.status is status and has_alarm(case)):
        run = manifest_for(case, NOW, rules)
        assert run.alarm_at is not None

        done = attended(run, max(NOW, run.alarm_at), rules, in_queue=True)

        assert done.outcome == at_alarm(case, in_queue=True), str(case)
        if not wrong(case) & {"no_lease", "no_holder"} and done.outcome in (
            "still_queued",
            "alarm_set",
        ):
            assert done.manifest.position.dispatch.generation == 1
            assert not done.owed


@pytest.mark.parametrize("status", RunStatus)
def test_what_is_broken_is_repaired_for_good_and_nothing_else_is_touched(
    rules: Rules, status: RunStatus
) -> None:
    for case in (case for case in CASES if case.status is status):
        run = manifest_for(case, NOW, rules)

        change = repaired(run, rules, in_queue=case.owed in ("backlog", "task enqueued"))

        after = change.manifest
        assert change.changed is bool(wrong(case)), str(case)
        assert codes(after, rules) == set(), str(case)
        assert not repaired(after, rules, in_queue=False).changed, str(case)
        rests = after.is_terminal or after.paused or after.status is RunStatus.BLOCKED
        assert rests or after.alarm_at is not None, str(case)
        assert case.is_over is run.is_terminal
        if run.is_terminal:
            kept = ("updated_at", "traced", "alarm_at")
            unleased = at_position(after, lease=run.position.lease)
            assert replace(unleased, **{name: getattr(run, name) for name in kept}) == run
        assert len(change.events) == after.traced - run.traced


def test_nothing_in_order_that_is_live_and_not_parked_is_without_an_alarm(rules: Rules) -> None:
    live = [case for case in CASES if not wrong(case) and not case.is_over]
    assert live

    for case in live:
        run = manifest_for(case, NOW, rules)
        assert run.alarm_at is not None or (case.is_parked and not has_owner(case)), str(case)


def test_an_error_and_a_stuck_attempt_are_told_apart(rules: Rules) -> None:
    """`why` never says the same of a failed run and of one that hangs."""
    explanations: dict[RunStatus, set[str]] = {RunStatus.ERROR: set(), RunStatus.IN_PROGRESS: set()}
    for case in CASES:
        if case.status in explanations and case.overlay == "plain" and not wrong(case):
            run = manifest_for(case, NOW, rules)
            explanations[case.status].add(str(explain(run, NOW, rules).what))

    assert explanations[RunStatus.ERROR]
    assert explanations[RunStatus.IN_PROGRESS]
    assert not explanations[RunStatus.ERROR] & explanations[RunStatus.IN_PROGRESS]


# -- written while the clock was thirty years ahead -----------------------------------------------

AHEAD: Final = timedelta(days=30 * 365)


def wrong_ahead(case: Case) -> set[str]:
    """Nothing is overdue in 2056; and what is over has nothing to wait for."""
    found = wrong(case) - {"overdue"}
    return found if case.is_over else found | {"time_in_future"}


@pytest.mark.parametrize("status", RunStatus)
def test_a_run_of_the_future_is_found_and_moves_from_now_on(
    rules: Rules, status: RunStatus
) -> None:
    for case in (case for case in CASES if case.status is status):
        run = manifest_for(case, NOW + AHEAD, rules)
        assert codes(run, rules) == wrong_ahead(case), str(case)
        if not case.is_over:
            assert "a repair" in explain(run, NOW, rules).words, str(case)

        change = repaired(run, rules, in_queue=True)

        after = change.manifest
        assert change.changed is bool(wrong_ahead(case)), str(case)
        assert codes(after, rules) == set(), str(case)
        assert not repaired(after, rules, in_queue=False).changed, str(case)
        assert (after.alarm_at is None) is (after.is_terminal or is_parked(after)), str(case)
        assert after.alarm_at is None or after.alarm_at <= NOW + WAIT, str(case)
        if has_owner(case):
            assert after.position.lease is not None, str(case)
            assert run.position.lease is not None
            assert after.position.lease.lease_id == run.position.lease.lease_id, str(case)


def is_parked(run: Manifest) -> bool:
    return (run.paused or run.status is RunStatus.BLOCKED) and run.position.lease is None


# -- a sample, on every store --------------------------------------------------------------------

#: Every eleventh state, or every 29th where a store is a way away: neither shares a factor with the
#: sizes of the table.
SAMPLES: Final = {"sqlite": CASES[::11], "firestore": CASES[::29]}


@pytest.fixture
def sample(kind: str) -> dict[str, Case]:
    """The states of the sample, by the runs that are to be in them."""
    return {f"r-{place:04d}": case for place, case in enumerate(SAMPLES[kind])}


@pytest.fixture
def kept(kind: str, tmp_path: Path) -> Iterator[tuple[Engine, list[Change]]]:
    """An engine on its own store, and what it is seen to do."""
    seen: list[Change] = []
    with ExitStack() as stack:
        documents = stack.enter_context(DOCUMENTS[kind](tmp_path))
        environ = {"LEASEHOLD_ARTIFACTS": f"file://{tmp_path}/artifacts"}
        catalog = Catalog(steps=STEPS, pipelines=PIPELINES)
        bundle = boot(
            environ,
            catalog=catalog,
            documents=documents,
            tasks=SeenByAll(SystemClock()),
            hooks=Hooks(observe=seen.append),
        )
        stack.callback(bundle.engine.leases.close)
        yield bundle.engine, seen


def store(engine: Engine, cases: dict[str, Case]) -> None:
    """Store the sample; what is in its queue is in its queue."""
    now = engine.clock.now()
    for run_id, case in cases.items():
        run = manifest_for(case, now, engine.rules, run_id)
        engine.documents.transact(run_ref(run_id), put(to_document(run)))
        if case.owed in ("backlog", "task enqueued"):
            engine.tasks.create(dispatch_task(run))


def found_by_audit(engine: Engine) -> dict[str, set[str]]:
    return {one.run_id: {breach.code for breach in one.breaches} for one in audit(engine)}


@pytest.mark.each_store
def test_on_a_store_the_audit_finds_the_same_and_repairs_it(
    kept: tuple[Engine, list[Change]], sample: dict[str, Case]
) -> None:
    engine, _ = kept
    store(engine, sample)
    expected = {run_id: wrong(case) for run_id, case in sample.items() if wrong(case)}
    found = found_by_audit(engine)
    repairs = {one.run_id: one.outcome for one in audit(engine, repair=True)}

    assert found == expected
    assert repairs.keys() == found.keys()
    assert None not in repairs.values()
    assert found_by_audit(engine) == {}


def test_on_a_store_what_no_sweep_would_see_until_2056_is_found_by_the_audit(
    kept: tuple[Engine, list[Change]], sample: dict[str, Case]
) -> None:
    engine, _ = kept
    now = engine.clock.now()
    for run_id, case in sample.items():
        run = manifest_for(case, now + AHEAD, engine.rules, run_id)
        engine.documents.transact(run_ref(run_id), put(to_document(run)))
    expected = {run_id: wrong_ahead(case) for run_id, case in sample.items() if wrong_ahead(case)}

    swept = sweep(engine)
    found = found_by_audit(engine)
    repairs = {one.run_id: one.outcome for one in audit(engine, repair=True)}

    assert (swept.recovered, swept.redispatched) == (0, 0)
    assert found == expected
    assert None not in repairs.values()
    assert found_by_audit(engine) == {}


@pytest.mark.each_store
def test_on_a_store_the_sweep_does_what_why_says(
    kept: tuple[Engine, list[Change]], sample: dict[str, Case]
) -> None:
    engine, seen = kept
    store(engine, sample)
    due = {
        run_id: at_alarm(case, in_queue=case.owed in ("backlog", "task enqueued"))
        for run_id, case in sample.items()
        if has_alarm(case)
        and (case.is_past or case.held.startswith("expired"))
        and (case.is_past or case.is_leased)
    }
    assert len(due) > len(sample) / 4.5

    sweeps = [sweep(engine), sweep(engine)]

    done = {  # a run that was given up is archived then
        change.manifest.run_id: change.outcome.value
        for change in seen
        if change.outcome not in (Outcome.ARCHIVED, Outcome.ARCHIVE_OWED)
    }
    assert done == due
    assert [swept.more for swept in sweeps] == [False, False]
    assert sum(swept.documents_read for swept in sweeps) <= len(due) + 16
