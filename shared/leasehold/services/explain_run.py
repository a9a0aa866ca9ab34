"""Why a run stands where it stands: what it waits for, and what a person can do about it now."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime

from leasehold.domain.breaker import BreakerState, breaker_of, breaker_ref
from leasehold.domain.delivery import Delivery
from leasehold.domain.dispatch import Rules, as_dispatched
from leasehold.domain.explanation import Explanation, explain, explain_delivery, unannounced
from leasehold.domain.lifecycle import Operation, decisions
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import RunStatus
from leasehold.domain.trouble import Trouble, troubles_of
from leasehold.domain.worker_note import WorkerNote, last_asked, no_server
from leasehold.errors import (
    BudgetUsedUpError,
    CatalogMisfitError,
    InvalidRequestError,
    LeaseholdError,
)
from leasehold.frozen import dataclass
from leasehold.registry.pipelines import NO_CATALOG
from leasehold.services.engine import Engine
from leasehold.services.operate import OperationRequest, preview
from leasehold.services.read_children import read_children_of
from leasehold.services.read_deliveries import deliveries_of_run
from leasehold.services.read_runs import RunFilter, RunPage, get_run, list_runs
from leasehold.services.readiness import artifacts_outage
from leasehold.services.slots import words_of_line
from leasehold.services.worker_notes import read_notes


@dataclass(frozen=True, slots=True)
class ExplainedRun:
    """A run, and what it waits for.

    Args:
        run: the run.
        explanation: what it waits for.
        unannounced: its announcements that are due or were given up.
        owed: a sentence on each of those.
        troubles: in which it is, of those that are looked at.
    """

    run: Manifest
    explanation: Explanation
    unannounced: tuple[Delivery, ...] = ()
    owed: tuple[str, ...] = ()
    troubles: tuple[Trouble, ...] = ()


def explain_run(engine: Engine, run_id: str, *, is_gone: Callable[[str], bool]) -> ExplainedRun:
    """Return what a run waits for.

    What a person can do is what would be done: each operation is tried, and nothing written.

    Args:
        engine: the parts.
        run_id: the run.
        is_gone: whether the holder of a lease is known to work no more.

    Raises:
        UnknownRunError: there is no such run.
    """
    run = get_run(engine, run_id)
    if run.waits_for_worker and run.held is None:
        engine.overrides.refresh()  # its step may be paused
    engine = replace(engine, rules=_rules_for(engine, run))
    holder_gone = run.position.lease is not None and is_gone(run.position.lease.holder)
    notes, now = read_notes(engine.documents, engine.clock.now())
    offered = (*decisions(run), Operation.RECREATE) if run.is_terminal else decisions(run)
    refused = {operation: _refusal(engine, run, operation) for operation in offered}
    explanation = explain(
        run,
        engine.clock.now(),
        engine.rules,
        holder_gone=holder_gone,
        is_possible=lambda operation: refused[operation] is None,
        no_server=no_server(notes, now, is_gone) if engine.process.has_servers else None,
        asked=last_asked(notes, run.step_type),
        steps=engine.catalog.steps.keys(),
        children=read_children_of(engine, run).words if run.is_resting else "",
    )
    words = " ".join(filter(None, (explanation.words, *refused.values())))
    explanation = replace(explanation, words=words)
    if _may_wait_for_files(run) and (outage := artifacts_outage(engine)):
        explanation = replace(explanation, words=f"{explanation.words} {outage}")
    if run.awaits_slot:
        line = words_of_line(engine, run)
        explanation = replace(explanation, words=f"{explanation.words} {line}")
    left = unannounced(run.announcement, deliveries_of_run(engine, run))
    now = engine.clock.now()
    held_until = _held_until(engine, {one.channel for one in left}, now)
    owed = tuple(explain_delivery(one, now, held_until) for one in left)
    return ExplainedRun(run, explanation, tuple(left), owed)


def explain_page(
    engine: Engine,
    wanted: RunFilter,
    *,
    limit: int,
    page_token: str | None,
    is_gone: Callable[[str], bool],
) -> RunPage[ExplainedRun]:
    """Return a page of runs, as `list_runs` does, and what each of them waits for.

    All of it follows from the runs themselves; only who works on the store is read beside them. The
    operations are those that their states allow, and an owed announcement is only known
    where the filter asks for those.
    """
    page = list_runs(engine, wanted, limit=limit, page_token=page_token)
    now, is_gone = engine.clock.now(), functools.cache(is_gone)
    notes: Sequence[WorkerNote] = ()
    at = now
    if engine.process.has_servers or any(run.claimable is not None for run in page.runs):
        notes, at = read_notes(engine.documents, now)
    is_away = no_server(notes, at, is_gone) if engine.process.has_servers else None
    owes = (Trouble.ANNOUNCEMENT,) if wanted.trouble is Trouble.ANNOUNCEMENT else ()

    def explained(run: Manifest) -> ExplainedRun:
        lease = run.position.lease
        explanation = explain(
            run,
            now,
            _rules_for(engine, run),
            holder_gone=lease is not None and is_gone(lease.holder),
            no_server=is_away,
            asked=last_asked(notes, run.step_type),
        )
        troubles = (*troubles_of(run, now, engine.rules.grace), *owes)
        return ExplainedRun(run, explanation, troubles=troubles)

    return RunPage([explained(run) for run in page.runs], page.next_page_token)


def _rules_for(engine: Engine, run: Manifest) -> Rules:
    """Return the rules for a run: without a catalog, those that it was dispatched by."""
    if engine.catalog is not NO_CATALOG:
        return engine.rules
    return as_dispatched(engine.rules, run.position.dispatch)


def _held_until(engine: Engine, channels: Collection[str], now: datetime) -> dict[str, datetime]:
    """Return the channels whose breaker is open, and until when."""
    held = {}
    for channel in channels:
        found = engine.documents.get(breaker_ref(channel))
        breaker = breaker_of(channel, None if found is None else found.document)
        if breaker.open_until is not None and breaker.state(now) is BreakerState.OPEN:
            held[channel] = breaker.open_until
    return held


def _may_wait_for_files(run: Manifest) -> bool:
    """Return whether an attempt met an outage, or may be waiting for its end; or a decision may.

    An output that cannot be read cannot be approved.
    """
    at = run.position
    if run.status is RunStatus.BLOCKED:
        return True
    return run.is_moving and (at.lease is not None or at.dispatch.deferred > 0)


def _refusal(engine: Engine, run: Manifest, operation: Operation) -> str | None:
    """Return why the catalog refuses an operation; empty: for another reason; None: it is done."""
    try:
        preview(engine, run, OperationRequest(operation, actor=""))
    except BudgetUsedUpError:  # with a budget it is
        return None if operation is Operation.RESUME else ""
    except InvalidRequestError:  # with the result of a call it is
        is_given = operation is Operation.APPROVE and run.position.unconfirmed_call is not None
        return None if is_given else ""
    except CatalogMisfitError as error:
        if operation is Operation.RETRY:  # the finding of the block says it
            return ""
        step, problem = error.details["step"], error.details["problem"]
        words = f"with the catalog in force, step {step!r} could not run: {problem}."
        return f"`{operation}` is refused: {words}"
    except LeaseholdError:
        return ""
    return None
