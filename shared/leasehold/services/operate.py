"""What people may do to a run; the state of the run decides, and actor and reason are traced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from leasehold.domain import lifecycle
from leasehold.domain.change import Change, Transition
from leasehold.domain.json_text import canonical, digest
from leasehold.domain.kept_value import KeptValue
from leasehold.domain.lifecycle import BoundOperation, NewRun, Operation
from leasehold.domain.manifest import Manifest
from leasehold.errors import AlreadyRecreatedError, InvalidRequestError
from leasehold.registry.pipelines import PipelineEntry
from leasehold.services.engine import Engine, commit, dispatch_rules, publish_or_leave
from leasehold.services.kept_values import keep
from leasehold.services.limits import MAX_REASON
from leasehold.services.read_runs import get_run
from leasehold.services.start_run import checked_input, checked_labels

#: What an input or labels of "as before" look like.
AS_BEFORE: Final = object()


@dataclass(frozen=True, slots=True)
class OperationRequest:
    """What a person asks for.

    Args:
        operation: what is to be done.
        actor: who asks; for the trace.
        reason: why; for the trace.
        from_step: of recreate: where the new run begins, earlier outputs are kept; None: at the
            first step.
        input: of recreate: in place of the old run's.
        labels: of recreate: in place of the old run's.
        keep_partial: of recreate: keep outputs of status PARTIAL, too.
        once: of recreate: refuse a run that was recreated before.
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
    once: bool = False
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
        PartialOutputError: an output that a new run would keep is PARTIAL.
        StateChangedError: the run is not, or may not be, what the caller looked at.
        InvalidRequestError, InvalidInputError, TooLargeError, UnknownPipelineError: the texts of
            the request cannot be used. In each case nothing was written.
        AlreadyRecreatedError: it was recreated before, and is to be so once.
        StoreUnavailableError: it may have been done or not.
    """
    check_request(request)
    return publish_or_leave(engine, apply(engine, get_run(engine, run_id), request))


def apply(engine: Engine, manifest: Manifest, request: OperationRequest) -> Change:
    """Do as `operate` to a run as it was read; what that owes is the caller's to publish."""
    bound = _request(engine, manifest, request)
    if first := lifecycle.first_time(manifest, bound):
        return _with_created(engine, lifecycle.repeat_of(manifest, first))
    transition = _transition(engine, manifest, request, bound)
    return _with_created(engine, commit(engine, manifest.run_id, transition).answer)


def preview(engine: Engine, manifest: Manifest, request: OperationRequest) -> Change:
    """Return what would become of a run, or raise as `operate` would; an input would be stored."""
    bound = _request(engine, manifest, request)
    if first := lifecycle.first_time(manifest, bound):
        return lifecycle.repeat_of(manifest, first)
    return _transition(engine, manifest, request, bound)(manifest, engine.clock.now())


def check_request(request: OperationRequest) -> None:
    """Raise InvalidRequestError where actor or reason are not fit for a trace."""
    for field, text in (("actor", request.actor), ("reason", request.reason)):
        if len(text) > MAX_REASON or not text.isprintable():
            allowed = f"at most {MAX_REASON} printable characters"
            raise InvalidRequestError(field=field, value=text[:MAX_REASON], allowed=allowed)


def _transition(
    engine: Engine, manifest: Manifest, request: OperationRequest, bound: BoundOperation
) -> Transition:
    facts: dict[str, Any] = {
        "rules": dispatch_rules(engine),
        "actor": request.actor,
        "reason": request.reason,
    }
    if request.operation is not Operation.RECREATE:
        return lifecycle.on_request(bound, partial(_PLAIN[request.operation], **facts))
    new = _new_run(engine, manifest, request)
    recreate = partial(
        lifecycle.recreate,
        **facts,
        from_step=request.from_step or new.plan[0],
        new=new,
        keep_partial=request.keep_partial,
    )
    return lifecycle.on_request(bound, _once(recreate) if request.once else recreate)


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
        read=manifest.dispatch.generation if decides else None,
        options=_options(request),
    )


def _options(request: OperationRequest) -> str:
    """Return what tells this recreation from any other, as text."""
    options: dict[str, Any] = {"fromStep": request.from_step, "labels": request.labels}
    given = {name: value for name, value in options.items() if value is not None}
    if request.keep_partial:
        given["keepPartial"] = True
    if request.input is not AS_BEFORE:
        given["input"] = request.input
    try:
        return canonical(given)
    except (ValueError, TypeError, RecursionError):  # an input that is refused once it is checked
        return ""


def _with_created(engine: Engine, change: Change) -> Change:
    """Return the answer to a repeated recreate with the run that was created the first time."""
    first = change.repeats
    if first is None or first.recreated_as is None:
        return change
    return replace(change, created=get_run(engine, first.recreated_as))


def _new_run(engine: Engine, manifest: Manifest, request: OperationRequest) -> NewRun:
    pipeline = engine.catalog.pipeline(manifest.pipeline)
    labels = manifest.labels if request.labels is None else checked_labels(request.labels)
    new = NewRun(
        run_id=f"r-{engine.clock.new_id()}",
        pipeline=pipeline.name,
        plan=pipeline.steps,
        input=KeptValue(text=manifest.input, ref=manifest.input_ref),
        input_digest=manifest.input_digest,
        nonce=engine.clock.new_id(),
        labels=labels,
        max_retries=manifest.max_retries,
        trials=pipeline.trial_rule,
    )
    if request.input is AS_BEFORE:
        return new
    return _with_input(engine, pipeline, new, request)


def _with_input(
    engine: Engine, pipeline: PipelineEntry, new: NewRun, request: OperationRequest
) -> NewRun:
    if request.from_step not in (None, pipeline.steps[0]):
        allowed = f"an input only where the run begins at its first step, {pipeline.steps[0]}"
        raise InvalidRequestError(field="fromStep", value=request.from_step, allowed=allowed)
    text = checked_input(engine, pipeline, request.input)
    given = digest(text)
    name = f"runs/{new.run_id}/values/input-{given[:16]}.json"
    return replace(new, input=keep(engine.artifacts, text, name), input_digest=given)


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
