"""Leases for workers that run elsewhere: a step is claimed, held, and settled, each in one commit.

What a worker shows with each call is its run, its lease and the token that came with it; the
lifecycle decides what that is worth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

from leasehold.domain import lifecycle
from leasehold.domain.change import Change, Transition, on_run
from leasehold.domain.document import Ref
from leasehold.domain.lease import Fence, held_lease
from leasehold.domain.lifecycle.attempt import EARLY
from leasehold.domain.manifest import (
    ErrorRecord,
    KeptValue,
    Manifest,
    Progress,
    is_run_id,
    manifest_of,
    run_ref,
)
from leasehold.domain.result import Finished
from leasehold.domain.status import Outcome
from leasehold.errors import (
    ArtifactNotFoundError,
    InvalidRequestError,
    LeaseHeldError,
    LeaseholdError,
    LeaseLostError,
    NothingToClaimError,
    UnknownRunError,
    UnreadableRunError,
)
from leasehold.ports.documents import Query, Snapshot
from leasehold.ports.values import OUTPUT_BYTES, check_size, digest, keep, load
from leasehold.registry.dispatch import REMOTE
from leasehold.services.engine import Engine, follow_up
from leasehold.services.execute_step import recorded, settlement, through_gates
from leasehold.services.shut_down import INSTANCE_SHUTDOWN

#: How many waiting runs are looked at in one query, and how many queries a claim makes at most:
#: whoever lost all of those to other workers asks again.
PAGE: Final = 10
PAGES: Final = 3

_MAX_SHOWN: Final = 128


class InvalidOutputError(LeaseholdError):
    """The output of a worker elsewhere does not fit; its lease is held still."""

    code = "invalid_output"
    text: ClassVar[str] = "{problem} Nothing was changed; correct it and complete once more."


@dataclass(frozen=True, slots=True)
class Shown:
    """What a worker shows with each call: the run, and the lease on it that it was given."""

    run_id: str
    fence: Fence


@dataclass(frozen=True, slots=True)
class Claimed:
    """A step that is a worker's now.

    Args:
        manifest: the run, with its lease.
        given: what the step is given, as JSON text.
        partial_results: of the manifest's checkpoint, as JSON text; None: begin at the beginning.
    """

    manifest: Manifest
    given: str
    partial_results: str | None


def claim_step(engine: Engine, step_type: str, holder: str) -> Claimed:
    """Give the worker the step of this type that waits longest.

    Raises:
        UnknownKeyError, InvalidRequestError: no step type for workers elsewhere has that name.
        NothingToClaimError: none waits, or other workers were faster.
        StoreUnavailableError: a lease may have been given and not told; it ends by itself.
    """
    if engine.catalog.steps[step_type].handler != REMOTE:
        remote = [step.step_type for step in engine.catalog.steps if step.handler == REMOTE]
        names = ", ".join(remote) or "none"
        allowed = f"a step for workers elsewhere ({names}); execute_step runs the others"
        raise InvalidRequestError(field="stepType", value=step_type, allowed=allowed)
    for run_id in _waiting(engine, step_type):
        try:
            return acquire_run(engine, run_id, holder)
        except (LeaseHeldError, NothingToClaimError):  # another worker was faster
            continue
    raise NothingToClaimError(problem=f"no step {step_type!r} waits for a worker now")


def acquire_run(engine: Engine, run_id: str, holder: str) -> Claimed:
    """Give the worker the current step of one run, whoever it waits for.

    Raises:
        UnknownRunError: there is no such run.
        LeaseHeldError, NothingToClaimError: another worker has it, or it waits for none.
        StoreUnavailableError: as `claim_step`.
    """
    claim = partial(
        lifecycle.claim, rules=engine.rules, lease_id=engine.clock.new_id(), holder=holder
    )
    change = _change(engine, run_id, claim, locked=True)
    run = change.manifest
    if change.outcome is not Outcome.ACQUIRED:  # to take over was one interruption too many
        raise _nothing(run, f"run {run_id} was given up: {run.dead_letter_detail}")
    return Claimed(run, _given(engine, run), _partial_results(engine, run))


def renew_lease(engine: Engine, shown: Shown, progress: Progress | None = None) -> Change:
    """Let the lease run on, and note how far the worker is.

    Raises:
        UnknownRunError, LeaseLostError, StoreUnavailableError: nothing was changed.
    """
    renew = partial(lifecycle.renew, rules=engine.rules, fence=shown.fence, progress=progress)
    return _change(engine, shown.run_id, renew)


def save_checkpoint(
    engine: Engine, shown: Shown, *, iteration_count: int, phase: str, partial_results: str
) -> Change:
    """Keep what the worker has so far, JSON text, for whoever has to go on; renew the lease.

    Raises:
        TooLargeError, and as `renew_lease`: nothing was changed.
    """
    check_size("partialResults", partial_results, OUTPUT_BYTES)
    run, found = _read(engine, shown.run_id)
    held_lease(run, found.read_at, shown.fence)  # before anything is stored
    # what it is named by is its content: one that comes late changes none that counts
    name = f"runs/{run.run_id}/values/checkpoint-{run.current_step}-{digest(partial_results)[:16]}"
    beside = run.with_(checkpoint=None).text_bytes  # it takes the place of the one before
    save = partial(
        lifecycle.checkpoint,
        rules=engine.rules,
        fence=shown.fence,
        iteration_count=iteration_count,
        phase=phase,
        partial_results=keep(engine.artifacts, partial_results, f"{name}.json", beside=beside),
    )
    return _change(engine, shown.run_id, save)


def complete_step(engine: Engine, shown: Shown, output: str, status: str) -> Change:
    """Record the output, JSON text, and hand off to the next step.

    Raises:
        InvalidOutputError: it does not fit the step's model, or what the next step is given.
        HandlerNotFoundError: the model does not resolve.
        TooLargeError, and as `renew_lease`: nothing was changed.
    """
    complete = partial(
        lifecycle.complete, rules=engine.rules, fence=shown.fence, output_status=status
    )
    run, found = _read(engine, shown.run_id)
    if not _holds(run, found, shown.fence):  # said before, or lost: the output counts for nothing
        return follow_up(engine, complete(run, found.read_at, output=KeptValue()))
    _check_output(engine, run, output)
    check_size("output", output, OUTPUT_BYTES)
    result = through_gates(engine, run, Finished(output, status))
    return _change(engine, shown.run_id, settlement(engine, run, shown.fence, result))


def fail_step(engine: Engine, shown: Shown, error: ErrorRecord, *, permanent: bool) -> Change:
    """Record why the attempt failed; it is repeated after its backoff, or the run is given up.

    Raises:
        UnknownRunError, LeaseLostError, StoreUnavailableError: as `renew_lease`.
    """
    facts: dict[str, Any] = {"rules": engine.rules, "fence": shown.fence}
    fail = partial(lifecycle.fail, **facts, error=error, permanent=permanent)
    return _change(engine, shown.run_id, fail)


def release_step(engine: Engine, shown: Shown) -> Change:
    """Give the lease back: another worker may go on at once, and no retry is burnt.

    Raises:
        UnknownRunError, LeaseLostError, StoreUnavailableError: as `renew_lease`.
    """
    facts: dict[str, Any] = {"rules": engine.rules, "fence": shown.fence}
    return _change(
        engine, shown.run_id, partial(lifecycle.release, **facts, reason=INSTANCE_SHUTDOWN)
    )


def _waiting(engine: Engine, step_type: str) -> Iterator[str]:
    """Tell the runs that wait for a worker at this step and are due, oldest first."""
    after = None
    for _ in range(PAGES):
        query = Query(
            "runs",
            order_by="alarmAt",
            equal={"claimable": step_type},
            limit=PAGE,
            after=after,
        )
        page = engine.documents.query(query)
        for found in page:
            try:
                due_at = manifest_of(found.ref.id, found.document).dispatch.not_before
            except UnreadableRunError as error:  # it must not hide those behind it
                engine.log(str(error))
                continue
            if due_at <= found.read_at + EARLY:
                yield found.ref.id
        if len(page) < PAGE:
            return
        after = (page[-1].document["alarmAt"], page[-1].ref.id)


def _change(engine: Engine, run_id: str, transition: Transition, *, locked: bool = False) -> Change:
    decide = on_run(run_id, transition)
    committed = engine.documents.transact(_ref(run_id), decide, locked=locked)
    return follow_up(engine, committed.answer)


def _read(engine: Engine, run_id: str) -> tuple[Manifest, Snapshot]:
    found = engine.documents.get(_ref(run_id))
    if found is None:
        raise UnknownRunError(run_id=run_id)
    return manifest_of(run_id, found.document), found


def _ref(run_id: str) -> Ref:
    """Return the name of the run's document; not every store can be asked for any name."""
    if not is_run_id(run_id):
        raise UnknownRunError(run_id=run_id[:_MAX_SHOWN])
    return run_ref(run_id)


def _holds(run: Manifest, found: Snapshot, fence: Fence) -> bool:
    try:
        held_lease(run, found.read_at, fence)
    except LeaseLostError:
        return False
    return True


def _check_output(engine: Engine, run: Manifest, output: str) -> None:
    """Refuse an output that a handler could not have returned, or the next could not take."""
    steps = engine.catalog.steps
    step = steps.get(run.current_step)
    following = steps.get(run.next_step) if run.next_step else None
    if step is None:
        return
    if following is not None and following.handler == REMOTE:
        following = None
    if misfit := engine.runner.problem_with_output(step, output, following):
        raise InvalidOutputError(
            problem=f"{misfit.message}.",
            step=step.step_type,
            issues=misfit.validation_issues,
            issue_count=misfit.validation_issue_count,
        )


def _given(engine: Engine, run: Manifest) -> str:
    """Return what the step is given; a run whose value is lost is given up."""
    try:
        return load(engine.artifacts, run.given)
    except ArtifactNotFoundError as error:
        assert run.lease is not None  # noqa: S101 - it was just given
        shown = Shown(run.run_id, Fence(run.lease.lease_id, run.fencing_token))
        ended = fail_step(engine, shown, recorded(error), permanent=True)
        raise _nothing(ended.manifest, f"run {run.run_id} was given up: {error.message}") from None


def _partial_results(engine: Engine, run: Manifest) -> str | None:
    if run.checkpoint is None:
        return None
    try:
        return load(engine.artifacts, run.checkpoint.partial_results)
    except ArtifactNotFoundError as error:
        engine.log(f"run {run.run_id} begins its step at the beginning: {error}")
        return None


def _nothing(run: Manifest, problem: str) -> NothingToClaimError:
    return NothingToClaimError(problem=problem, run_id=run.run_id, state=run.state)
