"""The start of a run, and finding the run that an idempotency key started before."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

from leasehold.domain.change import Change, Draft, unchanged, with_index_fields
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.children import ChildLink, ItemsOf, Lane
from leasehold.domain.dispatch import Rules, dispatch_of
from leasehold.domain.lifecycle.handoff import begin_wait, dispatch_next
from leasehold.domain.manifest import Manifest, Position, life_of
from leasehold.domain.manifest_parts import (
    InputFile,
    Place,
    SkippedStep,
    StepRecord,
    TrialRule,
    step_type_at,
)
from leasehold.domain.spend import SpendLimit
from leasehold.domain.status import PENDING, Outcome
from leasehold.domain.stored import make
from leasehold.errors import DocumentExistsError, IdempotencyKeyReusedError, RunBeingPurgedError

#: How many shards lead the alarm's index, so that no timestamp leads it.
SHARDS: Final = 16


class NewRun(NamedTuple):
    """The arguments of the start of a run.

    `plan`, `places`, `trials` and `budget` are pinned: a later deploy does not change them.
    `max_retries` holds for each of its steps; None: what the steps say. `parent` is the run
    that waits for it, and `lane` what it is to do there one after the other. No list shows one that
    is not `is_listed`. `items_of` names a run whose finished items count where this one begins.
    """

    run_id: str
    pipeline: str
    plan: tuple[str, ...]
    input: KeptValue
    input_digest: str
    nonce: str
    labels: tuple[str, ...] = ()
    idempotency_key: str | None = None
    recreated_from: str | None = None
    max_retries: int | None = None
    budget: SpendLimit | None = None
    trials: TrialRule | None = None
    places: Mapping[str, Place] | None = None
    skipped: tuple[SkippedStep, ...] | None = None
    input_files: tuple[InputFile, ...] = ()
    traceparent: str | None = None
    priority: str | None = None
    parent: ChildLink | None = None
    lane: Lane | None = None
    is_listed: bool = True
    items_of: ItemsOf | None = None

    @property
    def life(self) -> str:
        """The mark of the life of the id that begins."""
        return life_of(self.nonce)


def start(current: Manifest | None, now: datetime, *, rules: Rules, new: NewRun) -> Change:
    """Begin the run, or answer with the one that the same key began with the same input.

    Raises:
        IdempotencyKeyReusedError: the key began a run with something else.
        UnknownKeyError: this deploy does not know the first step.
    """
    if current is not None:
        check_again(current, new)
        return unchanged(current, Outcome.EXISTING)
    steps = dict.fromkeys(new.plan, make(StepRecord, status=PENDING))
    manifest = new_manifest(now, rules=rules, new=new, step=new.plan[0], steps=steps)
    if manifest.places is not None and manifest.wait_rule_at(new.plan[0]) is not None:
        draft = Draft(manifest, now, rules)
        begin_wait(draft)
        waiting = dispatch_next(draft, Outcome.STARTED)
        return waiting._replace(outcome=Outcome.STARTED, before=None)
    return Change(Outcome.STARTED, manifest)


def new_manifest(
    now: datetime,
    *,
    rules: Rules,
    new: NewRun,
    step: str,
    steps: dict[str, StepRecord],
) -> Manifest:
    """Return the manifest of a run that is dispatched at a step of its plan.

    Raises:
        UnknownKeyError: this deploy does not know the step.
    """
    trial = 1 if new.lane is None else new.lane.unit[0] + 1  # what an item keeps is that trial's
    dispatch = dispatch_of(
        rules.known_settings(step_type_at(new.places, step)),
        step=step,
        generation=1,
        trial=trial,
        not_before=now,
        nonce=new.nonce,
        traceparent=new.traceparent,
        max_retries=new.max_retries,
    )
    manifest = make(
        Manifest,
        run_id=new.run_id,
        life=new.life,
        pipeline=new.pipeline,
        plan=new.plan,
        places=new.places,
        skipped=new.skipped,
        labels=new.labels,
        idempotency_key=new.idempotency_key,
        input_digest=new.input_digest,
        input=new.input.text,
        input_ref=new.input.ref,
        input_files=new.input_files,
        has_files=bool(new.input_files),
        status=PENDING,
        position=make(
            Position,
            step=step,
            trial=trial,
            dispatch=dispatch,
            items_of=new.items_of,
        ),
        listed_at=now if new.is_listed else None,
        began_at=None if new.is_listed else now,
        updated_at=now,
        shard=shard_of(new.run_id),
        steps=steps,
        recreated_from=new.recreated_from,
        max_retries=new.max_retries,
        budget=new.budget,
        trials=new.trials,
        priority=new.priority,
        parent=new.parent,
        lane=new.lane,
    )
    return with_index_fields(manifest, rules.grace)


def shard_of(run_id: str) -> int:
    """Return the shard that leads a run's alarm in the index."""
    return zlib.crc32(run_id.encode()) % SHARDS


def check_again(current: Manifest, new: NewRun) -> None:
    """Refuse a start whose run is there already, unless it says the same.

    Raises:
        IdempotencyKeyReusedError: the key began a run with something else.
        RunBeingPurgedError: that run is being deleted. Retryable.
    """
    if new.idempotency_key is None:
        raise DocumentExistsError(ref=f"runs/{new.run_id}")  # two random ids met
    if current.purged_at is not None:
        raise RunBeingPurgedError(key=new.idempotency_key, run_id=current.run_id)
    differences = {
        "pipeline": current.pipeline != new.pipeline,
        "input": current.input_digest != new.input_digest,
        "set of files": current.input_files != new.input_files,
        "set of labels": sorted(current.labels) != sorted(new.labels),
        "maxRetries (--no-retry)": current.max_retries != new.max_retries,
    }
    for differs in (name for name, is_another in differences.items() if is_another):
        raise IdempotencyKeyReusedError(
            key=new.idempotency_key,
            run_id=current.run_id,
            pipeline=current.pipeline,
            differs=differs,
        )
