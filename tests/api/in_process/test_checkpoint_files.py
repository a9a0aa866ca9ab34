"""Large checkpoints: one file at a time and none after, and a damaged one is never gone on from."""

from __future__ import annotations

import contextlib
import gzip
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.adapters.folder import FolderArtifacts
from leasehold.adapters.in_process_tasks import InProcessTasks
from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.bootstrap import boot, load_catalog
from leasehold.domain import lifecycle
from leasehold.domain.artifact_name import checkpoints_folder, step_folder
from leasehold.domain.change import Change
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome, Termination
from leasehold.domain.stored import Answer, DecideDocument, Document, Ref, Write, replace
from leasehold.domain.trace import TraceEvent
from leasehold.errors import StoreUnavailableError
from leasehold.ports.documents import Committed
from leasehold.services.engine import change_run, find_run
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.start_run import StartRequest, start_run
from leasehold.testing import FrozenClock, InProcessEngine
from tests.worlds.builders import at_position

pytestmark = pytest.mark.catalog(__name__)


#: More than a manifest has room for.
LARGE = "läuft " * 8_000
#: How often each iteration was done, by run.
DONE: Counter[tuple[str, int]] = Counter()
#: What is done at the end of the first attempt, by run id.
AT_END: dict[str, Any] = {}


def count(ctx: StepContext, given: Any) -> Any:
    """Do some iterations, with large results after each; fail once where the test says so."""
    done = ctx.resume.iteration_count if ctx.resume else 0
    assert ctx.resume is None or ctx.resume.partial_results == [LARGE, done]
    for number in range(done + 1, given["iterations"] + 1):
        DONE[ctx.run_id, number] += 1
        ctx.checkpoint(number, [LARGE, number])
    AT_END.pop("then", lambda: None)()
    return {"n": given["iterations"]}


def pass_on(ctx: StepContext, given: Any) -> Any:
    """Hand on what is given."""
    AT_END.pop("pass", lambda: None)()
    return given


def turn_back(ctx: StepContext, given: Any) -> Any:
    """Count back, in a phase that another one came after."""
    ctx.checkpoint(5, LARGE, "read")
    ctx.checkpoint(1, [], "write")
    ctx.checkpoint(3, LARGE, "read")


def keep_in_the_first_attempt(ctx: StepContext, given: Any) -> Any:
    """Keep something large, but not again."""
    if ctx.attempt == 1 and given["is_call"]:
        ctx.once("large", lambda: LARGE)
    elif ctx.attempt == 1:
        ctx.checkpoint(1, LARGE)
    return given


def go_on_without(ctx: StepContext, given: Any) -> Any:
    """Keep something large, and go on where that cannot be recorded."""
    with suppress(StoreUnavailableError):
        ctx.checkpoint(1, LARGE)
    AT_END.pop("careless", lambda: None)()
    return given


def _step(name: str, handler: str) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"{__name__}:{handler}",
        agent_timeout=timedelta(minutes=2),
        dispatch_deadline=timedelta(minutes=3),
        max_retries=1,
    )


STEPS = Registry(
    "dispatch",
    [
        _step("count", "count"),
        _step("pass", "pass_on"),
        _step("back", "turn_back"),
        _step("late", "keep_in_the_first_attempt"),
        _step("careless", "go_on_without"),
    ],
)
PIPELINES = Registry(
    "pipelines",
    [
        PipelineEntry(name="counts", steps=("count",)),
        PipelineEntry(name="passes", steps=("count", "pass")),
        PipelineEntry(name="turns", steps=("back",)),
        PipelineEntry(name="late", steps=("late",)),
        PipelineEntry(name="careless", steps=("careless", "pass")),
    ],
)


HOUR = timedelta(hours=1, minutes=1)


def files(engine: InProcessEngine, run: Manifest) -> list[str]:
    """The temporary files of a run."""
    return list(engine.engine.artifacts.list(checkpoints_folder(run)))


def file_of(run: Manifest) -> str:
    """The file that the run's checkpoint refers to."""
    assert run.position.checkpoint is not None
    return str(run.position.checkpoint.partial_results.ref)


def events(engine: InProcessEngine, run: Manifest, kind: str) -> list[TraceEvent]:
    return [event for event in engine.trace(run.run_id) if event.type == kind]


def stored(engine: InProcessEngine, run: Manifest) -> Manifest:
    return find_run(engine.engine, run.run_id).manifest


def rewritten(run: Manifest, facts: dict[str, object]) -> Change:
    """The run with other facts of its checkpoint, as something else wrote it."""
    assert run.position.checkpoint is not None
    return Change(
        Outcome.REPAIRED, at_position(run, checkpoint=replace(run.position.checkpoint, **facts))
    )


def killed(engine: InProcessEngine, *, n: int = 2, pipeline: str = "counts") -> Manifest:
    """A run of three iterations whose attempt is killed as its n-th checkpoint stands."""
    engine.faults.kill_at_checkpoint("count", n=n)
    run = engine.start(pipeline, {"iterations": 3})
    engine.run_until_idle()
    return stored(engine, run)


def test_many_checkpoints_leave_one_file_and_a_step_that_is_over_leaves_none(
    engine: InProcessEngine,
) -> None:
    left: list[int] = []
    run = engine.start("counts", {"iterations": 60})
    AT_END["then"] = lambda: left.append(len(files(engine, run)))

    done = engine.run_until_settled(run.run_id)

    assert (done.status, left, files(engine, run)) == ("COMPLETED", [1], [])
    after = stored(engine, run)
    assert (after.owed, after.alarm_at) == ((), None)


def test_the_files_of_a_step_go_when_it_is_handed_off(engine: InProcessEngine) -> None:
    """The run goes on, and is then held by a person for as long as they like."""
    run = engine.start("passes", {"iterations": 2})
    AT_END["then"] = lambda: engine.pause(run.run_id)
    engine.run_until_idle()

    paused = stored(engine, run)
    assert (paused.current_step, paused.alarm_at) == ("pass", None)
    assert files(engine, run) == []


def test_who_takes_the_next_step_along_deletes_the_files_of_the_last_one(
    engine: InProcessEngine,
) -> None:
    run = engine.start("passes", {"iterations": 2})
    left: list[int] = []
    AT_END["pass"] = lambda: left.append(len(files(engine, run)))

    done = engine.run_until_settled(run.run_id)

    assert (done.status, left) == ("COMPLETED", [0])


def test_a_file_is_gzip_and_the_run_has_the_digest_of_its_text(engine: InProcessEngine) -> None:
    run = killed(engine)
    kept = run.position.checkpoint

    assert kept is not None
    assert str(kept.ref).startswith(f"{step_folder(run, 'count', 1)}/1-")
    packed = engine.engine.artifacts.get(file_of(run))
    assert gzip.decompress(packed).startswith(b'["l\xc3\xa4uft')
    assert (kept.inline, len(kept.digest or "")) == (None, 64)
    assert run.owed == (step_folder(run, "count", 1),)


def test_what_a_kill_leaves_goes_with_the_step(engine: InProcessEngine) -> None:
    """It was killed before it deleted the file that the second checkpoint took the place of."""
    run = killed(engine)
    assert len(files(engine, run)) == 2

    done = engine.run_until_settled(run.run_id)

    assert (done.status, files(engine, run)) == ("COMPLETED", [])
    assert [DONE[run.run_id, number] for number in (1, 2, 3)] == [1, 1, 1]
    assert stored(engine, run).alarm_at is None


def test_what_the_killed_worker_of_a_cancelled_run_leaves_is_swept_after_an_hour(
    engine: InProcessEngine, clock: FrozenClock
) -> None:
    """It stored a file after all else had seen to the run."""
    run = killed(engine)
    kept = file_of(run)  # a run that is made of it may go on from there
    engine.cancel(run.run_id)
    assert files(engine, run) == [kept]
    engine.engine.artifacts.put(f"{step_folder(run, 'count', 1)}/1-late.json.gz", b"late")

    clock.advance(timedelta(minutes=59))
    engine.sweep()
    assert len(files(engine, run)) == 2
    clock.advance(HOUR)
    engine.sweep()

    assert files(engine, run) == [kept]
    assert (stored(engine, run).owed, stored(engine, run).alarm_at) == ((), None)


@pytest.mark.parametrize("is_large_call", [False, True], ids=["checkpoint", "call"])
@pytest.mark.parametrize("is_over", [False, True], ids=["released", "past its deadline"])
def test_a_file_that_is_stored_after_its_attempt_was_over_is_deleted(
    engine: InProcessEngine,
    clock: FrozenClock,
    monkeypatch: pytest.MonkeyPatch,
    is_over: bool,
    is_large_call: bool,
) -> None:
    """The next attempt keeps nothing large, so no other file has the step's folder deleted."""
    put = FolderArtifacts.put
    names: list[str] = []

    def put_late(self: FolderArtifacts, name: str, data: bytes) -> str:
        (held,) = engine.engine.leases.held_attempts()
        if is_over:
            clock.advance(timedelta(minutes=4))
            engine.engine.leases.look()
        else:
            facts = {"rules": engine.engine.rules, "fence": held.fence, "notes": held.notes}
            reason = Termination.INSTANCE_SHUTDOWN
            held.settle(partial(lifecycle.release, **facts, reason=reason))
        names.append(name)
        return put(self, name, data)

    monkeypatch.setattr(FolderArtifacts, "put", put_late)
    run = engine.start("late", {"is_call": is_large_call})

    done = engine.run_until_settled(run.run_id)

    assert (done.status, len(names)) == ("COMPLETED", 1)
    stored_run = stored(engine, run)
    assert (files(engine, run), stored_run.owed) == ([], ())


def test_what_the_archive_of_a_run_could_not_delete_the_sweep_deletes(
    engine: InProcessEngine, clock: FrozenClock
) -> None:
    run = engine.start("counts", {"iterations": 2})
    AT_END["then"] = lambda: engine.faults.artifacts_away(600)

    done = engine.run_until_settled(run.run_id)

    assert (done.status, done.is_moving) == ("COMPLETED", False)
    done = stored(engine, run)
    assert done.archive is not None
    assert done.archive.failed == ("delete_checkpoints",)
    assert done.alarm_at == done.updated_at + timedelta(minutes=1)
    clock.advance(timedelta(minutes=5))
    engine.sweep()
    assert stored(engine, run).archive is not None, "it is still away"
    clock.advance(HOUR)
    engine.sweep()
    assert (files(engine, run), stored(engine, run).alarm_at) == ([], None)


def test_files_behind_a_link_out_of_the_store_are_nobodys_to_delete_and_not_owed_forever(
    engine: InProcessEngine, tmp_path: Path, clock: FrozenClock
) -> None:
    run = killed(engine)
    folder = tmp_path / "artifacts" / checkpoints_folder(run)
    outside = folder.rename(tmp_path / "outside")
    folder.symlink_to(outside)

    engine.cancel(run.run_id)
    clock.advance(HOUR)
    engine.sweep()

    assert len([*outside.glob("*/*")]) == 2
    assert (stored(engine, run).owed, stored(engine, run).alarm_at) == ((), None)


Spoil = Callable[[Path, Path], object]

SPOILED: dict[str, Spoil] = {
    "deleted": lambda file, _: file.unlink(),
    "empty": lambda file, _: file.write_bytes(b""),
    "not gzip": lambda file, _: file.write_bytes(b'["plain text"]'),
    "cut of": lambda file, _: file.write_bytes(file.read_bytes()[:-9]),
    "of another time": lambda file, other: file.write_bytes(other.read_bytes()),
    "not JSON": lambda file, _: file.write_bytes(gzip.compress(b"[1, 2")),
    "a folder": lambda file, _: (file.unlink(), file.mkdir()),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_a_checkpoint_that_is_damaged_is_rejected_and_the_step_begins_at_the_beginning(
    engine: InProcessEngine, tmp_path: Path, spoil: Spoil
) -> None:
    run = killed(engine)
    current = tmp_path / "artifacts" / file_of(run)
    (other,) = [path for path in current.parent.iterdir() if path != current]
    spoil(current, other)

    done = engine.run_until_settled(run.run_id)

    assert (done.status, done.steps["count"].attempts.failed) == ("COMPLETED", 0)
    assert [DONE[run.run_id, number] for number in (1, 2, 3)] == [2, 2, 1]
    (event,) = events(engine, run, "checkpoint_rejected")
    assert (event.attempt, event.model_extra) == (2, {"iterationCount": 2})
    assert event.detail
    assert files(engine, run) == []


@pytest.mark.parametrize(
    "facts",
    [{"step": "pass"}, {"trial": 2}, {"ref": "runs/another/checkpoints/count-1/1-x.json.gz"},
     {"ref": None}, {"ref": "../../etc/passwd"}, {"ref": None, "digest": None, "inline": "[1,"},
     {"ref": None, "inline": "[1,"}, {"iteration_count": -1}, {"iteration_count": 2**63}],
    ids=["step", "trial", "run", "nothing", "outside", "no JSON", "digest of no file", "below 0",
         "huge"],
)  # fmt: skip
def test_a_checkpoint_of_another_step_is_rejected(
    engine: InProcessEngine, facts: dict[str, object]
) -> None:
    run = killed(engine)
    change_run(
        engine.engine,
        run.run_id,
        lambda found, _: rewritten(found, facts),
    )

    done = engine.run_until_settled(run.run_id)

    assert (done.status, done.steps["count"].attempts.failed) == ("COMPLETED", 0)
    assert DONE[run.run_id, 1] == 2
    assert len(events(engine, run, "checkpoint_rejected")) == 1


def test_a_file_of_another_name_is_held_against_its_digest(engine: InProcessEngine) -> None:
    """Else a person who edits a run could have it resume from any file."""
    run = killed(engine)
    engine.engine.artifacts.put(f"runs/{run.run_id}/files/plain.gz", b"plain")
    facts = {"ref": f"runs/{run.run_id}/files/plain"}
    change_run(engine.engine, run.run_id, lambda found, _: rewritten(found, facts))

    done = engine.run_until_settled(run.run_id)

    assert (done.status, done.steps["count"].attempts.failed) == ("COMPLETED", 0)
    assert len(events(engine, run, "checkpoint_rejected")) == 1


def test_a_checkpoint_that_cannot_be_read_now_is_waited_for(
    engine: InProcessEngine, clock: FrozenClock
) -> None:
    run = killed(engine)
    engine.faults.artifacts_away(600)

    done = engine.run_until_settled(run.run_id)

    assert done.status == "COMPLETED"
    assert events(engine, run, "checkpoint_rejected") == []
    assert [DONE[run.run_id, number] for number in (1, 2, 3)] == [1, 1, 1]
    assert done.steps["count"].attempts.deferred >= 1


def test_a_count_that_goes_back_is_refused_by_name_and_leaves_no_file(
    engine: InProcessEngine,
) -> None:
    run = engine.start("turns", {})

    done = engine.run_until_settled(run.run_id)

    assert done.error is not None
    assert done.error.message == (
        "iteration_count is 3; allowed: 5 or more: this attempt has kept 5 of phase 'read' before."
    )
    assert files(engine, run) == []


class NoCheckpoints(SqliteDocuments):
    """A store that no commit of a checkpoint gets through to."""

    def transact(
        self, ref: Ref, decide: DecideDocument[Answer], **options: Any
    ) -> Committed[Answer]:
        def decided(stored: Document | None, now: datetime) -> Write[Answer]:
            write = decide(stored, now)
            if getattr(write.answer, "outcome", None) is Outcome.CHECKPOINTED:
                raise StoreUnavailableError(store="documents", problem="the request was lost")
            return write

        return super().transact(ref, decided, **options)


def test_a_file_that_a_handler_goes_on_without_goes_with_its_step(
    tmp_path: Path, clock: FrozenClock
) -> None:
    """Its renewals get through, so the attempt ends well and nothing but its notes tell of it."""
    left: list[Sequence[str]] = []
    environ = {
        "LEASEHOLD_ARTIFACTS": f"file://{tmp_path}/artifacts",
        "LEASEHOLD_ISOLATION": "inline",
    }
    documents = NoCheckpoints(tmp_path / "runs.db", clock)
    catalog = load_catalog(__name__)
    bundle = boot(
        environ, catalog=catalog, clock=clock, documents=documents, tasks=InProcessTasks(clock)
    )
    with contextlib.closing(bundle):
        parts = bundle.engine
        run = start_run(parts, StartRequest("careless", {})).manifest
        AT_END["careless"] = lambda: left.append(parts.artifacts.list(checkpoints_folder(run)))
        with clock.watched_by(parts.leases.look):
            for generation in (1, 2):
                execute_step(parts, Hint(run.run_id, generation))

        done = find_run(parts, run.run_id).manifest
        assert (done.status, done.archive, done.steps["careless"].attempts.ended) == (
            "COMPLETED",
            None,
            0,
        )
        assert len(left[0]) == 1
        assert parts.artifacts.list(checkpoints_folder(run)) == []
