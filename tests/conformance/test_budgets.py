"""Budgets on each store: from the ledger to the limits of the next dispatch, and who beats them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from leasehold import PipelineEntry, Registry, StepDispatchEntry
from leasehold.bootstrap import Bundle, boot
from leasehold.budgets.proposal import Strategy
from leasehold.domain.budget import budget_of, budget_ref
from leasehold.domain.dispatch import StepSettings
from leasehold.domain.ledger import ledger_ref
from leasehold.domain.manifest import to_document
from leasehold.domain.override import override_ref
from leasehold.domain.stored import Ref, Write
from leasehold.errors import MetricsUnavailableError, UnknownKeyError
from leasehold.ports.documents import Documents, Query
from leasehold.registry.dispatch import STRATEGIES
from leasehold.registry.pipelines import Catalog
from leasehold.services.derive_budgets import (
    LedgerSamples,
    derive_and_report,
    derive_budgets,
    explain_limit,
    read_budgets,
)
from leasehold.services.reporting import Facts
from tests.worlds.builders import environ_of
from tests.worlds.loopback_http import LoopbackHttp
from tests.worlds.stores import DOCUMENTS
from tests.worlds.wrapped import Wrapped

pytestmark = pytest.mark.one_store

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def step(name: str, **options: Any) -> StepDispatchEntry:
    limits = {
        "agent_timeout": timedelta(minutes=10),
        "dispatch_deadline": timedelta(minutes=15),
        "limit_strategy": "phase_decoupled",
    }
    return StepDispatchEntry(step_type=name, handler="json:loads", **limits | options)


@pytest.fixture
def open_bundle(
    documents: Documents, tmp_path: Path, unique: str
) -> Iterator[Callable[..., Bundle]]:
    """Opens engines of the steps of a test, whose names no other test has."""
    opened: list[Bundle] = []

    def open_one(environ: dict[str, str] | None = None, **options: Any) -> Bundle:
        name = options.pop("name", unique)
        catalog = Catalog(
            steps=Registry("dispatch", [step(name, **options)]),
            pipelines=Registry("pipelines", [PipelineEntry(name="one", steps=(name,))]),
        )
        settings = environ_of(tmp_path, **(environ or {}))
        opened.append(boot(settings, catalog=catalog, documents=documents))
        return opened[-1]

    yield open_one
    for bundle in opened:
        bundle.processes.close()
        bundle.engine.leases.close()


def now_of(documents: Documents) -> datetime:
    return documents.transact(Ref("breakers", "clock"), lambda _, now: Write(now)).answer


def write_entry(
    documents: Documents, name: str, step_type: str, ended_at: datetime, **record: Any
) -> None:
    """An entry of the ledger as a run of one step leaves it."""
    entry = {
        "runId": name,
        "endedAt": ended_at,
        "stepTypes": [step_type, "another"],
        "steps": {step_type: {"completedAt": ended_at, **record}},
    }
    documents.transact(ledger_ref(name), lambda *_: Write(None, entry))


def write_runs(documents: Documents, step_type: str, count: int = 80) -> None:
    now = now_of(documents)
    for number in range(count):
        write_entry(
            documents,
            f"{step_type}-{number}",
            step_type,
            now - number * HOUR / 60,
            bootstrapSeconds=2.0 + number % 5,
            executionSeconds=60.0 + number % 7,
            coldStart=number % 10 == 0,
        )


def in_force(bundle: Bundle, step_type: str) -> StepSettings:
    return bundle.engine.dispatch_rules().known_settings(step_type)


@pytest.mark.each_store
def test_a_derived_limit_is_applied_and_an_override_and_a_variable_go_over_it(
    documents: Documents, unique: str, open_bundle: Callable[..., Bundle]
) -> None:
    write_runs(documents, unique)
    bundle = open_bundle()

    (derived,) = derive_budgets(bundle.engine)

    assert derived.problem == ""
    stored = documents.get(budget_ref(unique))
    assert stored is not None
    budget = budget_of(stored.document)
    assert budget == derived.budget
    assert budget is not None
    assert budget.counts["successes"] == 80
    assert budget.proposed.total_s % 60 == 0
    assert 240 <= budget.proposed.total_s <= 420
    assert all(reason.endswith(".") for reason in budget.reasons)
    assert budget.derived_at == stored.read_at or budget.derived_at < stored.read_at

    # a day later it has come down: as if it had been derived again each day
    applied = budget.model_copy(update={"applied": budget.proposed}).model_dump()
    documents.transact(budget_ref(unique), lambda *_: Write(None, applied))
    settings = in_force(open_bundle(), unique)
    assert settings.dispatch_deadline.total_seconds() == budget.proposed.total_s
    assert settings.agent_timeout.total_seconds() == budget.proposed.timeout_s
    assert set(settings.sources.values()) >= {"derived"}
    assert settings.tail is not None
    assert settings.tail.dispatch_deadline == timedelta(minutes=60)  # four times the entry

    override = {"timeoutS": 33, "until": "2999-01-01"}
    documents.transact(override_ref(unique), lambda *_: Write(None, override))
    try:
        settings = in_force(open_bundle(), unique)
        assert (settings.agent_timeout, settings.sources["agentTimeout"]) == (
            timedelta(seconds=33),
            "override",
        )
        assert settings.sources["dispatchDeadline"] == "derived"
        assert settings.tail is None, "a person has the last word"

        variable = f"PIPELINE_{unique.upper().replace('-', '_')}_TIMEOUT_MS"
        settings = in_force(open_bundle({variable: "44000"}), unique)
        assert (settings.agent_timeout, settings.sources["agentTimeout"]) == (
            timedelta(seconds=44),
            variable,
        )
    finally:
        documents.delete(override_ref(unique))


@pytest.mark.parametrize("strategy", ["fixed", "propose", None])
def test_only_the_strategy_that_says_so_applies_a_limit(
    documents: Documents, unique: str, open_bundle: Callable[..., Bundle], strategy: str | None
) -> None:
    write_runs(documents, unique, count=30)
    bundle = open_bundle(limit_strategy=strategy)

    found = derive_budgets(bundle.engine)

    assert [one.step_type for one in found] == ([unique] if strategy == "propose" else [])
    settings = in_force(bundle, unique)
    assert settings.dispatch_deadline == timedelta(minutes=15)
    assert settings.sources["dispatchDeadline"] == "entry"
    for one in found:
        assert one.budget is not None
        assert one.budget.applied.total_s == one.budget.declared.total_s
        assert not one.has_changed


def test_an_entry_that_a_person_has_damaged_hides_no_other(
    documents: Documents, unique: str, open_bundle: Callable[..., Bundle]
) -> None:
    write_runs(documents, unique, count=30)
    now = now_of(documents)
    for number, record in enumerate(
        [
            {"executionSeconds": "soon"},
            {"executionSeconds": -1.0},
            {"executionSeconds": 1e12},
            {"executionSeconds": 5.0, "bootstrapSeconds": "x"},
            {"executionSeconds": 5.0, "completedAt": "yesterday, or so"},
            {"earlierAttempts": "none"},
            {"earlierAttempts": [None, 7, {"end": "failed"}, {"at": 3}]},
        ]
    ):
        write_entry(documents, f"{unique}-odd-{number}", unique, now - HOUR, **record)
    documents.transact(
        ledger_ref(f"{unique}-list"),
        lambda *_: Write(None, {"endedAt": now, "stepTypes": [unique], "steps": [1]}),
    )

    (derived,) = derive_budgets(open_bundle().engine)

    assert derived.problem == ""
    assert derived.budget is not None
    assert derived.budget.counts["successes"] == 30


def test_attempts_that_did_not_come_to_an_end_count_as_longer_ones(
    documents: Documents, unique: str, open_bundle: Callable[..., Bundle]
) -> None:
    now = now_of(documents)
    ends = [
        ("failed", "agent_timeout_exceeded"),
        ("failed", "dispatch_deadline_exceeded"),
        ("expired", "lease_expired"),
        ("interrupted", "instance_shutdown"),
        ("cancelled", "cancelled"),
        ("failed", None),
        ("failed", "memory_limit_exceeded"),
        ("deferred", "store_unavailable"),
        ("continued", None),
        ("repeated", None),
    ]
    earlier = [
        {"attempt": n, "end": end, "reason": reason, "at": now, "executionSeconds": 5.0}
        for n, (end, reason) in enumerate(ends, 1)
    ]
    write_entry(
        documents, f"{unique}-1", unique, now, executionSeconds=9.0, earlierAttempts=earlier
    )

    (derived,) = derive_budgets(open_bundle().engine)

    assert derived.budget is not None
    counts = derived.budget.counts
    assert (counts["clipped"], counts["interrupted"], counts["failures"]) == (2, 3, 2)
    assert counts["successes"] == 2, "an output that a person had made again was an output"
    assert counts["retried"] == 6, "the first attempt is none, and failures are not learnt from"


def test_attempts_share_what_their_step_has_spent_by_their_time(
    documents: Documents, unique: str, open_bundle: Callable[..., Bundle]
) -> None:
    now = now_of(documents)
    clipped = {"end": "failed", "reason": "agent_timeout_exceeded", "executionSeconds": 30.0}
    earlier = [{"attempt": 1, "at": now - MINUTE, **clipped}]
    for number, usd in enumerate([2.0, "much", -1.0, None]):
        write_entry(
            documents,
            f"{unique}-{number}",
            unique,
            now,
            usd=usd,
            executionSeconds=10.0,
            earlierAttempts=earlier,
        )
    write_entry(documents, f"{unique}-none", unique, now, usd=3.0, executionSeconds=0.0)

    report = explain_limit(open_bundle().engine, unique)

    spent = sorted(one["usd"] for one in report["samples"])
    assert spent == [0.0] * 7 + [0.5, 1.5], "an edited amount is none"


def test_an_attempt_that_ended_before_its_first_tool_was_at_its_bootstrap(
    documents: Documents, unique: str, open_bundle: Callable[..., Bundle]
) -> None:
    """Other attempts of the step say where theirs ends; else it is where a handler is entered."""
    now = now_of(documents)
    killed = {
        "attempt": 1,
        "end": "expired",
        "reason": "lease_expired",
        "at": now,
        "bootstrapSeconds": 0.5,
        "executionSeconds": 9.5,
    }
    source = LedgerSamples(open_bundle().engine).samples
    write_entry(
        documents, f"{unique}-1", unique, now, executionSeconds=9.0, earlierAttempts=[killed]
    )

    (first, _) = source(unique, now - HOUR)
    write_entry(documents, f"{unique}-2", unique, now, executionSeconds=8.0, firstTool="search")
    found = [
        one for one in source(unique, now - HOUR) if getattr(one, "outcome", "") == "interrupted"
    ]

    assert getattr(first, "execution_seconds", None) == 9.5
    assert [
        (getattr(one, "bootstrap_seconds", None), getattr(one, "execution_seconds", 0))
        for one in found
    ] == [(10.0, None)]


def test_a_budget_that_cannot_be_used_leaves_the_entry_in_force_and_is_derived_anew(
    documents: Documents, unique: str, open_bundle: Callable[..., Bundle]
) -> None:
    bundle = open_bundle()
    for damaged in ({"applied": {"totalS": "long"}}, {"applied": None}, {}, {"applied": [1]}):
        documents.transact(budget_ref(unique), lambda *_, d=damaged: Write(None, d))
        assert in_force(open_bundle(), unique).sources["dispatchDeadline"] == "entry"
    assert unique not in [one.step_type for one in read_budgets(bundle.engine)]

    write_runs(documents, unique, count=5)
    (derived,) = derive_budgets(bundle.engine)

    assert derived.budget is not None
    assert derived.budget.counts["tailProbes"] == 0
    assert "kaplanMeierBound" in (derived.budget.bootstrap or {})
    assert unique in [one.step_type for one in read_budgets(bundle.engine)]


def test_a_limit_off_the_time_ladder_is_refused_in_one_line(
    documents: Documents, unique: str, open_bundle: Callable[..., Bundle]
) -> None:
    limits = {"totalS": 20, "executionS": 30, "timeoutS": 30}
    documents.transact(budget_ref(unique), lambda *_: Write(None, {"applied": limits}))

    settings = in_force(open_bundle(), unique)

    assert settings.sources["dispatchDeadline"] == "entry"
    (line,) = settings.refused
    assert line.startswith(f"budgets/{unique} applied.t")
    assert "refused: agent_timeout would be 0:00:30; allowed: below the dispatch deadline" in line


def test_half_a_derived_limit_is_none(
    documents: Documents, unique: str, open_bundle: Callable[..., Bundle]
) -> None:
    """Its deadline was refused, and its limit of the handler, a tenth of a second, ended each."""
    limits = {"totalS": 1, "executionS": 0.1, "timeoutS": 0.1}
    documents.transact(budget_ref(unique), lambda *_: Write(None, {"applied": limits}))

    settings = in_force(open_bundle(), unique)

    assert set(map(settings.sources.get, ("agentTimeout", "dispatchDeadline"))) == {"entry"}
    assert len(settings.refused) == 1


@pytest.mark.parametrize("field", ["totalS", "timeoutS"])
def test_a_limit_of_next_to_nothing_is_no_limit(
    documents: Documents, unique: str, open_bundle: Callable[..., Bundle], field: str
) -> None:
    """Rounded it would be none at all, and the entry's would be shown as derived."""
    limits = {"totalS": 300, "executionS": 200, "timeoutS": 250, field: 0.0004}
    documents.transact(budget_ref(unique), lambda *_: Write(None, {"applied": limits}))

    settings = in_force(open_bundle(), unique)

    assert (settings.dispatch_deadline, settings.agent_timeout) == (15 * MINUTE, 10 * MINUTE)
    assert settings.sources["agentTimeout"] == settings.sources["dispatchDeadline"] == "entry"


def test_a_tail_probe_has_no_less_time_than_other_attempts(
    documents: Documents, unique: str, open_bundle: Callable[..., Bundle]
) -> None:
    """The longest limit that is derived is 60 minutes; a person wrote one of a day."""
    limits = {"totalS": 86_400, "executionS": 600, "timeoutS": 600}
    documents.transact(budget_ref(unique), lambda *_: Write(None, {"applied": limits}))

    settings = in_force(open_bundle(), unique)

    assert settings.dispatch_deadline == timedelta(days=1)
    assert settings.tail is not None
    assert settings.tail.dispatch_deadline == timedelta(days=1)
    assert settings.tail.agent_timeout == timedelta(minutes=10)


def test_a_budget_that_was_only_proposed_is_not_in_force_before_it_is_derived_again(
    documents: Documents, unique: str, open_bundle: Callable[..., Bundle]
) -> None:
    """A deploy gives the step more time and a strategy: the budget has the entry of before."""
    write_runs(documents, unique, count=30)
    derive_budgets(open_bundle(limit_strategy="propose").engine)

    longer = {"agent_timeout": 30 * MINUTE, "dispatch_deadline": 40 * MINUTE}
    bundle = open_bundle(**longer)

    settings = in_force(bundle, unique)
    assert settings.dispatch_deadline == 40 * MINUTE
    assert settings.sources["dispatchDeadline"] == "entry"
    (derived,) = derive_budgets(bundle.engine)
    assert derived.budget is not None
    assert derived.budget.applied.total_s > 900, "it comes down from the entry of now"
    assert in_force(open_bundle(**longer), unique).sources["dispatchDeadline"] == "derived"


def test_a_deploy_that_only_proposes_does_not_undo_what_another_applies(
    documents: Documents, unique: str, open_bundle: Callable[..., Bundle]
) -> None:
    """Each would put the limit back once an hour; a strategy that was changed waits two of them."""
    write_runs(documents, unique)
    applying, proposing = open_bundle(), open_bundle(limit_strategy="propose")
    derive_budgets(applying.engine)
    stored = documents.get(budget_ref(unique))
    assert stored is not None

    (derived,) = derive_budgets(proposing.engine)

    assert "Another deploy derived this step" in derived.problem
    after = documents.get(budget_ref(unique))
    assert after is not None
    assert after.document == stored.document
    assert in_force(applying, unique).sources["agentTimeout"] == "derived"
    assert explain_limit(proposing.engine, unique)["budget"].reasons[0] == derived.problem
    long_ago = {**stored.document, "derivedAt": now_of(documents) - 2 * HOUR}
    documents.transact(budget_ref(unique), lambda *_: Write(None, long_ago))
    (derived,) = derive_budgets(proposing.engine)
    assert derived.budget is not None
    assert derived.budget.strategy == "propose"


@pytest.mark.each_store
def test_a_derivation_that_began_earlier_does_not_undo_a_later_one(
    documents: Documents, unique: str, open_bundle: Callable[..., Bundle]
) -> None:
    write_runs(documents, unique, count=30)
    bundle = open_bundle()
    ledger = LedgerSamples(bundle.engine).samples

    def slow(step_type: str, since: datetime) -> Any:
        derive_budgets(bundle.engine)  # by another process, meanwhile
        return ledger(step_type, since)

    (derived,) = derive_budgets(bundle.engine, slow)

    (stored,) = [one for one in read_budgets(bundle.engine) if one.step_type == unique]
    assert derived.budget is not None
    assert stored.derived_at > derived.budget.derived_at
    assert not derived.has_changed


def test_a_deploy_that_only_proposes_does_not_undo_what_is_applied_meanwhile(
    documents: Documents, unique: str, open_bundle: Callable[..., Bundle]
) -> None:
    """Schedulers call both at the same minute: the one that looks last would always win."""
    write_runs(documents, unique, count=30)
    applying, proposing = open_bundle(), open_bundle(limit_strategy="propose")

    def slow(step_type: str, since: datetime) -> Any:
        (derived,) = derive_budgets(applying.engine)
        assert derived.budget is not None
        looked_first = {"derivedAt": derived.budget.derived_at - MINUTE}
        stored = to_document(derived.budget) | looked_first
        documents.transact(budget_ref(step_type), lambda *_: Write(None, stored))
        return LedgerSamples(proposing.engine).samples(step_type, since)

    (derived,) = derive_budgets(proposing.engine, slow)

    assert "Another deploy derived this step" in derived.problem
    (kept,) = [one for one in read_budgets(applying.engine) if one.step_type == unique]
    assert kept.strategy == "phase_decoupled"


def test_a_clock_that_was_ahead_holds_no_limit_up(
    documents: Documents, unique: str, open_bundle: Callable[..., Bundle]
) -> None:
    """It goes down by a fifth a day, and from the time of the last change on."""
    write_runs(documents, unique)
    bundle = open_bundle()
    (derived,) = derive_budgets(bundle.engine)
    assert derived.budget is not None
    ahead = now_of(documents) + timedelta(days=365)
    of_then = derived.budget.model_copy(update={"changed_at": ahead, "derived_at": ahead})
    documents.transact(budget_ref(unique), lambda *_: Write(None, to_document(of_then)))

    (again,) = derive_budgets(bundle.engine)

    assert again.budget is not None
    assert again.budget.changed_at is not None
    assert again.budget.changed_at <= now_of(documents)


def test_a_handler_that_is_asked_to_end_early_was_clipped_by_its_limit(
    documents: Documents, unique: str, open_bundle: Callable[..., Bundle]
) -> None:
    """A minute before its limit of ten, it is asked to end; the limit doubles after three."""
    now = now_of(documents)
    for number in range(3):
        clipped = {"end": "failed", "reason": "agent_timeout_exceeded", "executionSeconds": 541.0}
        write_entry(
            documents,
            f"{unique}-{number}",
            unique,
            now - number * MINUTE,
            earlierAttempts=[{"attempt": 1, "at": now - number * MINUTE, **clipped}],
        )

    facts: list[Facts] = []
    engine = open_bundle(cleanup_ttl=MINUTE).engine
    listeners = replace(engine.listeners, report=facts.append)
    (derived,) = derive_and_report(replace(engine, listeners=listeners))

    (line,) = facts
    assert (line["event"], line["step"], line["limitS"]) == ("LIMIT_CLIPS", unique, 1800)
    assert derived.budget is not None
    assert derived.budget.clips_in_a_row
    assert derived.budget.applied.total_s == 1800
    assert derived.budget.applied.timeout_s == 1200


def test_entries_of_a_clock_that_was_ahead_take_no_place_of_others(
    documents: Documents, unique: str, open_bundle: Callable[..., Bundle]
) -> None:
    now = now_of(documents)
    write_entry(documents, f"{unique}-ahead", unique, now + 400 * 24 * HOUR, executionSeconds=5.0)
    write_entry(documents, f"{unique}-new", unique, now - HOUR, executionSeconds=6.0)

    found = LedgerSamples(open_bundle().engine).samples(unique, now - timedelta(days=7))

    assert [getattr(one, "execution_seconds", None) for one in found] == [6.0]


@pytest.mark.each_store
def test_no_more_runs_are_read_than_may_be_and_the_newest_count(
    documents: Documents, unique: str, open_bundle: Callable[..., Bundle]
) -> None:
    now = now_of(documents)
    write_entry(documents, f"{unique}-old", unique, now - 8 * 24 * HOUR, executionSeconds=5.0)
    write_entry(documents, f"{unique}-new", unique, now - HOUR, executionSeconds=6.0)
    source = LedgerSamples(open_bundle().engine)

    found = source.samples(unique, now - timedelta(days=7))

    assert [getattr(one, "execution_seconds", None) for one in found] == [6.0]


class CountedReads(Wrapped[Documents]):
    """A store that counts the documents that are read."""

    reads = 0

    def transact(self, ref: Ref, decide: Any, **options: Any) -> Any:
        self.reads += 1
        return self.inner.transact(ref, decide, **options)

    def query(self, query: Query) -> Any:
        found = list(self.inner.query(query))
        self.reads += len(found)
        return found


@pytest.mark.each_store
def test_a_derivation_reads_no_more_than_a_thousand_documents_for_a_step(
    tmp_path: Path, unique: str
) -> None:
    steps = f"{unique}-1", f"{unique}-2"
    catalog = Catalog(
        steps=Registry("dispatch", [step(name) for name in steps]),
        pipelines=Registry("pipelines", [PipelineEntry(name="two", steps=steps)]),
    )
    with DOCUMENTS["sqlite"](tmp_path) as documents:
        for name in steps:
            write_runs(documents, name, count=1005)
        counted = CountedReads(documents)
        with closing(
            boot({"LEASEHOLD_ARTIFACTS": f"file://{tmp_path}"}, catalog=catalog, documents=counted)
        ) as bundle:
            derive_budgets(bundle.engine)
            counted.reads = 0

            found = derive_budgets(bundle.engine)

    counts = [one.budget.counts["successes"] for one in found if one.budget]
    assert counts == [997, 997], "of the newest runs"
    assert counted.reads == 2 * 1000


def answer(request: BaseHTTPRequestHandler, count: int) -> None:
    """Answer as Prometheus does: so many attempts took up to 30 s, and twice as many 60 s."""
    counts = {"30": count, "60": 2 * count, "+Inf": 2 * count}
    found = [{"metric": {"le": le}, "value": [1.0, str(n)]} for le, n in counts.items()]
    data = {"resultType": "vector", "result": found}
    request.send_response(200)
    request.end_headers()
    request.wfile.write(json.dumps({"status": "success", "data": data}).encode())


def test_a_metrics_server_takes_the_place_of_the_ledger_and_its_lies_change_nothing(
    documents: Documents, unique: str, open_bundle: Callable[..., Bundle]
) -> None:
    count = 50
    server = LoopbackHttp(lambda request: answer(request, count))
    try:
        engine = open_bundle({"PIPELINE_METRICS_SOURCE": server.url}).engine

        (derived,) = derive_budgets(engine)

        assert derived.budget is not None
        assert derived.budget.counts["successes"] == 3 * 2 * count, "of three spans"
        report = explain_limit(engine, unique)
        assert {one["execution_seconds"] for one in report["samples"]} == {30.0, 60.0}
        assert report["samplesFrom"] == "prometheus"
        stored = documents.get(budget_ref(unique))
        assert stored is not None

        count = -1
        (refused,) = derive_budgets(engine)

        assert refused.budget is None
        assert refused.problem.startswith(f"the metrics source {server.url} cannot be used: ")
        with pytest.raises(MetricsUnavailableError):
            explain_limit(engine, unique)
    finally:
        server.close()

    (away,) = derive_budgets(engine)

    assert "Connection refused" in away.problem
    kept = documents.get(budget_ref(unique))
    assert kept is not None
    assert kept.document == stored.document


def test_what_is_explained_is_not_stored(
    documents: Documents, unique: str, open_bundle: Callable[..., Bundle]
) -> None:
    write_runs(documents, unique, count=10)
    engine = open_bundle().engine

    report = explain_limit(engine, unique)

    assert report["dispatchDeadlineS"] == {"value": 900.0, "source": "entry"}
    assert (len(report["samples"]), report["samplesFrom"]) == (10, "ledger")
    assert documents.get(budget_ref(unique)) is None
    with pytest.raises(UnknownKeyError):
        explain_limit(engine, "no-such-step")


def test_a_step_may_name_each_strategy_of_the_engine() -> None:
    assert set(STRATEGIES) == {one.value for one in Strategy}
