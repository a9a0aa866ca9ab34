"""A remote worker asks for a step, and gets it under a lease, or learns that there is none.

All that it is to be given is loaded before the lease: an outage of the artifact store changes
nothing then, and the worker may ask again.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import Any, Final

import pydantic_core

from leasehold.attempt.values import load
from leasehold.domain import lifecycle
from leasehold.domain.change import Change, Transition
from leasehold.domain.checkpoint import Checkpoint, KeptValue
from leasehold.domain.dispatch import Rules
from leasehold.domain.kept_checkpoint import KeptResults, read_results
from leasehold.domain.lease import fence_of
from leasehold.domain.manifest import Manifest, manifest_of
from leasehold.domain.manifest_parts import ErrorRecord
from leasehold.domain.printable import counted
from leasehold.domain.status import BlockCode, Outcome
from leasehold.domain.trials import findings_in, last_review
from leasehold.errors import (
    ArtifactNotFoundError,
    DamagedFileError,
    InvalidRequestError,
    LeaseHeldError,
    LeaseholdError,
    NothingToClaimError,
    StoreUnavailableError,
    UnreadableRunError,
)
from leasehold.frozen import dataclass
from leasehold.ports.documents import KnownRun, Query
from leasehold.registry.dispatch import REMOTE
from leasehold.remote_workers.manage_lease import LeaseCredentials, block_step
from leasehold.services.engine import Engine, change_run, find_run
from leasehold.services.paging import pages
from leasehold.services.worker_notes import note_asked, steps_known_elsewhere

#: How many waiting runs are read in one query.
RUNS_PER_QUERY: Final = 10
#: How many of them are tried at most: a worker that lost all of them to others asks again.
MAX_RUNS_TRIED: Final = 30
#: Runs that cannot be read, or whose values cannot, are passed over for this time at most.
MAX_SEARCH_S: Final = 5.0
#: How often what a step is given is loaded anew, because the run moved on meanwhile.
_LOADS: Final = 3


@dataclass(frozen=True, slots=True)
class ClaimedStep:
    """A step that is a worker's now.

    Args:
        manifest: the run, with its lease.
        given: what the step is given, as JSON text.
        partial_results: of the manifest's checkpoint, as JSON text; None: begin at the beginning.
        findings: what the reviewer of the trial before found.
    """

    manifest: Manifest
    given: str
    partial_results: str | None
    findings: list[Any]


_Lost = ArtifactNotFoundError | DamagedFileError
#: What a step is given, where it goes on, and the review of the trial before.
_Values = tuple[KeptValue, Checkpoint | None, KeptValue | None]


@dataclass(frozen=True, slots=True)
class _StepValues:
    """The values that a worker gets, and the fields of the run that have them.

    Args:
        given: JSON text; or why there is none: the value is lost, or no JSON any more.
        results: of the checkpoint; None: it has none.
    """

    values: _Values
    given: str | _Lost
    results: KeptResults | None
    findings: list[Any]


class _MovedOnError(Exception):
    """The step has other values now than those that were loaded."""


def claim_step(engine: Engine, step_type: str, holder: str) -> ClaimedStep:
    """Give the worker the step of this type that waits longest.

    A step whose values cannot be loaded delays no step behind it.

    Raises:
        UnknownKeyError, InvalidRequestError: no step type for remote workers has that name.
        NothingToClaimError: none waits, or other workers were faster; or it is only others that
            know the step, as during a deploy.
        StoreUnavailableError: nothing could be given. A lease may have been given and its answer
            lost: it ends by itself.
    """
    if step_type not in engine.catalog.steps and step_type in steps_known_elsewhere(engine):
        problem = f"this process knows no step {step_type!r}, and others that live do; claim again"
        raise NothingToClaimError(problem=problem)
    if engine.catalog.steps[step_type].handler != REMOTE:
        remote = [step.step_type for step in engine.catalog.steps if step.handler == REMOTE]
        names = ", ".join(remote) or "none"
        allowed = f"a step for remote workers ({names}); execute_step runs the others"
        raise InvalidRequestError(field="stepType", value=step_type, allowed=allowed)
    note_asked(engine, step_type, holder)
    if (paused := engine.dispatch_rules().pause_of(step_type)) is not None:
        raise NothingToClaimError(problem=paused.words)
    until = engine.clock.monotonic() + MAX_SEARCH_S
    outage: StoreUnavailableError | None = None
    for found in _waiting(engine, step_type, until):
        try:
            return _acquire(engine, found, holder)
        except (LeaseHeldError, NothingToClaimError):  # it is not due, or another was faster
            continue
        except StoreUnavailableError as error:
            outage = outage or error
        if engine.clock.monotonic() >= until:
            break
    if outage is not None:
        raise outage
    raise NothingToClaimError(problem=f"no step {step_type!r} waits for a worker now")


def acquire_run(engine: Engine, run_id: str, holder: str) -> ClaimedStep:
    """Give the worker the current step of one run.

    Raises:
        UnknownRunError: there is no such run.
        LeaseHeldError, NothingToClaimError: another worker has it, or it waits for none.
        StoreUnavailableError: as `claim_step`.
    """
    found = find_run(engine, run_id)
    if found.manifest.position.dispatch.remote:
        note_asked(engine, found.manifest.step_type, holder)
    return _acquire(engine, found, holder)


def _acquire(engine: Engine, found: KnownRun, holder: str) -> ClaimedStep:
    for _ in range(_LOADS):
        run, snapshot = found
        claim = partial(
            lifecycle.claim,
            rules=engine.dispatch_rules(),
            lease_id=engine.clock.new_id(),
            holder=holder,
        )
        expected = claim(run, snapshot.read_at)  # what is refused anyway needs no values
        loaded = _load(engine, run) if expected.outcome is Outcome.ACQUIRED else None
        try:
            change = change_run(
                engine, run.run_id, partial(_with, loaded, claim, engine.rules), in_transaction=True
            )
        except _MovedOnError:
            found = find_run(engine, run.run_id)
        else:
            return _claimed(engine, change, loaded)
    raise _nothing(run, f"run {run.run_id} moves on while it is claimed; claim again")


def _with(
    loaded: _StepValues | None, claim: Transition, rules: Rules, manifest: Manifest, now: datetime
) -> Change:
    """Claim, or raise _MovedOnError where what was loaded is not what the step is given by now.

    A checkpoint that cannot be used is dropped in the same commit.
    """
    change = claim(manifest, now)
    if change.outcome is not Outcome.ACQUIRED:
        return change
    if loaded is None or loaded.values != _values_of(manifest):
        raise _MovedOnError
    results, kept = loaded.results, manifest.position.checkpoint
    if kept is None or results is None or not results.problem:
        return change
    rejected = lifecycle.reject_checkpoint(
        change.manifest,
        now,
        rules=rules,
        fence=fence_of(change.manifest),
        rejected=kept,
        why=results.problem,
    )
    return rejected.following(change, change.outcome)


def _claimed(engine: Engine, change: Change, loaded: _StepValues | None) -> ClaimedStep:
    run = change.manifest
    if change.outcome is Outcome.RETRY_SCHEDULED:  # the attempt before hung
        due = run.position.dispatch.not_before.isoformat()
        raise _nothing(run, f"run {run.run_id} is tried again at {due}")
    if change.outcome is not Outcome.ACQUIRED or loaded is None:  # it was one try too many
        raise _nothing(run, f"run {run.run_id} was given up: {run.dead_letter_detail}")
    if not isinstance(loaded.given, str):
        raise _blocked(engine, run, loaded.given)
    results = loaded.results
    usable = None if results is None or results.problem else results.text
    return ClaimedStep(run, loaded.given, usable, loaded.findings)


def _values_of(run: Manifest) -> _Values:
    return run.given, run.position.checkpoint, last_review(run)


def _load(engine: Engine, run: Manifest) -> _StepValues:
    """Load what the step is given and where it goes on.

    Raises:
        StoreUnavailableError: they cannot be loaded now. The run may wait on for it.
    """
    try:
        given, findings = _given(engine, run)
        return _StepValues(_values_of(run), given, _results(engine, run), findings)
    except StoreUnavailableError:
        _extend_wait(engine, run)
        raise


def _extend_wait(engine: Engine, run: Manifest) -> None:
    generation = run.position.dispatch.generation
    wait_on = partial(lifecycle.extend_wait, rules=engine.rules, generation=generation)
    try:
        change_run(engine, run.run_id, wait_on)
    except LeaseholdError as error:  # the outage itself is the answer to the worker
        engine.listeners.log(f"run {run.run_id} was not noted as asked for: {error}")


def _waiting(engine: Engine, step_type: str, until: float) -> Iterator[KnownRun]:
    """Yield the runs that wait for a remote worker at this step, the oldest alarm first."""
    query = Query("runs", order_by="alarmAt", equal={"claimable": step_type}, limit=RUNS_PER_QUERY)
    readable = unreadable = 0
    for page in pages(engine.documents, query):
        for found in page:
            try:
                run = manifest_of(found.ref.id, found.document)
            except UnreadableRunError:  # it must not hide those behind it
                unreadable += 1
                continue
            readable += 1
            yield KnownRun(run, found)
        if readable >= MAX_RUNS_TRIED or engine.clock.monotonic() >= until:
            break
    if unreadable:
        engine.listeners.log(
            f"{counted(unreadable, 'unreadable run')} at step {step_type}; see `leasehold audit`"
        )


def _given(engine: Engine, run: Manifest) -> tuple[str | _Lost, list[Any]]:
    """Return what the step is given and the findings on the trial before; or what is lost."""
    review = last_review(run)
    try:
        findings = [] if review is None else findings_in(load(engine.artifacts, review))
        given = load(engine.artifacts, run.given)
        pydantic_core.from_json(given)
    except ArtifactNotFoundError as error:
        return error, []
    except ValueError as error:  # it was edited, or damaged
        return DamagedFileError(name=run.given.ref or "input", problem=f"{error}"), []
    return given, findings


def _results(engine: Engine, run: Manifest) -> KeptResults | None:
    kept = run.position.checkpoint
    return None if kept is None else read_results(run, kept, partial(load, engine.artifacts))


def _blocked(engine: Engine, run: Manifest, lost: _Lost) -> NothingToClaimError:
    """Block a run whose value is lost. The attempt has just got its lease."""
    credentials = LeaseCredentials(run.run_id, fence_of(run))
    is_gone = isinstance(lost, ArtifactNotFoundError)
    code = BlockCode.INPUT_MISSING if is_gone else BlockCode.INPUT_MISMATCH
    ended = block_step(engine, credentials, code, ErrorRecord.of(lost))
    return _nothing(ended.manifest, f"run {run.run_id} is blocked: {lost.message}")


def _nothing(run: Manifest, problem: str) -> NothingToClaimError:
    return NothingToClaimError(problem=problem, run_id=run.run_id, state=run.state)
