"""A run that waits for its children, and what they hear of it; see `domain/children.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from leasehold.domain.change import Change, Draft, unchanged, with_index_fields
from leasehold.domain.children import CHILDREN_BLOCKED, ITEMS_MISSING, Children, flat, halved
from leasehold.domain.dispatch import Rules
from leasehold.domain.effect import question_task
from leasehold.domain.lease import Fence, held_lease
from leasehold.domain.lifecycle.handoff import dispatch_next
from leasehold.domain.lifecycle.operate import Operation, cancel, is_allowed, pause, resume, retry
from leasehold.domain.lifecycle.settle import first_answer
from leasehold.domain.lifecycle.start import NewRun, start
from leasehold.domain.lifecycle.stop import RAISE_BUDGET, stop
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Block
from leasehold.domain.notes import NO_NOTES, Notes
from leasehold.domain.retry import doubling
from leasehold.domain.spend import BUDGET_EXCEEDED, SpendLimit
from leasehold.domain.status import Outcome, RunEvent, RunStatus, after
from leasehold.domain.stored import replace
from leasehold.domain.trace import TraceType
from leasehold.errors import BudgetUsedUpError

#: A parent that hears nothing asks by itself: a minute after its children began, and ever later.
MAX_PARENT_LOOK: Final = timedelta(minutes=10)
#: Likewise where all of them wait for a person, who may take days.
MAX_BLOCKED_PARENT_LOOK: Final = timedelta(hours=1)

#: Who says what children hear.
PARENT: Final = "parent"


def begin_children(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    fence: Fence,
    kind: str,
    items: int,
    runs: Sequence[NewRun],
    notes: Notes = NO_NOTES,
) -> Change:
    """End the attempt that made the children; the run waits for them, without a worker.

    They begin with the same commit: a parent that was cancelled meanwhile has none, and none is
    there whose parent does not know.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        fence: the credentials of the worker.
        kind: of the place; see `Children`.
        items: how many items there are in all; 0: the children have none.
        runs: the children, without the link to their parent's new generation.
        notes: what is kept with it.

    Raises:
        LeaseLostError: the lease is not the one that is held.
        UnknownKeyError: this deploy does not know the first step of one.
    """
    if first := first_answer(manifest, fence):
        return first
    held_lease(manifest, now, fence)
    draft = Draft(manifest, now, rules, fence)
    draft.note(notes)
    dispatch = draft.position.dispatch.under_next_generation
    children = Children(
        kind=kind, items=items, runs=len(runs), since=now, look_at=now + rules.grace
    )
    if manifest.paused:  # they begin, and are told
        children = replace(children, word=1, say=Operation.PAUSE.value)
    draft.step = replace(draft.step, status=RunStatus.PENDING)
    draft.run = replace(draft.run, status=after(manifest.status, RunEvent.CHILDREN_BEGUN))
    draft.position = replace(
        draft.position,
        lease=None,
        children=children,
        dispatch=replace(dispatch, after_block=None, redispatched=0, lost_since=None, deferred=0),
    )
    draft.count_anew()
    said = f"{len(runs)} for {items} items" if items else ", ".join(run.pipeline for run in runs)
    draft.trace(TraceType.CHILDREN_BEGUN, detail=said, runs=[run.run_id for run in runs])
    change = draft.commit(Outcome.CHILDREN_BEGUN)
    generation = change.manifest.position.dispatch.generation
    begun = [_begun(run, now, rules, generation) for run in runs]
    return change._replace(
        children=tuple(one.manifest for one in begun),
        deliveries=change.deliveries + tuple(told for one in begun for told in one.deliveries),
    )


def _begun(new: NewRun, now: datetime, rules: Rules, generation: int) -> Change:
    """Return the start of a child; one that begins with a wait is announced, as others are."""
    assert new.parent is not None  # noqa: S101 - a child has one
    since = new.parent.since or now
    new = new._replace(parent=replace(new.parent, generation=generation, since=since))
    begun = start(None, now, rules=rules, new=new)
    return begun._replace(manifest=with_index_fields(begun.manifest, rules.grace))


def ask_again(manifest: Manifest, now: datetime, *, rules: Rules) -> Change:
    """Owe the question whether the children are through, and ask later once more."""
    children = manifest.position.children
    if children is None or not manifest.is_resting:
        return unchanged(manifest, Outcome.MOVED_ON)
    draft = Draft(manifest, now, rules)
    looks = children.looks + 1
    longest = MAX_PARENT_LOOK if manifest.asks_at is None else MAX_BLOCKED_PARENT_LOOK
    waits = doubling(rules.grace, max(rules.grace, longest)).wait(looks + 1)
    children = replace(children, looks=looks, look_at=now + waits)
    draft.position = replace(draft.position, children=children)
    change = draft.commit(Outcome.ASKED)
    return change._replace(wake=question_task(change.manifest))


def gather(manifest: Manifest, now: datetime, *, rules: Rules, asked: Children | None) -> Change:
    """Dispatch the attempt that gathers what the children made: all of them are through.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        asked: the children that are through. While they were looked for, the run may have gone on
            to another place, whose children have just begun.
    """
    children = manifest.position.children
    if children is None or not _is_asked(manifest, asked) or manifest.paused:
        return unchanged(manifest, Outcome.MOVED_ON)
    if manifest.block is not None and manifest.block.code == ITEMS_MISSING:
        return unchanged(manifest, Outcome.BLOCKED)  # a late hint finds no more than before
    draft = Draft(manifest, now, rules)
    draft.step = replace(draft.step, status=RunStatus.PENDING)
    draft.run = replace(draft.run, status=RunStatus.PENDING, block=None)
    draft.position = replace(draft.position, children=replace(children, over=True))
    return dispatch_next(draft, Outcome.CONTINUED)


def _is_asked(manifest: Manifest, asked: Children | None) -> bool:
    """Return whether a run still waits for the children that were asked for."""
    children = manifest.position.children
    is_same = children is not None and asked is not None and children.since == asked.since
    return is_same and manifest.is_resting and not manifest.is_terminal


def block_at_children(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    asked: Children | None,
    finding: str,
    code: str = CHILDREN_BLOCKED,
) -> Change:
    """Block a run whose children all wait for a person, or left something out."""
    is_known = manifest.block is not None and manifest.block.code == code
    if not _is_asked(manifest, asked) or manifest.paused or is_known:
        return unchanged(manifest, Outcome.MOVED_ON)
    if manifest.status is RunStatus.BLOCKED:
        return unchanged(manifest, Outcome.BLOCKED)
    draft = Draft(manifest, now, rules)
    if (children := draft.position.children) is not None:
        later = replace(children, looks=0, look_at=now + rules.grace)
        draft.position = replace(draft.position, children=later)
    return _stopped(draft, finding, code)


def block_gathering(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    fence: Fence,
    finding: str,
    code: str,
    notes: Notes = NO_NOTES,
) -> Change:
    """End the attempt that gathers: something is missing, and a person decides."""
    if first := first_answer(manifest, fence):
        return first
    held_lease(manifest, now, fence)
    draft = Draft(manifest, now, rules, fence)
    draft.note(notes)
    draft.run = replace(draft.run, status=after(manifest.status, RunEvent.CHILDREN_BEGUN))
    children = draft.position.children
    draft.position = replace(draft.position, children=children and replace(children, over=False))
    return _stopped(draft, finding, code)


def _stopped(draft: Draft, finding: str, code: str) -> Change:
    block = Block(code=code, finding=finding, remediation=_REMEDIES[code])
    return stop(draft, block, RunEvent.CHILDREN_STOPPED, traced=TraceType.CHILDREN_BLOCKED)


_REMEDIES: Final = {
    CHILDREN_BLOCKED: "Put right what they wait for, and `leasehold retry RUN` has all of them "
    "try again; what they have done is kept.",
    BUDGET_EXCEEDED: RAISE_BUDGET,
    ITEMS_MISSING: "`leasehold retry RUN` does those alone once more; what is done is kept.",
}


def hear(
    manifest: Manifest, now: datetime, *, rules: Rules, parent_id: str, word: int, say: str
) -> Change:
    """Do with a child what a person said of its parent; a later word was heard before, if any.

    Args:
        manifest: the child.
        now: the store's time.
        rules: the rules in force.
        parent_id: the parent.
        word: the number of the word.
        say: the word.
    """
    link = manifest.parent
    if link is None or link.run_id != parent_id or link.heard >= word:
        return unchanged(manifest, Outcome.MOVED_ON)
    heard = replace(manifest, parent=replace(link, heard=word))
    operation = Operation(say)
    if operation in _GOING_ON and _is_over_own_budget(heard):  # its parent gives it more, or not
        return Draft(replace(heard, paused=False), now, rules).commit(Outcome.CHILDREN_TOLD)
    if not is_allowed(heard, operation):
        return Draft(heard, now, rules).commit(Outcome.CHILDREN_TOLD)
    reason = f"run {parent_id}: {say}"
    return _HEARD[operation](heard, now, rules=rules, actor=PARENT, reason=reason)


_GOING_ON: Final = (Operation.RESUME, Operation.RETRY)


def _is_over_own_budget(child: Manifest) -> bool:
    """Return whether a child waits for more of its parent's budget, and for nothing else."""
    block, limit = child.block, child.budget
    if child.status is not RunStatus.BLOCKED or block is None or limit is None:
        return False
    return block.code == BUDGET_EXCEEDED and limit.is_used_up_by(child.spend)


def wants_budget(child: Manifest) -> bool:
    """Return whether a child goes on with more of its parent's budget."""
    return _is_over_own_budget(child) and not child.paused


def give_budget(
    manifest: Manifest, now: datetime, *, rules: Rules, share: SpendLimit, generation: int
) -> Change:
    """Have a child go on with a share of what its parent has left of its budget.

    Args:
        manifest: the child.
        now: the store's time.
        rules: the rules in force.
        share: how much more it may spend.
        generation: that of the child when the share was made; it gets no second one for it.
    """
    if manifest.position.dispatch.generation != generation or not wants_budget(manifest):
        return unchanged(manifest, Outcome.MOVED_ON)
    given = replace(manifest, budget=share.beyond(manifest.spend))
    reason = f"a share of the budget of its parent: {share.words}"
    try:
        return resume(given, now, rules=rules, actor=PARENT, reason=reason)
    except BudgetUsedUpError:  # that of its step as well
        return unchanged(manifest, Outcome.BLOCKED)


_HEARD: Final[Mapping[Operation, Callable[..., Change]]] = {
    Operation.PAUSE: pause,
    Operation.RESUME: resume,
    Operation.CANCEL: cancel,
    Operation.RETRY: retry,
}


def note_told(manifest: Manifest, now: datetime, *, rules: Rules, word: int) -> Change:
    """Note that all children have heard a word of people."""
    children = manifest.position.children
    if children is None or children.told >= word:
        return unchanged(manifest, Outcome.MOVED_ON)
    draft = Draft(manifest, now, rules)
    draft.position = replace(draft.position, children=replace(children, told=word))
    return draft.commit(Outcome.CHILDREN_TOLD)


def take_items(
    manifest: Manifest, now: datetime, *, rules: Rules, run_id: str, nonce: str
) -> Change:
    """Give half of what a lane has ahead to a new lane; the item at hand stays.

    Both are written by one commit, so each item is some lane's at any time.

    Args:
        manifest: the lane that has the most ahead.
        now: the store's time.
        rules: the rules in force.
        run_id: the new lane.
        nonce: of its tasks.
    """
    lane, link = manifest.lane, manifest.parent
    if lane is None or link is None or manifest.is_terminal or manifest.paused or not lane.ahead:
        return unchanged(manifest, Outcome.MOVED_ON)
    kept, taken = halved(lane)
    limit, spend = manifest.budget, manifest.spend
    if not taken or (limit is not None and limit.is_used_up_by(spend)):
        return unchanged(manifest, Outcome.MOVED_ON)
    share = None if limit is None else limit.shared(spend, 2)  # one takes half of that, too
    new = NewRun(
        run_id=run_id,
        pipeline=manifest.pipeline,
        plan=manifest.plan,
        input=manifest.given,
        input_digest=manifest.input_digest,
        nonce=nonce,
        labels=manifest.labels,
        max_retries=manifest.max_retries,
        budget=share,
        traceparent=manifest.traceparent,
        priority=manifest.priority,
        parent=link,
        lane=replace(lane, ahead=flat(taken), done=0, failed=0),
        is_listed=False,
    )
    draft = Draft(manifest, now, rules)
    draft.run = replace(draft.run, lane=replace(lane, ahead=flat(kept)))
    if share is not None:
        draft.run = replace(draft.run, budget=share.beyond(spend))
    taken_over = _begun(new, now, rules, link.generation).manifest
    return draft.commit(Outcome.ITEMS_TAKEN, taken_over)
