"""The start of a run: everything is checked before anything is written."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import datetime
from functools import partial
from typing import Any, Final

from leasehold.attempt.values import discard, inline, put
from leasehold.domain import lifecycle
from leasehold.domain.artifact_name import values_folder
from leasehold.domain.change import Change
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.json_text import MAX_INPUT_BYTES, canonical, check_size, digest
from leasehold.domain.lifecycle import NewRun
from leasehold.domain.manifest import Manifest, manifest_of, run_ref
from leasehold.domain.notes import said
from leasehold.domain.slots import Priority
from leasehold.domain.spend import SpendLimit, limit_of
from leasehold.errors import (
    InvalidInputError,
    InvalidRequestError,
    LeaseholdError,
    StoreUnavailableError,
)
from leasehold.frozen import dataclass
from leasehold.ports.documents import Committed
from leasehold.ports.handler_runner import HandlerChecks
from leasehold.registry.dispatch import REMOTE
from leasehold.registry.pipelines import Catalog, PipelineEntry
from leasehold.services.check_chain import check_chain, misfit_at
from leasehold.services.engine import Engine, create_run
from leasehold.services.input_files import checked_files, drop_artifacts, store_files
from leasehold.services.request_bounds import (
    MAX_IDEMPOTENCY_KEY_CHARS,
    MAX_LABEL_CHARS,
    MAX_LABELS,
    MAX_RETRIES,
)

#: Of so many pipelines it is known that their code is there, and fits.
_MAX_PIPELINES_CHECKED: Final = 1000

_Start = Callable[[Manifest | None, datetime], Change]


@dataclass(frozen=True, slots=True)
class StartRequest:
    """The request of a caller.

    Args:
        pipeline: the name of a pipeline.
        input: JSON values that fit the model of the first step.
        idempotency_key: the same key and input always name the same run.
        labels: at most 16, for lists to be filtered by.
        max_retries: how often a failed attempt of any step is repeated; None: as its step says.
        files: what the run is to have as files from its beginning, by name.
        traceparent: the W3C trace context that the run joins; empty: it has its own.
        budget: how much it may spend before it blocks, in place of what its pipeline says; a kind
            that it leaves out is as that says.
        priority: its class in the lines of limits: `high`, `normal` or `low`.
    """

    pipeline: str
    input: Any
    idempotency_key: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    max_retries: int | None = None
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    traceparent: str = ""
    budget: SpendLimit | None = None
    priority: str = Priority.NORMAL


def start_run(engine: Engine, request: StartRequest) -> Change:
    """Start the run, or answer with the one that the key started before; see `begin`."""
    return engine.publish_or_leave(begin(engine, request).answer)


def begin(engine: Engine, request: StartRequest, *, eager: bool = False) -> Committed[Change]:
    """Record the run; what that owes is the caller's to publish.

    Args:
        engine: the parts.
        request: what is asked for.
        eager: take the lease of the first step in the same commit: the caller runs it at once.

    Raises:
        UnknownPipelineError, HandlerNotFoundError, EntryActionNotFoundError, ChainError,
        ReviewerModelError, InvalidRequestError, InvalidInputError, ArtifactNameError,
        TooLargeError: nothing was written.
        IdempotencyKeyReusedError: the key started something else.
        StoreUnavailableError: the run may be there or not; start it again with the same key.
    """
    pipeline = engine.catalog.pipeline(request.pipeline)
    labels = checked_labels(request.labels)
    run_id = _run_id(engine, request.idempotency_key)
    text = checked_input(engine, pipeline, request.input)
    kept = inline(text)
    new = NewRun(
        run_id=run_id,
        pipeline=pipeline.name,
        plan=pipeline.plan,
        places=pipeline.places,
        input=kept or KeptValue(text=text),
        input_digest=digest(text),
        nonce=engine.clock.new_id(),
        labels=labels,
        idempotency_key=request.idempotency_key,
        max_retries=checked_retries(request.max_retries),
        budget=limit_of(pipeline.spend_limit, request.budget),
        trials=pipeline.trial_rule,
        input_files=checked_files(request.files),
        priority=checked_priority(request.priority),
    )
    if traceparent := engine.telemetry.begin(new, request.traceparent):
        new = new._replace(traceparent=traceparent)
    was_there = _check_large(engine, new, text)
    if kept is None:
        new = new._replace(input=KeptValue(ref=_name_of_input(new)))
    if not was_there:
        try:
            _store(engine, new, text, request.files)
        except LeaseholdError:  # a part of it may be there, and nothing else begins the life
            _drop_artifacts(engine, new)
            raise
    started: _Start = partial(lifecycle.start, rules=engine.dispatch_rules(), new=new)
    if eager:
        lease_id, holder = engine.clock.new_id(), engine.process.holder
        started = lifecycle.then_arrive(
            started, rules=engine.rules, lease_id=lease_id, holder=holder
        )
    try:
        begun = create_run(engine, run_id, started, is_new=request.idempotency_key is None)
    except LeaseholdError as error:
        if not (was_there or isinstance(error, StoreUnavailableError)):  # else it may be begun
            _drop_artifacts(engine, new)
        raise
    if was_there and begun.answer.changed:  # it was purged meanwhile
        _store(engine, new, text, request.files)
    elif not (was_there or begun.answer.changed):  # another start with the key was faster
        _drop_artifacts(engine, new)
    return begun


def _check_large(engine: Engine, new: NewRun, text: str) -> bool:
    """Return whether the run is there: a key that is refused is to leave nothing large behind."""
    is_large = new.idempotency_key is not None and (inline(text) is None or bool(new.input_files))
    found = engine.documents.get(run_ref(new.run_id)) if is_large else None
    if found is None:
        return False
    lifecycle.check_again(manifest_of(new.run_id, found.document), new)
    return True


def _name_of_input(new: NewRun) -> str:
    return f"{values_folder(new)}/input-{new.input_digest[:16]}.json"


def _store(engine: Engine, new: NewRun, text: str, files: Mapping[str, bytes]) -> None:
    """Store a large input, and the files, before the run."""
    if new.input.ref is not None:
        put(engine.artifacts, text, new.input.ref)
    store_files(engine.artifacts, new, files)


def _drop_artifacts(engine: Engine, new: NewRun) -> None:
    """Delete the artifacts of a run whose life did not begin, if it was to have any."""
    if new.input_files:
        drop_artifacts(engine.artifacts, new)
    elif new.input.ref is not None:
        discard(engine.artifacts, new.input.ref, engine.threads)


def _run_id(engine: Engine, key: str | None) -> str:
    if key is None:
        return f"r-{engine.clock.new_id()}"
    if (
        not isinstance(key, str)
        or not 0 < len(key) <= MAX_IDEMPOTENCY_KEY_CHARS
        or not key.isprintable()
    ):
        allowed = f"1 to {MAX_IDEMPOTENCY_KEY_CHARS} printable characters"
        raise InvalidRequestError(
            field="idempotencyKey", value=str(key)[:MAX_IDEMPOTENCY_KEY_CHARS], allowed=allowed
        )
    return f"r-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def checked_input(engine: Engine, pipeline: PipelineEntry, value: Any) -> str:
    """Return the JSON text of an input that fits the pipeline's first step.

    Raises:
        HandlerNotFoundError, ChainError, ReviewerModelError, InvalidInputError, TooLargeError:
            nothing can be started with it.
    """
    _check_code(engine.catalog, engine.handlers.checks, pipeline)
    try:
        text = canonical(value)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(pipeline=pipeline.name, model="JSON", problem=str(error)) from None
    check_size("input", text, MAX_INPUT_BYTES)
    catalog, checks, first = engine.catalog, engine.handlers.checks, pipeline.plan[0]
    if found := misfit_at(catalog, checks, pipeline.places, first, text):
        raise InvalidInputError(
            pipeline=pipeline.name,
            model=found.model,
            problem=found.problem,
            issues=found.issues,
            issue_count=found.count,
        )
    return text


@functools.lru_cache(maxsize=_MAX_PIPELINES_CHECKED)
def _check_code(catalog: Catalog, checks: HandlerChecks, pipeline: PipelineEntry) -> None:
    """Raise where code of a pipeline is missing or does not fit; what is found stays imported."""
    entries = [catalog.steps[step] for step in pipeline.step_types]
    for entry in entries:
        if entry.handler != REMOTE:
            checks.check(entry)
            checks.check_entry_actions(entry)
    for entry in entries:
        for gate in catalog.gates_of(entry.step_type):
            checks.check(gate)
    check_chain(catalog, checks, pipeline)


def checked_priority(priority: str) -> str | None:
    """Return a priority as it is stored, or raise InvalidRequestError; None: normal."""
    if priority not in Priority.__members__.values():
        allowed = ", ".join(Priority)
        raise InvalidRequestError(field="priority", value=priority, allowed=allowed)
    return None if priority == Priority.NORMAL else str(priority)


def checked_retries(count: int | None) -> int | None:
    """Return how often to retry, or raise InvalidRequestError."""
    is_number = isinstance(count, int) and not isinstance(count, bool)
    if count is None or (is_number and 0 <= count <= MAX_RETRIES):
        return count
    allowed = f"a whole number from 0 to {MAX_RETRIES}"
    raise InvalidRequestError(field="maxRetries", value=count, allowed=allowed)


def checked_labels(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return labels as they are stored, `key:value`, or raise InvalidRequestError."""
    if len(labels) > MAX_LABELS:
        allowed = f"at most {MAX_LABELS} labels"
        raise InvalidRequestError(field="labels", value=len(labels), allowed=allowed)
    for key, value in labels.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidRequestError(field="labels", value=labels, allowed="texts only")
        fits = (
            0 < len(key) <= MAX_LABEL_CHARS and 0 < len(value) <= MAX_LABEL_CHARS and ":" not in key
        )
        if not fits or not (key + value).isprintable():
            allowed = f"key:value of 1 to {MAX_LABEL_CHARS} printable characters each"
            shown = said(f"{key}:{value}")[:200]
            raise InvalidRequestError(field="labels", value=shown, allowed=allowed)
        if (safe := said(f"{key}:{value}")) != f"{key}:{value}":
            allowed = "labels that do not look like a secret: lists show them, and filter by them"
            raise InvalidRequestError(field="labels", value=safe, allowed=allowed)
    return tuple([f"{key}:{value}" for key, value in labels.items()])
