"""Purging ended runs with all there is of them, on either store; and cut off at any point."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.folder import FolderArtifacts
from leasehold.adapters.in_process_events import UndeliveredEvents
from leasehold.domain.artifact_name import files_folder
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import run_ref
from leasehold.domain.stored import Ref, Write, replace
from leasehold.errors import (
    InvalidRequestError,
    PurgeCutOffError,
    RunBeingPurgedError,
    StoreUnavailableError,
    UnknownRunError,
)
from leasehold.ports.documents import Query, Snapshot
from leasehold.services.audit import audit
from leasehold.services.engine import Engine, find_run
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.paging import place_behind
from leasehold.services.purge import (
    LATER_LOOK_S,
    NEXT_LOOK_S,
    PurgeResult,
    delete_deliveries,
    delete_run,
    forget_old_runs,
    purge,
)
from leasehold.services.read_runs import RunFilter, list_runs, read_timeline
from leasehold.services.start_run import StartRequest, start_run
from leasehold.services.sweep import sweep
from tests.worlds.wrapped import Wrapped

pytestmark = pytest.mark.one_store

NOW = SystemClock().now()
SOON = NOW + timedelta(days=1)
LONG_AGO = NOW - timedelta(days=40)
LARGE = {"n": 1, "text": "x" * 40_000}


def start(engine: Engine, label: str, key: str | None = None) -> str:
    """Start a run whose input is an artifact, and which has a file and an event."""
    name, _, value = label.partition(":")
    run = start_run(engine, StartRequest("three", LARGE, key, labels={name: value})).manifest
    engine.artifacts.put(f"{files_folder(run)}/report.md", b"x")
    return run.run_id


def ended(engine: Engine, label: str, key: str | None = None) -> str:
    run_id = start(engine, label, key)
    operate(engine, run_id, OperationRequest(Operation.CANCEL, "ann"))
    return run_id


def recreated(engine: Engine, run_id: str) -> str:
    change = operate(engine, run_id, OperationRequest(Operation.RECREATE, "ann"))
    assert change.created is not None
    return change.created.run_id


def write(engine: Engine, run_id: str, **fields: Any) -> None:
    engine.documents.transact(
        run_ref(run_id), lambda found, _: Write(None, {**(found or {}), **fields})
    )


def leftovers(engine: Engine, run_id: str) -> list[Any]:
    """Return all there is of a run."""
    return [
        *filter(None, [engine.documents.get(run_ref(run_id))]),
        *engine.documents.query(Query(f"runs/{run_id}/trace")),
        *deliveries(engine, run_id),
        *engine.artifacts.list(f"runs/{run_id}"),
    ]


def deliveries(engine: Engine, run_id: str) -> Sequence[Snapshot]:
    query = Query("deliveries", order_by="createdAt", equal={"runId": run_id}, descending=True)
    return engine.documents.query(query)


def of(label: str, **others: Any) -> RunFilter:
    return RunFilter(label=label, **others)


@pytest.mark.each_store
def test_an_old_run_goes_with_all_there_is_of_it(engine: Engine, label: str) -> None:
    old, live = ended(engine, label), start(engine, label)

    dry = purge(engine, of(label), ended_before=SOON, dry_run=True)
    before = len(leftovers(engine, old))
    done = purge(engine, of(label), ended_before=SOON)
    again = purge(engine, of(label), ended_before=SOON)

    assert (dry, before) == (PurgeResult(1, 0, []), 4)
    assert (done, again) == (PurgeResult(1, 1, []), PurgeResult(0, 0, []))
    assert leftovers(engine, old) == []
    assert len(leftovers(engine, live)) == 3


@pytest.mark.each_store
def test_only_runs_that_ended_before_the_time_go(engine: Engine, label: str) -> None:
    """Neither one that ended later, nor one that lives, waits for a person or owes something."""
    kinds: dict[str, dict[str, Any]] = {
        "cancelled": {"updatedAt": LONG_AGO},
        "given up": {"cancelled": False, "deadLettered": True, "deadLetteredAt": LONG_AGO},
        "completed": {"cancelled": False, "status": "COMPLETED", "completedAt": LONG_AGO},
        "cancelled today": {},
        "completed today": {"status": "COMPLETED", "completedAt": NOW, "updatedAt": LONG_AGO},
        "given up today": {"deadLettered": True, "deadLetteredAt": NOW, "updatedAt": LONG_AGO},
        "live": {"cancelled": False, "updatedAt": LONG_AGO},
        "paused": {"cancelled": False, "paused": True, "updatedAt": LONG_AGO},
        "blocked": {"cancelled": False, "status": "BLOCKED", "updatedAt": LONG_AGO},
    }
    runs = {}
    for kind, fields in kinds.items():
        runs[kind] = ended(engine, label)
        write(engine, runs[kind], createdAt=LONG_AGO - timedelta(days=1), **fields)

    done = purge(engine, of(label), ended_before=NOW - timedelta(days=30))

    gone = [kind for kind, run_id in runs.items() if not leftovers(engine, run_id)]
    assert gone == ["cancelled", "given up", "completed"]
    assert (done.matched, done.purged, done.kept) == (3, 3, [])


def test_a_filter_bounds_what_goes(engine: Engine, label: str) -> None:
    first, second = ended(engine, label), ended(engine, label)
    write(engine, first, currentStep="add_later")

    assert purge(engine, of(label, pipeline="large"), ended_before=SOON).matched == 0
    assert purge(engine, of(label, cancelled=False), ended_before=SOON).matched == 0
    assert purge(engine, of(label, step="add_later"), ended_before=SOON).purged == 1

    assert leftovers(engine, first) == []
    assert len(leftovers(engine, second)) == 4


def test_a_time_at_which_nothing_can_have_ended_is_refused(engine: Engine) -> None:
    with pytest.raises(InvalidRequestError, match="since is '"):
        purge(engine, RunFilter(since=SOON), ended_before=NOW)


# -- announcements ---------------------------------------------------------------------------------


@pytest.fixture
def announcing(engine: Engine) -> Engine:
    """The engine of a catalog with two channels, which sends nothing."""
    told = replace(engine.rules, channels_for=lambda _pipeline, _event: ("log", "mail"))
    return replace(engine, rules=told, events=UndeliveredEvents())


def write_deliveries(engine: Engine, run_id: str, **fields: Any) -> None:
    for found in deliveries(engine, run_id):
        engine.documents.transact(
            found.ref, lambda was, _: Write(None, {**(was or {}), **fields}), if_version=found
        )


@pytest.mark.each_store
def test_deliveries_go_with_their_run_and_the_key_begins_one_that_is_told_anew(
    announcing: Engine, label: str, unique: str
) -> None:
    old = ended(announcing, label, key=unique)
    write_deliveries(announcing, old, state="announced")
    first = {str(found.document["mark"]) for found in deliveries(announcing, old)}

    done = purge(announcing, of(label), ended_before=SOON)
    left = leftovers(announcing, old)
    again = ended(announcing, label, key=unique)

    assert (done, left) == (PurgeResult(1, 1, []), [])
    assert again == old
    assert [found.document["state"] for found in deliveries(announcing, again)] == ["due"] * 2
    assert first.isdisjoint(str(found.document["mark"]) for found in deliveries(announcing, again))


@pytest.mark.parametrize("state", ["due", "claimed"])
def test_a_run_stays_until_it_was_announced_but_for_a_day_at_most(
    announcing: Engine, label: str, state: str
) -> None:
    """Where nothing sends announcements, it would stay forever."""
    old = ended(announcing, label)
    write_deliveries(announcing, old, state=state)

    dry = purge(announcing, of(label), ended_before=SOON, dry_run=True)
    kept = purge(announcing, of(label), ended_before=SOON)
    write_deliveries(announcing, old, createdAt=NOW - timedelta(hours=24, minutes=1))
    done = purge(announcing, of(label), ended_before=SOON)

    assert dry == kept == PurgeResult(0, 0, [])
    assert done == PurgeResult(1, 1, [])
    assert leftovers(announcing, old) == []


def test_a_run_stays_as_long_as_announcements_are_tried(announcing: Engine, label: str) -> None:
    two_days = replace(announcing.rules.delivery, give_up_after=timedelta(days=2))
    patient = replace(announcing, rules=replace(announcing.rules, delivery=two_days))
    old = ended(patient, label)
    write_deliveries(patient, old, createdAt=NOW - timedelta(days=2) + timedelta(hours=1))

    assert purge(patient, of(label), ended_before=SOON) == PurgeResult(0, 0, [])


def test_a_run_stays_until_its_channels_are_known(announcing: Engine, label: str) -> None:
    """It was cancelled by a command without a catalog; a day later none is awaited."""
    without = replace(announcing.rules, channels_for=lambda _pipeline, _event: None)
    old = ended(replace(announcing, rules=without), label)

    kept = purge(announcing, of(label), ended_before=SOON)
    told = find_run(announcing, old).snapshot.document["announcement"]
    write(announcing, old, announcement={**told, "at": NOW - timedelta(hours=24, minutes=1)})
    done = purge(announcing, of(label), ended_before=SOON)

    assert (kept, done) == (PurgeResult(0, 0, []), PurgeResult(1, 1, []))


def test_a_purge_that_comes_late_leaves_what_the_next_run_of_a_key_owes(
    announcing: Engine, label: str, unique: str
) -> None:
    old = ended(announcing, label, key=unique)
    marked = replace(find_run(announcing, old).manifest, purged_at=announcing.clock.now())
    ended_again = deliveries(announcing, old)
    write_deliveries(announcing, old, createdAt=marked.purged_at)

    delete_deliveries(announcing, marked)

    assert len(ended_again) == len(deliveries(announcing, old)) == 2


def test_a_purge_that_is_cut_off_among_deliveries_is_finished(
    announcing: Engine, label: str
) -> None:
    """Behind the mark, and the first of two."""
    old = ended(announcing, label)
    write_deliveries(announcing, old, state="given_up")
    cut_off(announcing, old, after=2)
    left = len(deliveries(announcing, old))

    assert left == 1
    assert purge(announcing, of(label), ended_before=SOON).purged == 1
    assert leftovers(announcing, old) == []


# -- lineage ---------------------------------------------------------------------------------------


def test_a_run_stays_while_one_that_was_recreated_from_it_stays(engine: Engine, label: str) -> None:
    """The new run has the input of the old one: the same artifact, by its name."""
    old = ended(engine, label)
    child = recreated(engine, old)
    operate(engine, child, OperationRequest(Operation.CANCEL, "ann"))
    grandchild = recreated(engine, child)

    dry = purge(engine, of(label), ended_before=SOON, dry_run=True)
    done = purge(engine, of(label), ended_before=SOON)
    given = find_run(engine, grandchild).manifest.given

    assert done == dry == PurgeResult(2, 0, [(child, "needed"), (old, "needed")])
    assert given.ref is not None
    assert given.ref.startswith(f"runs/{old}/")
    assert engine.artifacts.exists(given.ref)


@pytest.mark.each_store
def test_a_whole_lineage_goes_at_once(engine: Engine, label: str) -> None:
    family = [ended(engine, label)]
    for _ in range(2):
        family.append(recreated(engine, family[-1]))
        operate(engine, family[-1], OperationRequest(Operation.CANCEL, "ann"))

    dry = purge(engine, of(label), ended_before=SOON, dry_run=True)
    done = purge(engine, of(label), ended_before=SOON)

    assert (dry, done) == (PurgeResult(3, 0, []), PurgeResult(3, 3, []))
    assert [leftovers(engine, run_id) for run_id in family] == [[], [], []]


class Meddling(Wrapped[Any]):
    """Artifacts that do something before the first deletion."""

    def __init__(self, within: Any, meddle: Any) -> None:
        super().__init__(within)
        self._meddle = [meddle]

    def delete(self, name: str) -> None:
        while self._meddle:
            self._meddle.pop()()
        self.inner.delete(name)


@pytest.mark.each_store
def test_a_run_that_is_recreated_between_the_look_and_the_mark_stays(
    engine: Engine, label: str
) -> None:
    old = ended(engine, label)
    seen = find_run(engine, old)
    child = recreated(engine, old)

    stale: Any = Listing(engine.documents, seen.snapshot)
    done = purge(replace(engine, documents=stale), of(label), ended_before=SOON)

    assert done == PurgeResult(1, 0, [(old, "version_conflict")])
    assert find_run(engine, child).manifest.recreated_from == old
    assert len(leftovers(engine, old)) == 5


@pytest.mark.each_store
def test_a_marked_run_is_hidden_from_all_readers(engine: Engine, label: str, unique: str) -> None:
    """Not to be shown, listed, recreated, or begun again by its key before it is gone."""
    old = ended(engine, label, key=unique)
    refused: list[str] = []

    def look() -> None:
        for call in (
            lambda: find_run(engine, old),
            lambda: read_timeline(engine, old),
            lambda: recreated(engine, old),
            lambda: start(engine, label, key=unique),
        ):
            with pytest.raises((UnknownRunError, RunBeingPurgedError)) as error:
                call()
            refused.append(error.value.code)

    artifacts: Any = Meddling(engine.artifacts, look)
    listed = []
    artifacts._meddle.insert(0, lambda: listed.append(list_runs(engine, of(label)).runs))  # noqa: SLF001 - ours
    purge(replace(engine, artifacts=artifacts), of(label), ended_before=SOON)
    again = start(engine, label, key=unique)

    assert refused == [*["unknown_run"] * 3, "run_being_purged"]
    assert listed == [[]]
    assert again == old
    assert not find_run(engine, again).manifest.is_terminal


class Listing(Wrapped[Any]):
    """The store, which lists runs as they were seen before."""

    def __init__(self, within: Any, *seen: Snapshot) -> None:
        super().__init__(within)
        self._seen = seen

    def query(self, query: Query) -> Any:
        return list(self._seen) if query.collection == "runs" else self.inner.query(query)


def cut_off(engine: Engine, run_id: str, after: int = 1) -> Snapshot:
    """Cut its purge off behind the mark, and return the run as it is then."""
    with pytest.raises(CutOffError):
        delete_run(killed(engine, after, CutOffError()), find_run(engine, run_id), SOON)
    marked = engine.documents.get(run_ref(run_id))
    assert marked is not None
    return marked


@pytest.mark.each_store
def test_a_purge_that_comes_late_deletes_nothing_of_the_next_run_of_a_key(
    engine: Engine, label: str, unique: str
) -> None:
    """Two find what a third left; one is faster, and the key begins the next run before."""
    marked = cut_off(engine, ended(engine, label, key=unique))
    assert purge(engine, of(label), ended_before=SOON).purged == 1
    again = start(engine, label, key=unique)
    before = len(leftovers(engine, again))

    late: Any = Listing(engine.documents, marked)
    done = purge(replace(engine, documents=late), of(label), ended_before=SOON)

    assert done == PurgeResult(1, 0, [(again, "version_conflict")])
    assert (before, len(leftovers(engine, again))) == (3, 3)


def test_a_marked_run_that_an_older_version_recreated_keeps_its_values(
    engine: Engine, label: str
) -> None:
    """It knows of no marks, and the new run may use what the cut-off purge has not deleted yet."""
    old = ended(engine, label)
    cut_off(engine, old)
    write(engine, old, purgedAt=None)
    child = recreated(engine, old)
    write(engine, old, purgedAt=NOW)
    before = len(leftovers(engine, old))

    dry = purge(engine, of(label), ended_before=SOON, dry_run=True)
    done = purge(engine, of(label), ended_before=SOON)

    assert dry == done == PurgeResult(1, 0, [(old, "needed")])
    assert len(leftovers(engine, old)) == before
    operate(engine, child, OperationRequest(Operation.CANCEL, "ann"))
    assert purge(engine, of(label), ended_before=SOON).purged == 2
    assert leftovers(engine, old) == []


@pytest.mark.each_store
def test_a_key_that_is_given_again_while_its_run_goes_begins_a_whole_run(
    engine: Engine, label: str, unique: str
) -> None:
    """The input is kept beside that of the old run, which goes before the new one is recorded."""
    old = ended(engine, label, key=unique)

    class Purging:
        """A store in which the old run is purged before a run is begun."""

        def transact(self, *args: Any, **options: Any) -> Any:
            purge(engine, of(label), ended_before=SOON)
            return engine.documents.transact(*args, **options)

        def __getattr__(self, name: str) -> Any:
            return getattr(engine.documents, name)

    purging: Any = Purging()
    again = start(replace(engine, documents=purging), label, key=unique)
    kept = find_run(engine, again).manifest.input_ref

    assert again == old
    assert kept is not None
    assert engine.artifacts.exists(kept)


# -- cut off ---------------------------------------------------------------------------------------


class CutOffError(Exception):
    """The process of a purge was killed."""


class Killed:
    """A store or artifacts whose n-th change of any kind ends the process instead."""

    def __init__(self, within: Any, left: list[int], error: Exception) -> None:
        self._within, self._left, self._error = within, left, error

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._within, name)
        if name not in ("transact", "delete", "delete_all", "give_back_space"):
            return found

        def call(*args: Any, **options: Any) -> Any:
            if not self._left[0]:
                raise self._error
            self._left[0] -= 1
            return found(*args, **options)

        return call


def killed(engine: Engine, after: int, error: Exception) -> Engine:
    left = [after]
    documents: Any = Killed(engine.documents, left, error)
    artifacts: Any = Killed(engine.artifacts, left, error)
    return replace(engine, documents=documents, artifacts=artifacts)


@pytest.mark.parametrize("after", range(5))
def test_a_purge_that_was_killed_is_given_again(engine: Engine, label: str, after: int) -> None:
    """At each of its steps: the mark, the artifacts, the trace, the document, the space."""
    old = ended(engine, label)
    with pytest.raises(CutOffError):
        purge(killed(engine, after, CutOffError()), of(label), ended_before=SOON)

    seen = [run.run_id for run in list_runs(engine, of(label)).runs]
    broken = {found.run_id for found in audit(engine)}
    purge(engine, of(label), ended_before=SOON)

    assert seen == ([old] if after == 0 else [])
    assert old not in broken
    assert leftovers(engine, old) == []


@pytest.mark.each_store
def test_another_purge_finishes_what_was_cut_off(engine: Engine, label: str) -> None:
    """Whatever it looks for: the label here is another one's."""
    old = ended(engine, label)
    known = find_run(engine, old)
    with pytest.raises(CutOffError):
        delete_run(killed(engine, 2, CutOffError()), known, SOON)

    done = purge(engine, RunFilter(pipeline="three", step="nowhere"), ended_before=SOON)

    assert done.purged >= 1
    assert leftovers(engine, old) == []


@pytest.mark.parametrize("after", range(6))
def test_a_store_that_is_away_cuts_a_purge_off_in_one_line(
    engine: Engine, label: str, after: int
) -> None:
    ended(engine, label)
    away = StoreUnavailableError(store="here", problem="it is away")

    with pytest.raises(PurgeCutOffError) as error:
        purge(killed(engine, after, away), of(label), ended_before=SOON)

    assert error.value.retryable
    assert error.value.message == (
        f"The purge was interrupted; runs deleted so far: {int(after == 5)}. The store here does "
        "not answer: it is away. Repeat it to continue."
    )


def test_one_run_that_cannot_be_deleted_keeps_no_other(
    engine: Engine, label: str, tmp_path: Path
) -> None:
    runs = [ended(engine, label) for _ in range(3)]
    folder = tmp_path / "artifacts"
    assert isinstance(engine.artifacts, FolderArtifacts)
    for run_id in runs:
        write(engine, run_id, createdAt=LONG_AGO)
    (folder / "runs").rename(folder / "elsewhere")
    (folder / "runs").symlink_to(folder / "elsewhere")

    done = purge(engine, of(label), ended_before=SOON)
    (folder / "runs").unlink()
    (folder / "elsewhere").rename(folder / "runs")
    again = purge(engine, of(label), ended_before=SOON)

    assert sorted(done.kept) == [(run_id, "artifact_name") for run_id in sorted(runs)]
    assert (done.purged, again.matched) == (0, 3)
    assert [leftovers(engine, run_id) for run_id in runs] == [[], [], []]


# -- retention -------------------------------------------------------------------------------------


class Ticking:
    """The machine's clock, and how far its monotonic time was moved."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self.passed = 0.0

    def monotonic(self) -> float:
        return self._clock.monotonic() + self.passed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)


def old_runs(engine: Engine, label: str, count: int) -> Sequence[str]:
    runs = [ended(engine, label) for _ in range(count)]
    for number, run_id in enumerate(runs):
        at = LONG_AGO - timedelta(minutes=number)
        write(engine, run_id, createdAt=at, updatedAt=at)
    return runs


@pytest.mark.each_store
def test_the_sweep_purges_what_is_too_old_a_few_at_a_time(
    engine: Engine, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that stay keep none behind them from going."""
    monkeypatch.setattr("leasehold.services.purge.RUNS_PER_SWEEP", 2)
    held, old, young = old_runs(engine, label, 3), old_runs(engine, label, 3), ended(engine, label)
    for run_id in held:
        write(engine, run_id, createdAt=NOW - timedelta(days=31), cancelled=False, paused=True)
    clock: Any = Ticking()
    keeping = replace(engine, clock=clock)
    keeping.retention.after = timedelta(days=30)

    def gone() -> int:
        return sum(not leftovers(engine, run_id) for run_id in old)

    at_once = [sweep(keeping).purged for _ in range(2)]
    for _ in range(200):  # other tests have left runs in the store
        if gone() == 3:
            break
        clock.passed += max(NEXT_LOOK_S, LATER_LOOK_S)
        assert sweep(keeping).purged <= 2

    assert at_once[1] == 0
    assert gone() == 3
    assert [bool(leftovers(engine, run_id)) for run_id in (*held, young)] == [True] * 4


def test_a_purge_ends_with_the_time_of_its_sweep_and_goes_on_in_the_next(
    engine: Engine, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs with many files would outlast the function, which then never logs its line."""
    monkeypatch.setattr("leasehold.services.purge.PURGES_AT_ONCE", 1)
    seen = [engine.documents.get(run_ref(run_id)) for run_id in old_runs(engine, label, 3)]
    clock: Any = Ticking()

    class Slow:
        def delete(self, prefix: str) -> None:
            clock.passed += 60
            engine.artifacts.delete(prefix)

    listing: Any = Listing(engine.documents, *filter(None, seen))
    artifacts: Any = Slow()
    keeping = replace(engine, clock=clock, documents=listing, artifacts=artifacts)
    keeping.retention.after = timedelta(days=30)

    purged = forget_old_runs(keeping, clock.monotonic() + 90)

    assert purged == 2
    assert seen[1] is not None
    assert keeping.retention.place == place_behind(seen[1], "createdAt")


def test_a_machine_whose_clock_is_wrong_purges_nothing_that_is_young(
    engine: Engine, label: str, kind: str
) -> None:
    """Where a store has its own time: what a machine holds for old is not old for it."""
    if kind == "sqlite":
        pytest.skip("its time is the machine's")
    young = ended(engine, label)
    clock: Any = Ticking()
    clock.now = lambda: SystemClock().now() + timedelta(days=365)
    ahead = replace(engine, clock=clock)
    ahead.retention.after = timedelta(days=30)

    for _ in range(3):
        sweep(ahead)
        clock.passed += LATER_LOOK_S

    assert leftovers(engine, young)


def test_a_sweep_leaves_a_run_to_the_one_that_is_deleting_it(engine: Engine, label: str) -> None:
    (old,) = old_runs(engine, label, 1)
    marked = cut_off(engine, old)
    listing: Any = Listing(engine.documents, marked)
    keeping = replace(engine, documents=listing)
    keeping.retention.after = timedelta(days=30)

    at_once, left = sweep(keeping).purged, len(leftovers(engine, old))
    write(engine, old, purgedAt=NOW - timedelta(hours=1))
    late = engine.documents.get(run_ref(old))
    assert late is not None
    listing = Listing(engine.documents, late)
    keeping.retention.not_before = 0.0

    assert (at_once, left) == (0, 4)
    assert sweep(replace(keeping, documents=listing)).purged == 1
    assert leftovers(engine, old) == []


def test_a_sweep_of_some_runs_purges_none(engine: Engine, label: str) -> None:
    """`start --in-process` looks after its own run."""
    (old,) = old_runs(engine, label, 1)
    engine.retention.after = timedelta(days=30)

    assert sweep(engine, among=set()).purged == 0
    assert leftovers(engine, old)


def test_a_sweep_does_its_other_work_where_old_runs_cannot_go(engine: Engine, label: str) -> None:
    old_runs(engine, label, 1)
    logged: list[str] = []
    away = StoreUnavailableError(store="here", problem="it is away")
    left = replace(
        killed(engine, 0, away),
        listeners=replace(killed(engine, 0, away).listeners, log=logged.append),
    )
    left.retention.after = timedelta(days=30)

    assert sweep(left).purged == 0
    assert "old runs wait for the next sweep" in logged[-1]


def test_nothing_is_purged_unless_it_is_asked_for(engine: Engine, label: str) -> None:
    (old,) = old_runs(engine, label, 1)

    assert sweep(engine).purged == 0
    assert leftovers(engine, old)


def test_an_unreadable_document_of_a_run_is_left(engine: Engine, label: str) -> None:
    (old,) = old_runs(engine, label, 1)
    write(engine, old, plan="no plan")

    assert purge(engine, of(label), ended_before=SOON).matched == 0
    assert engine.documents.get(Ref("runs", old)) is not None
