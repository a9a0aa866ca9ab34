"""What people may do to a run; the state of the run decides, and actor and reason are traced."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from leasehold.attempt.values import inline, keep, load, put
from leasehold.domain import lifecycle
from leasehold.domain.artifact_name import values_folder
from leasehold.domain.change import Change, Transition
from leasehold.domain.checkpoint import CallResult, KeptValue, UnconfirmedCall
from leasehold.domain.json_text import MAX_OUTPUT_BYTES, canonical, check_size, digest, not_json
from leasehold.domain.lifecycle import BoundOperation, NewRun, Operation
from leasehold.domain.manifest import Manifest, to_document
from leasehold.domain.notes import said
from leasehold.domain.recorded_calls import calls_of, kept_files, recorded_call
from leasehold.domain.spend import SpendLimit
from leasehold.domain.stored import Ref, replace
from leasehold.domain.trials import verdict_in
from leasehold.errors import (
    AlreadyRecreatedError,
    ArtifactNameError,
    ArtifactNotFoundError,
    DamagedFileError,
    InvalidRequestError,
    LeaseholdError,
    StoreUnavailableError,
    VersionConflictError,
)
from leasehold.frozen import dataclass
from leasehold.registry.pipelines import PipelineEntry
from leasehold.services.catalog_fit import (
    check_approval,
    check_recreation,
    check_retry,
    pipeline_to_recreate,
)
from leasehold.services.engine import Engine
from leasehold.services.input_files import copy_files, drop_artifacts
from leasehold.services.output_checks import check_output, check_verdict
from leasehold.services.read_runs import get_run
from leasehold.services.request_bounds import MAX_REASON_CHARS, NOTE, is_note
from leasehold.services.start_run import checked_input, checked_labels

#: What an input, labels or an output of "as before" look like.
AS_BEFORE: Final = object()


@dataclass(frozen=True, slots=True)
class OperationRequest:
    """The request of a person.

    Args:
        operation: what is to be done.
        actor: who asks; for the trace.
        reason: why; for the trace.
        from_step: of recreate: where the new run begins, earlier outputs are kept; None: see
            `lifecycle.begins_at`.
        input: of recreate: in place of the old run's.
        labels: of recreate: in place of the old run's.
        keep_partial: of recreate: keep outputs of status PARTIAL, too.
        failed_items: of recreate: begin at the last place that worked item by item, and do those
            items alone that failed there.
        anew: of retry and recreate: drop what the step itself has kept.
        note: of retry: words for the handler; None: those before, if any.
        budget: of resume: in place of what the run may spend; None: as before.
        output: of approve: JSON values, in place of the output that was kept.
        in_batch: one of many: a run that was recreated before is refused, and to begin anew where
            nothing is kept is no mistake.
        generation: the generation of the run that was looked at; None: the actor does not say.
        step: the step that it is meant for; None: the actor does not say.
    """

    operation: Operation
    actor: str
    reason: str = ""
    from_step: str | None = None
    input: Any = AS_BEFORE
    labels: Mapping[str, str] | None = None
    keep_partial: bool = False
    failed_items: bool = False
    anew: bool = False
    note: str | None = None
    budget: SpendLimit | None = None
    output: Any = AS_BEFORE
    in_batch: bool = False
    generation: int | None = None
    step: str | None = None


def operate(engine: Engine, run_id: str, request: OperationRequest) -> Change:
    """Do what is requested, if the state of the run allows it.

    Returns:
        The change; of recreate, `created` is the new run. Of a repeat, nothing is changed and it
        `repeats` the first time.

    Raises:
        UnknownRunError: there is no such run.
        NotAllowedError: the run's state forbids it.
        BudgetUsedUpError: it has spent all that it may, and is given no more.
        PartialOutputError: an output that a new run would keep is PARTIAL.
        CatalogMisfitError: the step that would be next cannot run, or not take what it is given.
        StateChangedError: the run is not, or may not be, what the caller looked at.
        InvalidRequestError, InvalidInputError, InvalidOutputError, TooLargeError: the texts of the
            request cannot be used. In each case nothing was written.
        AlreadyRecreatedError: it was recreated before, and is to be so once.
        StoreUnavailableError: it may have been done or not.
    """
    check_request(request)
    return engine.publish_or_leave(apply(engine, get_run(engine, run_id), request))


def apply(engine: Engine, manifest: Manifest, request: OperationRequest) -> Change:
    """Do as `operate` to a run as it was read; what that owes is the caller's to publish."""
    request = _without_secrets(request)
    bound = _request(engine, manifest, request)
    if first := lifecycle.first_time(manifest, bound):
        return _with_created(engine, lifecycle.repeat_of(manifest, first))
    return _with_created(engine, _commit(engine, manifest, request, bound))


def preview(engine: Engine, manifest: Manifest, request: OperationRequest) -> Change:
    """Return what would become of a run, or raise as `operate` would; no new run gets a file."""
    request = _without_secrets(request)
    bound = _request(engine, manifest, request)
    if first := lifecycle.first_time(manifest, bound):
        return lifecycle.repeat_of(manifest, first)
    new = _new_run(engine, manifest, request)
    return _transition(engine, manifest, request, bound, new)(manifest, engine.clock.now())


def _without_secrets(request: OperationRequest) -> OperationRequest:
    """Return the request as it is traced and announced; a note is the handler's, and stays."""
    return replace(request, reason=said(request.reason))


def check_request(request: OperationRequest) -> None:
    """Raise InvalidRequestError where actor or reason are not fit for a trace, or a note is not."""
    for field, text in (("actor", request.actor), ("reason", request.reason)):
        if len(text) > MAX_REASON_CHARS or not text.isprintable():
            allowed = f"at most {MAX_REASON_CHARS} printable characters"
            raise InvalidRequestError(field=field, value=text[:MAX_REASON_CHARS], allowed=allowed)
    if request.note is not None and not is_note(request.note):
        value = f"{len(request.note.encode(errors='replace'))} bytes"
        raise InvalidRequestError(field="note", value=value, allowed=NOTE)


def request_stack(engine: Engine, run_id: str, actor: str) -> Manifest:
    """Ask the attempt that runs for its stack, and return the run; a trace event answers.

    An attempt of this process answers at once, any other with its next heartbeat.

    Raises:
        UnknownRunError: there is no such run.
        NotAllowedError: no attempt runs, or none that could hear of it.
    """
    get_run(engine, run_id)
    request = partial(lifecycle.request_stack, rules=engine.rules, actor=actor)
    return engine.publish_or_leave(engine.commit(run_id, request).answer).manifest


class _NewRun(NamedTuple):
    """The run that recreate begins.

    Args:
        run: what it is started with.
        large_input: the text of the new input that is to be an artifact; None: it has none.
        from_step: where it begins, by the request; None: see `lifecycle.begins_at`.
        items_at: the place of the old run whose finished items it keeps, if the request says so.
    """

    run: NewRun
    large_input: str | None = None
    from_step: str | None = None
    items_at: str | None = None

    @property
    def given(self) -> KeptValue:
        """Its input, as it can be read before it is stored."""
        return self.run.input if self.large_input is None else KeptValue(text=self.large_input)


def _commit(
    engine: Engine, manifest: Manifest, request: OperationRequest, bound: BoundOperation
) -> Change:
    """Do it in one commit; a new run has its files before, and one that is not begun has none.

    Where the answer to the commit is lost it may be begun, so they stay.
    """
    new = _new_run(engine, manifest, request)
    transition = _transition(engine, manifest, request, bound, new)
    if new is None and (call := manifest.position.unconfirmed_call) is not None:
        return _answer_for_call(engine, manifest, request, transition, call)
    if new is None or (new.large_input is None and not new.run.input_files):
        return engine.commit(manifest.run_id, transition).answer
    transition(manifest, engine.clock.now())  # what is refused anyway has nothing stored
    is_sent = False
    try:
        _store(engine, manifest, new)
        is_sent = True
        change = engine.commit(manifest.run_id, transition).answer
    except LeaseholdError as error:
        if not (is_sent and isinstance(error, StoreUnavailableError)):
            drop_artifacts(engine.artifacts, new.run)
        raise
    first = change.repeats
    if first is not None and first.recreated_as != new.run.run_id:  # another call was faster
        drop_artifacts(engine.artifacts, new.run)
    return change


def _store(engine: Engine, manifest: Manifest, new: _NewRun) -> None:
    """Store what a new run is to have as its own artifacts from its beginning."""
    run = new.run
    if new.large_input is not None and run.input.ref is not None:
        put(engine.artifacts, new.large_input, run.input.ref)
    copy_files(engine.artifacts, manifest, run)


def _transition(
    engine: Engine,
    manifest: Manifest,
    request: OperationRequest,
    bound: BoundOperation,
    new: _NewRun | None,
) -> Transition:
    facts: dict[str, Any] = {
        "rules": engine.dispatch_rules(),
        "actor": request.actor,
        "reason": request.reason,
    }
    match request.operation:
        case Operation.RETRY:
            check_retry(engine, manifest)
            facts |= {"note": request.note, "anew": _checked_anew(manifest, request)}
        case Operation.RESUME:
            facts["budget"] = request.budget
        case Operation.APPROVE:
            facts |= _approved(engine, manifest, request.output)
    if new is not None:
        return lifecycle.on_request(bound, _recreate(engine, manifest, request, new, facts))
    return lifecycle.on_request(bound, partial(_PLAIN[request.operation], **facts))


def _recreate(
    engine: Engine,
    manifest: Manifest,
    request: OperationRequest,
    begun: _NewRun,
    facts: dict[str, Any],
) -> Transition:
    new = begun.run
    step = lifecycle.begins_at(manifest, new, begun.from_step)
    check_recreation(engine, manifest, new, step, begun.given)
    keeps_work = lifecycle.goes_on(manifest, new, step)
    anew = _checked_anew(manifest, request, keeps_work=keeps_work)
    recreate = partial(
        lifecycle.recreate,
        **facts,
        from_step=begun.from_step,
        new=new,
        keep_partial=request.keep_partial,
        anew=anew,
        lost=_lost_files(engine, manifest) if keeps_work and not anew else (),
        items_at=begun.items_at,
    )
    return _once(recreate) if request.in_batch else recreate


def _place_of_items(manifest: Manifest, new: NewRun, request: OperationRequest) -> tuple[str, str]:
    """Return where a run begins that does failed items alone, and the old run's place of them.

    That is the last one that was reached and worked item by item, or the one that a person names;
    by its new name, where a deploy has renamed it.
    """
    reached = manifest.plan[: manifest.plan.index(manifest.position.step) + 1]
    names = [name for name in reached if lifecycle.has_items(manifest, name)]
    at = request.from_step or (names[-1] if names else "")
    gone = [name for name in names if name not in new.plan]
    is_renamed = gone and at not in manifest.whole_plan and lifecycle.has_items(new, at)
    items_at = gone[-1] if is_renamed else at
    if items_at not in names or request.anew:
        allowed = f"only where a list was worked on item by item ({', '.join(names) or 'nowhere'})"
        raise InvalidRequestError(field="failedItems", value=True, allowed=allowed)
    if new.input_digest != manifest.input_digest:
        allowed = "no other input: the items are those of the old run"
        raise InvalidRequestError(field="failedItems", value=True, allowed=allowed)
    return at, items_at


def _checked_anew(
    manifest: Manifest, request: OperationRequest, *, keeps_work: bool = True
) -> bool:
    """Return whether to begin anew, or raise InvalidRequestError where nothing would be dropped."""
    is_needless = request.anew and not (keeps_work and lifecycle.has_own_work(manifest))
    if is_needless and not request.in_batch:
        kept = "checkpoint, no results of calls and no trials"
        allowed = f"nothing here, as no {kept} would be kept: leave it out"
        raise InvalidRequestError(field="anew", value=True, allowed=allowed)
    return request.anew


def _lost_files(engine: Engine, manifest: Manifest) -> frozenset[str]:
    """Return the artifacts of what the step has kept that are not there any more.

    A version before this one deleted them at the end of the run.
    """
    names = kept_files(manifest)
    folders = {name.rpartition("/")[0] for name in names}
    found = {name for folder in folders for name in engine.artifacts.list(folder)}
    return frozenset(names) - found


def _told_of_call(
    engine: Engine, manifest: Manifest, call: UnconfirmedCall, result: Any
) -> CallResult | None:
    """Return what a person says that a call has returned, as the run keeps it.

    It is part of the commit that decides, so of two people at once one decides. None: its worker
    has recorded a result since, which stands.
    """
    known = _known_call(engine, manifest, call)
    if known is not None and not _is_unknown(engine, known, call):
        return None
    at, text = manifest.position, canonical(result)
    name = f"{values_folder(manifest)}/{at.step}-told-{digest(text)[:16]}.json"
    kept = keep(engine.artifacts, text, name)
    before = known or CallResult(step=at.step, trial=at.trial, key=call.key, type="")
    return replace(
        before,
        step=at.step,
        trial=at.trial,
        type="",
        inline=kept.text,
        ref=kept.ref,
        digest=None,
        bytes=len(text.encode()),
        at=engine.clock.now(),
        is_open=None,
    )


def _answer_for_call(
    engine: Engine,
    manifest: Manifest,
    request: OperationRequest,
    transition: Transition,
    call: UnconfirmedCall,
) -> Change:
    """Commit what a person says of a call; that it was to be made is no question any more."""
    if request.operation is Operation.RETRY:  # before the next attempt looks
        _withdraw_call(engine, manifest, call)
    change = engine.commit(manifest.run_id, transition).answer
    if request.operation is Operation.APPROVE:
        with suppress(StoreUnavailableError):  # what the run has counts in any case
            _withdraw_call(engine, manifest, call)
    return change


def _withdraw_call(engine: Engine, manifest: Manifest, call: UnconfirmedCall) -> None:
    """Forget that a call was to be made which, as a person says, has not happened.

    A result that its worker has recorded since stands, and so does a later attempt to make it.
    """
    found = engine.documents.get(_ref_of(manifest, call))
    known = None if found is None else recorded_call(found.document)
    if found is None or (known is not None and not _is_unknown(engine, known, call)):
        return
    with suppress(VersionConflictError):  # it is recorded now
        engine.documents.delete(found.ref, if_version=found)


def _known_call(engine: Engine, manifest: Manifest, call: UnconfirmedCall) -> CallResult | None:
    found = engine.documents.get(_ref_of(manifest, call))
    return None if found is None else recorded_call(found.document)


def _ref_of(manifest: Manifest, call: UnconfirmedCall) -> Ref:
    return Ref(calls_of(call.run_id or manifest.run_id), call.name)


def _is_unknown(engine: Engine, call: CallResult, asked: UnconfirmedCall) -> bool:
    """Return whether it is not known what a call returned: no result is there, or it is lost."""
    if call.attempt != asked.attempt:
        return False  # another attempt is about to make it, or has
    if call.is_open:
        return True
    try:
        load(engine.artifacts, call.value)
    except (ArtifactNotFoundError, ArtifactNameError, DamagedFileError):
        return True
    return False


def _check_told(call: UnconfirmedCall, result: Any) -> None:
    """Refuse what cannot be the result of a call, with InvalidRequestError or TooLargeError."""
    if result is AS_BEFORE:
        allowed = f"the result of the call {call.key}, as JSON; `retry` has it made again"
        raise InvalidRequestError(field="output", value="nothing", allowed=allowed)
    try:
        text = canonical(result)
    except (ValueError, TypeError) as error:
        raise not_json("output", ValueError(error)) from None
    check_size("output", text, MAX_OUTPUT_BYTES)


def _approved(engine: Engine, manifest: Manifest, value: Any) -> dict[str, Any]:
    """Return what a person puts in place of the output that was kept, if anything.

    Raises:
        InvalidOutputError, TooLargeError: it is no output of the step; nothing was kept.
        CatalogMisfitError: the step that would be next cannot run.
    """
    if (call := manifest.position.unconfirmed_call) is not None:
        _check_told(call, value)
        return {"told": _told_of_call(engine, manifest, call, value)}
    if value is AS_BEFORE:
        check_approval(engine, manifest)
        return {}
    try:
        text = canonical(value)
    except (ValueError, TypeError) as error:
        raise not_json("output", ValueError(error)) from None
    check_output(engine, manifest, text)
    check_verdict(manifest, text)
    check_approval(engine, manifest, text)
    check_size("output", text, MAX_OUTPUT_BYTES)
    step = manifest.position.step
    name = f"{values_folder(manifest)}/{step}-edited-{digest(text)[:16]}.json"
    rest = replace(
        manifest, steps={**manifest.steps, step: replace(manifest.steps[step], output=None)}
    ).text_bytes
    edited = keep(engine.artifacts, text, name, beside=rest)
    return {"edited": edited, "verdict": verdict_in(manifest, text)}


def _request(engine: Engine, manifest: Manifest, request: OperationRequest) -> BoundOperation:
    """Return the request; a decision about a block is bound to the block that was read."""
    decides = request.operation in (Operation.APPROVE, Operation.RETRY)
    return BoundOperation(
        id=engine.clock.new_id(),
        operation=request.operation,
        actor=request.actor,
        reason=request.reason,
        generation=request.generation,
        step=request.step,
        read=manifest.position.dispatch.generation if decides else None,
        options=_options(request),
        anew=request.anew,
    )


def _options(request: OperationRequest) -> str:
    """Return what tells this request from any other of its operation, as text."""
    options: dict[str, Any] = {
        "fromStep": request.from_step,
        "labels": request.labels,
        "note": request.note,
        "budget": request.budget and to_document(request.budget),
        "keepPartial": request.keep_partial or None,
        "failedItems": request.failed_items or None,
        "anew": request.anew or None,
    }
    given = {name: value for name, value in options.items() if value is not None}
    values = {"input": request.input, "output": request.output}
    given |= {name: value for name, value in values.items() if value is not AS_BEFORE}
    try:
        return canonical(given)
    except (ValueError, TypeError, RecursionError):  # a value that is refused once it is checked
        return ""


def _with_created(engine: Engine, change: Change) -> Change:
    """Return the answer to a repeated recreate with the run that was created the first time."""
    first = change.repeats
    if first is None or first.recreated_as is None:
        return change
    return change._replace(created=get_run(engine, first.recreated_as))


def _new_run(engine: Engine, manifest: Manifest, request: OperationRequest) -> _NewRun | None:
    """Return the run that the request, which is allowed, begins; None: it begins none."""
    if request.operation is not Operation.RECREATE:
        return None
    pipeline = pipeline_to_recreate(engine, manifest)
    labels = manifest.labels if request.labels is None else checked_labels(request.labels)
    new = NewRun(
        run_id=f"r-{engine.clock.new_id()}",
        pipeline=pipeline.name,
        plan=pipeline.plan,
        places=pipeline.places,
        input=KeptValue(text=manifest.input, ref=manifest.input_ref),
        input_digest=manifest.input_digest,
        nonce=engine.clock.new_id(),
        labels=labels,
        max_retries=manifest.max_retries,
        budget=manifest.budget,
        trials=pipeline.trial_rule,
        input_files=manifest.input_files,
        priority=manifest.priority,
    )
    new = new._replace(traceparent=engine.telemetry.begin(new, ""))
    large_input = None
    if request.input is not AS_BEFORE:
        new, large_input = _with_input(engine, pipeline, new, request)
    from_step, items_at = request.from_step, None
    if request.failed_items:
        from_step, items_at = _place_of_items(manifest, new, request)
    if request.input is AS_BEFORE:
        new = lifecycle.with_skips(manifest, new, lifecycle.begins_at(manifest, new, from_step))
    return _NewRun(new, large_input, from_step, items_at)


def _with_input(
    engine: Engine, pipeline: PipelineEntry, new: NewRun, request: OperationRequest
) -> tuple[NewRun, str | None]:
    """Return a run with the input of the request, and its text if that is to be an artifact."""
    if request.from_step not in (None, pipeline.plan[0]):
        allowed = f"an input only where the run begins at its first step, {pipeline.plan[0]}"
        raise InvalidRequestError(field="fromStep", value=request.from_step, allowed=allowed)
    text = checked_input(engine, pipeline, request.input)
    given = digest(text)
    name = f"{values_folder(new)}/input-{given[:16]}.json"
    kept = inline(text)
    new = new._replace(input=kept or KeptValue(ref=name), input_digest=given)
    return new, None if kept else text


def _once(recreate: Transition) -> Transition:
    def once(manifest: Manifest, now: Any) -> Change:
        if manifest.recreated_as:
            raise AlreadyRecreatedError(
                run_id=manifest.run_id, recreated_as=manifest.recreated_as[-1]
            )
        return recreate(manifest, now)

    return once


_PLAIN: Final = {
    Operation.PAUSE: lifecycle.pause,
    Operation.RESUME: lifecycle.resume,
    Operation.CANCEL: lifecycle.cancel,
    Operation.RETRY: lifecycle.retry,
    Operation.APPROVE: lifecycle.approve,
}
