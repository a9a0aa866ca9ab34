"""The pages: which rows of the table of calls each one asks, and what its template shows of them.

A page has the address of its row, so that a program gets the row's JSON there.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, field
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode

from leasehold.api import calls
from leasehold.api.call_row import AnyRow, CallRequest, Needs, call
from leasehold.api.children import ChildrenResponse
from leasehold.api.results import FilesResponse, PageQuery
from leasehold.api.runs import RunsQuery
from leasehold.domain.delivery import DeliveryState
from leasehold.domain.json_text import digest
from leasehold.domain.lifecycle import ALLOWED, Operation
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import TrialRecord
from leasehold.domain.override import MAX_LIMIT_S
from leasehold.domain.printable import counted
from leasehold.domain.spend import BUDGET_EXCEEDED, usd_words
from leasehold.domain.status import RunStatus
from leasehold.domain.summary import progress_of, summary_of
from leasehold.domain.trace import TraceType
from leasehold.domain.trials import trials_of
from leasehold.errors import LeaseholdError, StoreUnavailableError
from leasehold.frozen import dataclass
from leasehold.presentation.attempts import LINE_UNITS, MAX_BARS, DrawnCall, attempt_bars
from leasehold.presentation.event_line import event_reason, next_attempt
from leasehold.presentation.filter_words import filter_words
from leasehold.presentation.run_state import kept_line, state_and_reason
from leasehold.registry.dead_letters import DEAD_LETTERS
from leasehold.registry.setting_texts import Right
from leasehold.services.count_runs import Figures, read_figures
from leasehold.services.engine import Engine
from leasehold.services.paging import WHOLE_RUNS
from leasehold.services.read_runs import page_mark, run_mark

#: Between two polls: while something moves, and while something might begin to.
MOVING_POLL_S: Final = 2
IDLE_POLL_S: Final = 10
#: So many runs in trouble stand above the newest ones, of each kind.
_MAX_TROUBLED_OF_A_KIND: Final = 3
_MAX_FILES_SHOWN: Final = 50
#: So many recorded calls are drawn; each is a read of the store, whenever the run has changed.
_MAX_CALLS_DRAWN: Final = 100
#: A run that goes on for weeks has more: the latest are shown, and the command has all.
_MAX_EVENTS_SHOWN: Final = 200


#: Asks a row, with what it takes, and the `run_id` and `step` of its path; by the reader's rights.
Ask = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A look at a page.

    Args:
        ask: asks rows.
        given: the query, as the row takes it; None: it takes none, or this one cannot be used.
        texts: the query as it stands in the address.
        now: the store's time.
        rights: what the reader may do by forms.
        run_id: the run that the address names; likewise `step` and `name`.
        problem: why the query cannot be used.
    """

    ask: Ask
    given: Any
    texts: Mapping[str, Any]
    now: datetime
    rights: frozenset[Right]
    run_id: str = ""
    step: str = ""
    name: str = ""
    problem: LeaseholdError | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """What a page shows.

    Args:
        template: the file that shows it.
        title: of the page.
        values: for the template.
        poll_s: seconds after which it is looked at again; 0: never.
    """

    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict)
    poll_s: int = 0


@dataclass(frozen=True, slots=True)
class Page:
    """A page: what it shows, and how it is known with one read that nothing has changed."""

    show: Callable[[PageRequest], Shown]
    mark: Callable[[PageRequest], str] | None = None


@call("GET", "", datetime)
def _now(engine: Engine, _: CallRequest[None]) -> datetime:
    """The time of the store."""
    return engine.clock.now()


@call("GET", "", str)
def _mark_of_run(engine: Engine, request: CallRequest[None]) -> str:
    """The mark of a run, which each write changes."""
    return run_mark(engine, request.run_id)


@call("GET", "", str, takes=RunsQuery, needs=Needs.EXPLAIN)
def _mark_of_runs(engine: Engine, request: CallRequest[RunsQuery]) -> str:
    """The mark of a page of runs, which each write to one of them changes."""
    query = request.given
    limit = min(query.limit, WHOLE_RUNS - 1)  # as of `calls.overview`, whatever is asked for
    return page_mark(engine, query.to_filter(), limit, query.page_token)


@call("GET", "", Figures, needs=Needs.EXPLAIN)
def _figures(engine: Engine, _: CallRequest[None]) -> Figures:
    """The figures of the store, as `/metrics` has them."""
    return read_figures(engine)


#: These have no address: pages ask them, as they ask every row.
NOW: Final = _now


def _run_is(at: PageRequest) -> str:
    return str(at.ask(_mark_of_run, run_id=at.run_id))


def _runs_are(at: PageRequest) -> str:
    return str(at.ask(_mark_of_runs, at.given))


# -- runs ------------------------------------------------------------------------------------------

#: The states of the chips, those in trouble first: label, style, count, and the filter.
STATES: Final = (
    ("dead-lettered", "dead", "dead_lettered", {"deadLettered": "true"}),
    ("blocked", "blocked", "blocked", {"status": "BLOCKED"}),
    ("retrying", "error", "retrying", {"trouble": "retrying"}),
    ("running", "running", "in_progress", {"status": "IN_PROGRESS"}),
    ("pending", "pending", "pending", {"status": "PENDING"}),
    ("completed", "completed", "completed", {"status": "COMPLETED"}),
)
#: Operations, those that help most first; and those that the runs of a status allow.
_HELPFUL: Final = (
    Operation.APPROVE,
    Operation.RETRY,
    Operation.RESUME,
    Operation.RECREATE,
    Operation.PAUSE,
    Operation.CANCEL,
)
_BULK: Final[Mapping[str, tuple[Operation, ...]]] = {
    "BLOCKED": (Operation.APPROVE, Operation.RETRY, Operation.PAUSE, Operation.CANCEL),
    "COMPLETED": (Operation.RECREATE,),
}
#: Filters of runs that are said to go on.
TROUBLES: Final[Mapping[str, str]] = {
    "retrying": "retrying: its attempts fail",
    "silent": "silent: its worker was not heard of",
    "overdue": "overdue: its alarm has passed",
    "announcement": "owes an announcement",
}
_NOT_A_FILTER: Final = ("limit", "pageToken")


def _runs(at: PageRequest) -> Shown:
    texts = at.texts
    filters = {name: text for name, text in texts.items() if name not in _NOT_A_FILTER}
    is_first = at.problem is None and not filters and "pageToken" not in texts
    counts = at.ask(calls.counts)
    in_trouble = list(_in_trouble(at, counts.states)) if is_first else []
    given = at.given
    if is_first and "limit" not in texts:
        given = given.model_copy(update={"limit": _MAX_ROWS - len(in_trouble)})
    page = at.ask(calls.overview, given) if at.problem is None else None
    runs = page.runs if page else []
    if is_first:
        in_trouble, runs = _trouble_first(in_trouble, runs)
    moves = any(_moves(run) for run in (*in_trouble, *runs))
    return Shown(
        "runs.html",
        "Dead letters" if texts.get("deadLettered") == "true" else "Runs",
        {
            "runs": runs,
            "next": page and page.next_page_token,
            "in_trouble": in_trouble,
            "counts": counts,
            "states": STATES,
            "troubles": TROUBLES,
            "statuses": list(RunStatus),
            "reasons": DEAD_LETTERS,
            "chosen": next((one for one in DEAD_LETTERS if one.key == texts.get("reason")), None),
            "filters": filters,
            "wrong_field": at.problem.details.get("field") if at.problem else None,
            "texts": texts,
            "labels_of": dict(_texts_of(texts)),
            "operations": _bulk(at, texts) if at.problem is None else [],
            "state_and_reason": state_and_reason,
            "words": _words_of_filter(at.given) if page else [],
        },
        poll_s=MOVING_POLL_S if moves else IDLE_POLL_S,
    )


#: Runs in trouble, those first that wait for a person, by how their count is called.
_TROUBLED: Final = (
    ("blocked", RunsQuery(status=RunStatus.BLOCKED, limit=_MAX_TROUBLED_OF_A_KIND)),
    ("dead_lettered", RunsQuery(dead_lettered=True, limit=_MAX_TROUBLED_OF_A_KIND)),
    (
        "retrying",
        RunsQuery(status=RunStatus.ERROR, dead_lettered=False, limit=_MAX_TROUBLED_OF_A_KIND),
    ),
)
_MAX_ROWS: Final = WHOLE_RUNS - 1


def _in_trouble(at: PageRequest, counts: Any) -> Iterator[Any]:
    """Yield the newest runs of each kind of trouble that an index finds, and that still need help.

    A run that was given up is in its state for good; one that went on in another is no trouble. A
    kind that none is of is not looked for: SQLite has no index of runs that are to be retried, and
    would read each that was given up.
    """
    for wanted in (query for name, query in _TROUBLED if getattr(counts, name)):
        yield from (run for run in at.ask(calls.overview, wanted).runs if not run.recreated_as)


def _trouble_first(found: Sequence[Any], newest: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the runs in trouble, and the newest others; no run is in both.

    Of the newest, those come along that say that they run, but are silent or overdue.
    """
    in_trouble = {run.run_id: run for run in (*found, *(it for it in newest if it.troubles))}
    return list(in_trouble.values()), [it for it in newest if it.run_id not in in_trouble]


def _words_of_filter(given: Any) -> list[str]:
    """Return the options of a command that give the same filter."""
    return filter_words(asdict(given.to_filter()))


def _moves(run: Any) -> bool:
    """Return whether a run of a list goes on by itself."""
    is_over = run.status in (RunStatus.COMPLETED, RunStatus.BLOCKED)
    return not (is_over or run.paused or run.cancelled or run.dead_lettered)


def _bulk(at: PageRequest, texts: Mapping[str, Any]) -> list[Operation]:
    """Return what the reader may do to all runs of a filter, what helps most first."""
    possible: tuple[Operation, ...] = _HELPFUL
    if texts.get("deadLettered") == "true" or "reason" in texts:
        possible = (Operation.RECREATE,)
    elif texts.get("status") in _BULK:
        possible = _BULK[texts["status"]]
    return [one for one in possible if calls.OPERATIONS[one].needs.right in at.rights]


def _texts_of(texts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the fields of the form as they were filled in."""
    for name in ("status", "pipeline", "step", "reason", "since", "until", "idPrefix", "trouble"):
        yield name, str(texts.get(name, ""))
    labels = texts.get("label", "")
    yield "label", " ".join(labels) if isinstance(labels, list | tuple) else str(labels)


# -- a run -----------------------------------------------------------------------------------------


def _run(at: PageRequest) -> Shown:
    run = at.ask(calls.run, run_id=at.run_id).to_manifest()
    events = at.ask(calls.trace, run_id=at.run_id).events
    files, files_problem = _files(at, run)
    entry = DEAD_LETTERS[run.dead_letter_reason.value] if run.dead_letter_reason else None
    deliveries = at.ask(calls.run_deliveries, run_id=at.run_id).deliveries
    owes = any(one.state in (DeliveryState.DUE, DeliveryState.CLAIMED) for one in deliveries)
    summary = summary_of(run)
    return Shown(
        "run.html",
        f"Run {run.run_id}",
        {
            "run": run,
            "state": state_and_reason(summary),
            "summary": summary,
            "progress": progress_of(run),
            "why": at.ask(calls.why, run_id=at.run_id),
            "dead_letter": entry,
            "next_attempt": next_attempt(run),
            "bars": (bars := attempt_bars(run, events, at.now, _calls(at, run))),
            "has_more_bars": len(bars) == MAX_BARS,
            "ticks": _MAX_CALLS_DRAWN,
            "width": LINE_UNITS,
            "events": events[-_MAX_EVENTS_SHOWN:],
            "earlier_events": max(len(events) - _MAX_EVENTS_SHOWN, 0),
            "event_reason": event_reason,
            "details": _details(run),
            "deliveries": deliveries,
            "files": files,
            "files_problem": files_problem,
            "operations": _operations(at, run),
            "may_tell": Right.CHANGE in at.rights,
            "may_ask": calls.stack.needs.right in at.rights and run.position.lease is not None,
            "stack": next(
                (it for it in reversed(events) if it.type is TraceType.STACK_TAKEN), None
            ),
            "trials": _trials(run),
            "children": _children(at, run),
            "spared": sum(one.calls.spared for one in run.steps.values() if one.calls),
        },
        poll_s=_poll_s(run, owes=owes),
    )


def _poll_s(run: Manifest, *, owes: bool) -> int:
    """Return after how many seconds the page of a run asks again; 0: never."""
    if run.is_moving:
        return MOVING_POLL_S
    return IDLE_POLL_S if owes or not run.is_terminal else 0


def _children(at: PageRequest, run: Manifest) -> ChildrenResponse | None:
    """Return the small runs that it waits for; None: it waits for none."""
    return at.ask(calls.children, run_id=at.run_id) if run.is_resting else None


def _files(at: PageRequest, run: Manifest) -> tuple[FilesResponse | None, str]:
    """Return its first files, and why they cannot be listed: the run itself is in another store."""
    if not run.has_files:
        return None, ""
    try:
        return at.ask(calls.files, PageQuery(limit=_MAX_FILES_SHOWN), run_id=at.run_id), ""
    except StoreUnavailableError as error:
        return None, error.message


def _calls(at: PageRequest, run: Manifest) -> Sequence[DrawnCall]:
    """Return the first recorded calls of the step that it is at, as many as bars can show."""
    if not run.position.recorded_calls:
        return ()
    found = at.ask(calls.once, PageQuery(limit=_MAX_CALLS_DRAWN), run_id=at.run_id)
    return [DrawnCall(one.step, one.trial, one.key, one.at, one.spend) for one in found.calls]


def _trials(run: Manifest) -> dict[str, list[TrialRecord]]:
    """Return the trials of each step that has more than one; of many, the one that counts leads."""
    trials = {}
    for step in run.looped_steps:
        record = run.steps[step]
        made = trials_of(record)
        if len(made) > 1:
            others = [one for one in made if one.trial != record.trial]
            trials[step] = [one for one in made if one.trial == record.trial] + others
    return trials


def _operations(at: PageRequest, run: Manifest) -> list[Operation]:
    """Return what the reader may do to the run as it stands, what helps most first."""
    possible = [
        one
        for one, (_, is_allowed) in ALLOWED.items()
        if is_allowed(run) and calls.OPERATIONS[one].needs.right in at.rights
    ]
    if run.block is not None and run.block.code == BUDGET_EXCEEDED:  # a retry needs more as well
        possible = [one for one in possible if one is not Operation.RETRY]
    return sorted(possible, key=_HELPFUL.index)


def _details(run: Manifest) -> Any:
    """Return the details of its error as a value; a cut text is none any more."""
    if run.error is None or run.error.details is None:
        return None
    try:
        return json.loads(run.error.details)
    except (ValueError, RecursionError):
        return run.error.details


# -- what forms lead to ----------------------------------------------------------------------------


def _batch(at: PageRequest, given: Any, answer: Any, form: Mapping[str, str]) -> Shown | None:
    """Show what a batch would come to; one that was done leads to its runs: see `batch_note`.

    A run that begins after the count was not counted, and is not acted on.
    """
    if not given.dry_run:
        return None
    asked = form.get("filter", "")
    bound = "" if given.filter.until else f"&{urlencode({'until': at.now.isoformat()})}"
    values = {
        "given": given,
        "result": answer,
        "filter": asked,
        "form": {**form, "filter": f"{asked}{bound}", "shown": asked},
        "is_cut": answer.matched - len(answer.refused) >= given.limit,
        "kept_line": kept_line,
        "words": _words_of_filter(given.filter),
    }
    title = f"{given.action.capitalize()} many runs"
    return Shown("batch.html", title, values)


#: What a batch came to, for the page of its runs: the mark of their filter, numbers and codes.
_BATCH_NOTE: Final = re.compile(r"(\w{8})\.([a-z]+)\.(\d+)\.(\d+)\.([01])((?:\.[a-z_]+-\d+)*)")
_MAX_CODES_SHOWN: Final = 5


def batch_note(query: str, given: Any, answer: Any) -> str:
    """Return what a batch came to, as short as a cookie; the page of its runs has the words.

    A page that answered the form itself would do the batch again when it is loaded anew.
    """
    codes = Counter(one.code for one in answer.refused).most_common(_MAX_CODES_SHOWN)
    is_cut = answer.matched - len(answer.refused) >= given.limit
    refused = [f"{code}-{count}" for code, count in codes]
    parts = (digest(query)[:8], given.action, answer.matched, answer.changed, int(is_cut), *refused)
    return ".".join(str(part) for part in parts)


def batch_words(note: str, query: str) -> str:
    """Return what a batch came to in words; empty: it was not of these runs."""
    found = _BATCH_NOTE.fullmatch(note)
    if found is None or found[1] != digest(query)[:8] or found[2] not in list(Operation):
        return ""
    refused = [one.rpartition("-") for one in found[6].split(".")[1:]]
    why = ", ".join(f"{count} {code}" for code, _, count in refused)
    looked_at = counted(int(found[3]), "run")
    words = f"{found[2].capitalize()}: {looked_at} looked at, {found[4]} changed"
    more = " It came to its limit: do it again for the rest." if found[5] == "1" else ""
    return f"{words}, refused: {why or 'none'}.{more}"


def _repair_words(found: int, left: int) -> str:
    words = f"Every run was looked at: {counted(found, 'run was', 'runs were')} not in order"
    more = f" {left:,} could not be repaired: look at every run to see why." if left else ""
    return f"{words}, {found - left:,} repaired.{more}"


def _backfill_words(runs: int, _: int) -> str:
    return f"The span has {counted(runs, 'time')}, each with its run now."


#: What came of a form in two numbers, which a cookie tells the page that it leads to; their words.
COUNTED: Final[Mapping[str, tuple[Callable[[Any], tuple[int, int]], Callable[[int, int], str]]]] = {
    calls.repair.name: (lambda answer: (len(answer.found), answer.left), _repair_words),
    calls.backfill_schedule.name: (lambda answer: (len(answer.run_ids), 0), _backfill_words),
}


# -- the rest --------------------------------------------------------------------------------------


def _registry(at: PageRequest) -> Shown:
    report = at.ask(calls.registry)
    values = {
        "report": report,
        "may_change": Right.CHANGE in at.rights,
        "pauses": at.ask(calls.pauses).pauses,
    }
    return Shown("registry.html", "Limits in force", values, IDLE_POLL_S)


def _deliveries(at: PageRequest) -> Shown:
    page = at.ask(calls.deliveries, at.given) if at.problem is None else None
    return Shown(
        "deliveries.html",
        "Announcements",
        {
            "deliveries": page.deliveries if page else [],
            "next": page and page.next_page_token,
            "texts": at.texts,
            "delivery_states": list(DeliveryState),
            "may_tell": Right.CHANGE in at.rights,
        },
        IDLE_POLL_S,
    )


def _audit(at: PageRequest) -> Shown:
    """Show the figures of the store; every run is read only where the reader asks for that."""
    may_change = Right.CHANGE in at.rights
    audit = at.ask(calls.audit) if "look" in at.texts else None
    figures = at.ask(_figures) if audit is None else None
    values = {"audit": audit, "figures": figures, "may_change": may_change}
    return Shown("audit.html", "Audit", values)


def _workers(at: PageRequest) -> Shown:
    return Shown("workers.html", "Workers", {"workers": at.ask(calls.workers).workers}, IDLE_POLL_S)


def _schedules(at: PageRequest) -> Shown:
    values = {
        "schedules": at.ask(calls.schedules).schedules,
        "may_change": Right.CHANGE in at.rights,
    }
    return Shown("schedules.html", "Schedules", values, IDLE_POLL_S)


def _budgets(at: PageRequest) -> Shown:
    return Shown("budgets.html", "Budgets", {"budgets": at.ask(calls.budgets).budgets})


def _limit(at: PageRequest) -> Shown:
    """Show how long the attempts of a step took, and what limits would have done to them."""
    from leasehold.api.limit_effects import limit_effects  # noqa: PLC0415 - seldom asked for
    from leasehold.budgets.phases import Phase  # noqa: PLC0415 - as above

    report = at.ask(calls.limit, step=at.step)
    seconds = _seconds(at.texts.get("whatIf", ""))
    effects = limit_effects(report, [] if seconds is None else [timedelta(seconds=seconds)])
    return Shown(
        "limit.html",
        f"Limit of step {at.step}",
        {
            "step": at.step,
            "report": report,
            "effects": effects,
            "phases": list(Phase),
            "usd_words": usd_words,
            "most": {
                phase: max(
                    (one.complete[phase] + one.censored[phase] for one in effects.buckets),
                    default=0,
                )
                for phase in Phase
            },
            "what_if": at.texts.get("whatIf", ""),
            "is_refused": bool(at.texts.get("whatIf")) and seconds is None,
        },
    )


def _seconds(text: Any) -> float | None:
    """Return the limit to try; None: there is none, or it is not one that a step may have."""
    try:
        seconds = float(text)
    except (TypeError, ValueError):
        return None
    return seconds if 0 < seconds <= MAX_LIMIT_S else None


#: The pages by their rows.
PAGES: Final[Mapping[AnyRow, Page]] = {
    calls.overview: Page(_runs, _runs_are),
    calls.runs: Page(_runs, _runs_are),
    calls.run: Page(_run, _run_is),
    calls.deliveries: Page(_deliveries),
    calls.registry: Page(_registry),
    calls.audit: Page(_audit),
    calls.workers: Page(_workers),
    calls.schedules: Page(_schedules),
    calls.budgets: Page(_budgets),
    calls.limit: Page(_limit),
}
#: Rows that a page shows a part of: links of announcements lead there.
PLACES: Final[Mapping[AnyRow, str]] = {
    calls.why: "why",
    calls.trace: "part-trace",
    calls.run_deliveries: "part-told",
}
#: What a form is answered with, where it is not answered with the run.
RESULTS: Final[Mapping[AnyRow, Callable[..., Shown | None]]] = {
    calls.batch: _batch,
}
#: Where a bad query is said on the page itself, above an empty list.
FILTERED: Final = frozenset({calls.overview, calls.runs, calls.deliveries})
