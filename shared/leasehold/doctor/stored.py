"""What the store says: overrides that do not hold, and a clock that is not the store's."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import combinations
from typing import Final, cast

from leasehold.bootstrap import Hooks, Purpose, boot
from leasehold.bootstrap.connections import StoreReader, folder_problem, read_store, store_file
from leasehold.doctor.data_folder import artifacts_folder, exists
from leasehold.doctor.finding import Finding, Kind
from leasehold.doctor.setup import Setup
from leasehold.domain.budget import MAX_BUDGETS_READ, budget_of
from leasehold.domain.override import MAX_OVERRIDES_READ, StoredOverride, stored_override
from leasehold.domain.printable import counted, printable
from leasehold.domain.step_pause import StepPause, is_pause, resume_command, stored_pause
from leasehold.domain.timestamps import stamp, time_of
from leasehold.domain.worker_note import (
    differ_for_long,
    known_names,
    living,
    no_server,
    share_nothing,
)
from leasehold.errors import StoreUnavailableError, StoreVersionError
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Documents, Query, Range
from leasehold.registry.effective_settings import effective_settings
from leasehold.registry.setting_texts import IN_PROCESS
from leasehold.services.adopt_runs import any_waits
from leasehold.services.audit import audit
from leasehold.services.catalog_fit import LIMIT_CHANGED, LiveRunCheck, RunMisfit, live_runs
from leasehold.services.engine import Engine
from leasehold.services.worker_notes import read_notes
from leasehold.worker.stopping.holder import host_name, is_gone

_QUERY_TIMEOUT_S: Final = 5.0
_OVERRIDES: Final = Query("overrides", limit=MAX_OVERRIDES_READ, within=_QUERY_TIMEOUT_S)
_SCHEDULES: Final = Query("schedules", limit=1000, within=_QUERY_TIMEOUT_S)
_NEWEST_RUN: Final = Query(
    "runs", order_by="createdAt", descending=True, limit=1, within=_QUERY_TIMEOUT_S
)
_BUDGETS: Final = Query("budgets", limit=MAX_BUDGETS_READ, within=_QUERY_TIMEOUT_S)
_ENDS_OF_STEP: Final = Query(
    "ledger",
    order_by="endedAt",
    descending=True,
    limit=1,
    within=_QUERY_TIMEOUT_S,
    fields=("endedAt",),
)
#: Limits are derived each hour; so long without it is no chance.
_UNDERIVED: Final = timedelta(hours=3)
#: A clock that is off by less is in order.
_TOLERANCE: Final = timedelta(seconds=10)


def stored_state(setup: Setup, clock: Clock) -> Iterator[Finding]:
    """Yield the problems of the stored documents."""
    file = store_file(setup.store)
    if file is not None and not exists(setup.folder / file):
        return
    try:
        with closing(read_store(setup.store, clock)) as store:
            yield from _clock(store, clock)
            yield from _overrides(setup, store)
            yield from _schedules(setup, store)
            yield from _derivations(setup, store, clock)
            yield from _who_works(setup, store, clock)
            yield from _artifacts(setup, store)
    except (StoreUnavailableError, StoreVersionError) as error:
        yield from _unreadable(setup, error)


def _unreadable(
    setup: Setup, error: StoreUnavailableError | StoreVersionError
) -> Iterator[Finding]:
    if store_file(setup.store) is None:  # a file's own look says what is wrong with it
        yield Finding(error.code, error.message)


def _artifacts(setup: Setup, store: StoreReader) -> Iterator[Finding]:
    folder = artifacts_folder(setup)
    if folder is not None and (problem := folder_problem(folder, store)):
        message = f"{folder} is not the folder of the artifacts as the store knows it: {problem}."
        yield Finding("artifacts_away", message)


def _clock(store: StoreReader, clock: Clock) -> Iterator[Finding]:
    asked = clock.now()
    for newest in store.query(_NEWEST_RUN):
        off = max(newest.read_at - clock.now(), asked - newest.read_at)
        created = time_of(newest.document.get("createdAt"))
        if off > _TOLERANCE:
            message = (
                f"The clock of this machine is {round(off.total_seconds())} s off the store's: "
                "leases and alarms of what runs here are early or late by that."
            )
            yield Finding("clock", message, "timedatectl set-ntp true")
        elif created is not None and created - asked > _TOLERANCE:
            ahead = round((created - asked).total_seconds())
            message = (
                f"The newest run was created at {stamp(created)}, {ahead} s from now: the "
                "clock of a machine of this store is wrong, and alarms are late by that."
            )
            yield Finding("clock", message, "timedatectl set-ntp true")


def _overrides(setup: Setup, store: StoreReader) -> Iterator[Finding]:
    for found in store.query(_OVERRIDES):
        if is_pause(found.ref.id):
            yield from _pause(setup, stored_pause(found.ref.id, found.document))
            continue
        stored = stored_override(found.ref.id, found.document, found.read_at)
        name = printable(stored.step_type)[:60]
        repair = f"leasehold override {shlex.quote(name)} --clear"
        if stored.refused:
            yield Finding("override_refused", stored.refused, repair)
        elif stored.is_over:
            message = f"overrides/{name} is over: it limits nothing, and looks as if it did."
            yield Finding("override_over", message, repair, kind=Kind.WARNING)
        elif len(setup.catalog.steps):
            yield from _against_entry(setup, stored, repair)


def _schedules(setup: Setup, store: StoreReader) -> Iterator[Finding]:
    for found in store.query(_SCHEDULES) if len(setup.catalog.schedules) else ():
        name, problem = found.ref.id, found.document.get("problem")
        if problem and name in setup.catalog.schedules:
            since = time_of(found.document.get("starting"))
            message = (
                f"The run of schedule {name} that is due{f' since {stamp(since)}' if since else ''}"
                " could not be started, and each sweep tries again: "
                f"{printable(str(problem)).rstrip('.')}."
            )
            yield Finding("schedule_problem", message, f"leasehold schedules {shlex.quote(name)}")


def _pause(setup: Setup, pause: StepPause) -> Iterator[Finding]:
    """Yield that a step is paused: nothing is wrong, and a person may have forgotten it."""
    if pause.resumed_at is not None:
        return
    step = pause.step_type
    repair = resume_command(step)
    unknown = ""
    if step is not None and len(setup.catalog.steps) and step not in setup.catalog.steps:
        unknown = " This catalog has no such step."
    words = f"{pause.words[:1].upper()}{pause.words[1:]}".rstrip(".")
    yield Finding("step_paused", f"{words}.{unknown}", repair, kind=Kind.WARNING)


def _against_entry(setup: Setup, stored: StoredOverride, repair: str) -> Iterator[Finding]:
    entry = setup.catalog.steps.get(stored.step_type)
    if entry is None:
        message = f"overrides/{stored.step_type} is of no step of this catalog."
        yield Finding("override_refused", message, repair)
        return
    settings = effective_settings(
        entry,
        setup.environ,
        stored,
        max_retries=0,
        on_platform=setup.settings["LEASEHOLD_TASKS"] != IN_PROCESS,
    )
    of_it = f"overrides/{stored.step_type} "
    for sentence in settings.refused:
        if of_it in sentence:
            yield Finding("override_refused", sentence, repair)


def _derivations(setup: Setup, store: StoreReader, clock: Clock) -> Iterator[Finding]:
    """Yield the steps whose limits are to be derived, and are not, though runs of them end."""
    learning = [step.step_type for step in setup.learning_steps]
    if not learning:
        return
    budgets = {found.ref.id: budget_of(found.document) for found in store.query(_BUDGETS)}
    for name in learning:
        budget = budgets.get(name)
        since = Range("endedAt", below=clock.now() - _UNDERIVED)
        words = "no limit was ever derived for it"
        if budget is not None:
            since = Range("endedAt", at_least=budget.derived_at + _UNDERIVED)
            words = f"its limit was last derived at {stamp(budget.derived_at)}"
        if ends_of := list(
            store.query(replace(_ENDS_OF_STEP, contains=("stepTypes", name), range=since))
        ):
            ended_at = time_of(ends_of[0].document.get("endedAt"))
            message = (
                f"A run of step {name} ended at {'' if ended_at is None else stamp(ended_at)}, and "
                f"{words}: the log of `derive_budgets`, or of `leasehold serve`, says why, if it "
                "runs at all."
            )
            yield Finding(
                "limits_not_derived", message, f"leasehold explain-limit {name}", kind=Kind.WARNING
            )


def _who_works(setup: Setup, store: StoreReader, clock: Clock) -> Iterator[Finding]:
    """Yield that runs wait for a server, and that those who work here are of several projects."""
    notes, now = read_notes(store, clock.now())
    here = partial(is_gone, host=host_name())
    has_servers = setup.settings["LEASEHOLD_TASKS"] == "in-process"
    words = no_server(notes, now, here) if has_servers else None
    if words is not None and any_waits(store):
        yield Finding("no_server", f"Live runs wait, and {words}.")
    living_here = [note for note in living(notes, now, here) if not note.is_remote]
    own = known_names(
        (it.step_type for it in setup.steps), (it.name for it in setup.catalog.pipelines)
    )
    for note in living_here:
        if share_nothing(own, note.knows):
            message = (
                f"{note.process} works on this store, and has no step or pipeline in common with "
                "the catalog that is set here: two projects need a LEASEHOLD_STORE each."
            )
            yield Finding("other_project", message, "leasehold workers")
    for one, other in combinations(living_here, 2):
        if differ_for_long(one, other, now):
            message = (
                f"{one.process} and {other.process} work on this store for longer than a deploy "
                "takes, and their catalogs differ: one of them was left behind, or is another "
                "project's."
            )
            yield Finding("catalogs_differ", message, "leasehold workers", kind=Kind.WARNING)


# Live runs that would not go on with the catalog that is here, and runs that are not in order.


#: Of the runs that have no alarm, so many are looked at: `leasehold audit` looks at all.
_NEWEST: Final = 500


def live_runs_in_trouble(setup: Setup, clock: Clock) -> Iterator[Finding]:
    """Yield a finding for each step at which live runs would block, and what an audit finds."""
    file = store_file(setup.store)
    if file is not None and not exists(setup.folder / file):
        return
    try:
        with _opened(setup, clock) as engine:
            yield from _misfits(engine)
            yield from _disorder(engine)
    except (StoreUnavailableError, StoreVersionError) as error:
        yield from _unreadable(setup, error)


def _misfits(engine: Engine) -> Iterator[Finding]:
    found: dict[tuple[str, str], list[RunMisfit]] = defaultdict(list)
    look = LiveRunCheck(engine)
    for run in live_runs(engine):
        for one in look.misfits(run):
            if one.code != LIMIT_CHANGED:
                found[one.step, one.code].append(one)
    for (step, code), misfits in found.items():
        runs = counted(len(misfits), "live run")
        first = misfits[0]
        message = f"{runs} would block at step {step} ({code}), such as {first.run_id}: "
        detail = f"{first.detail.removesuffix('.')}."
        yield Finding("live_run_misfit", message + detail, "leasehold check --live-runs")


def _disorder(engine: Engine) -> Iterator[Finding]:
    """Yield a finding for each way in which runs are not in order, in the words of the audit."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for one in audit(engine, newest=_NEWEST):
        for breach in one.breaches:
            found[breach.code].append((one.run_id, breach.finding))
    for code, runs in found.items():
        count = counted(len(runs), "run is", "runs are")
        run_id, finding = runs[0]
        message = f"{count} not in order ({code}), such as {run_id}: {finding}"
        yield Finding("run_not_in_order", message, "leasehold audit")


@contextmanager
def _opened(setup: Setup, clock: Clock) -> Iterator[Engine]:
    """Open the store, which is read by what leaves its file as it is."""
    store = cast(Documents, read_store(setup.store, clock))  # all that is asked of it are queries
    hooks = Hooks(warn=lambda _: None)
    bundle = boot(
        setup.environ, catalog=setup.catalog, documents=store, purpose=Purpose.READ, hooks=hooks
    )
    with closing(bundle):
        yield bundle.engine
