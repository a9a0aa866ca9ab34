"""Blocks that heal: the code that is deployed cannot run a step, and is looked at again.

What a person did wrong costs a run nothing: it stands where it stood, with all that it has so far.
A look is a dispatch like any other, so a process that can run the step does; where nothing was put
right, the same block is found once more, without another announcement.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from leasehold.domain.change import Change, Draft, unchanged
from leasehold.domain.dispatch import Rules
from leasehold.domain.lease import Fence, held_lease
from leasehold.domain.lifecycle.handoff import dispatch_next
from leasehold.domain.lifecycle.settle import first_answer
from leasehold.domain.lifecycle.stop import stop
from leasehold.domain.lifecycle.termination import note_error
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Block, ErrorRecord
from leasehold.domain.notes import NO_NOTES, Notes
from leasehold.domain.retry import doubling
from leasehold.domain.status import BlockCode, Outcome, RunEvent, after
from leasehold.domain.stored import replace
from leasehold.domain.trace import TraceType

#: The first look comes after this, each further one after twice the time, up to the longest.
FIRST_BLOCK_LOOK: Final = timedelta(seconds=10)
MAX_BLOCK_LOOK: Final = timedelta(minutes=10)
_BLOCK_LOOKS: Final = doubling(FIRST_BLOCK_LOOK, MAX_BLOCK_LOOK)

_GOES_ON: Final = "the run goes on by itself then, and `retry` has it look now."
_REMEDIES: Final[Mapping[BlockCode, str]] = {
    BlockCode.HANDLER_UNAVAILABLE: f"Deploy code that can be imported; {_GOES_ON}",
    BlockCode.HANDLER_MISTAKE: f"Deploy a handler without this mistake; {_GOES_ON}",
    BlockCode.INPUT_MISMATCH: f"Deploy a handler that takes what it is given; {_GOES_ON}",
    BlockCode.INPUT_MISSING: f"Put the artifacts back where LEASEHOLD_ARTIFACTS says; {_GOES_ON}",
    BlockCode.LIMIT_UNUSABLE: f"Deploy a catalog or a handler whose limits fit the run; {_GOES_ON}",
    BlockCode.STEP_UNKNOWN: f"Deploy a catalog that has that step or pipeline; {_GOES_ON}",
    BlockCode.SKIP_REFUSED: (
        f"Deploy a catalog whose pipeline declares it, `Step(…, skips_to=(…,))`; {_GOES_ON} "
        "`approve` hands the output on as it is, to the next step where no skip is possible."
    ),
}


def block_attempt(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    fence: Fence,
    code: BlockCode,
    error: ErrorRecord,
    notes: Notes = NO_NOTES,
) -> Change:
    """Block a run whose attempt the code cannot begin, finish or judge; it counts for nothing.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        fence: the credentials of the worker.
        code: what has to be put right.
        error: the same, as the run notes it.
        notes: what is kept with it, such as an output that waits to be judged.

    Raises:
        LeaseLostError: the lease is not the one that is held.
    """
    if first := first_answer(manifest, fence):
        return first
    held_lease(manifest, now, fence)
    draft = Draft(manifest, now, rules, fence)
    draft.note(notes)
    is_first = manifest.fencing_token == 1  # what is looked at is of the run it was made of
    before = None if is_first else draft.position.dispatch.after_block
    block = _found(draft, code, error.message, before)
    if not block.looks:
        draft.trace(
            TraceType.STEP_BLOCKED,
            **block.facts,
            validation_issues=error.validation_issues,
            origin=error.origin,
            traceback=error.traceback,
        )
    note_error(draft, error)
    return stop(draft, block, RunEvent.CANNOT_RUN)


def block_unknown_step(draft: Draft) -> Change:
    """Block a run whose current step no catalog knows that is in force."""
    finding = f"No catalog that is deployed has the step {draft.position.step!r}."
    block = _found(draft, BlockCode.STEP_UNKNOWN, finding, draft.position.dispatch.after_block)
    if not block.looks:
        draft.trace(TraceType.STEP_UNKNOWN, **block.facts)
    return stop(draft, block, RunEvent.STEP_UNKNOWN)


def look_again(manifest: Manifest, now: datetime, *, rules: Rules, at_once: bool = False) -> Change:
    """Try a blocked run once more where it stands; it shows by itself whether it is put right.

    A process that does not know the step leaves it to others for the grace, and looks again later.
    A mistake of the handler is not tried again with the code that made it, or that may be the same:
    each try may pay for a call whose result cannot be kept.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        at_once: look before the time, for a process that has just begun: it may have other code,
            or other packages. One that begins again and again looks as often as the alarm at most.
    """
    look_at, block = manifest.look_at, manifest.block
    if look_at is None or block is None or (now < look_at and not at_once):
        return unchanged(manifest, Outcome.NOT_DUE)
    is_mine = rules.code_hash and block.code_hash == rules.code_hash
    if block.code == BlockCode.HANDLER_MISTAKE and (is_mine or not (at_once or rules.code_hash)):
        not_due = unchanged(manifest, Outcome.NOT_DUE)
        return not_due if at_once else _look_later(Draft(manifest, now, rules), block)
    found_at = manifest.updated_at  # ahead of now where the clock was set back since
    if at_once and is_mine and found_at <= now < found_at + FIRST_BLOCK_LOOK:
        return unchanged(manifest, Outcome.NOT_DUE)
    draft = Draft(manifest, now, rules)
    if rules.settings_for(manifest.step_type) is not None:
        return look(draft, block, RunEvent.LOOKED_AGAIN, Outcome.LOOKED_AGAIN)
    if at_once or now < look_at + rules.grace:
        return unchanged(manifest, Outcome.STEP_UNKNOWN)
    return _look_later(draft, block)


def _look_later(draft: Draft, block: Block) -> Change:
    looks = block.looks + 1
    look_at = draft.now + _BLOCK_LOOKS.wait(looks + 1)
    draft.run = replace(draft.run, block=replace(block, looks=looks, look_at=look_at))
    return draft.commit(Outcome.ALARM_SET)


def look(draft: Draft, block: Block | None, event: RunEvent, outcome: Outcome) -> Change:
    """Dispatch the step as it stands; the dispatch remembers the block that it looks at, if any."""
    status = after(draft.run.status, event)
    draft.step = replace(draft.step, status=status)
    draft.run = replace(draft.run, status=status, block=None)
    draft.position = replace(
        draft.position, dispatch=replace(draft.position.dispatch, after_block=block)
    )
    return dispatch_next(draft, outcome)


def _found(draft: Draft, code: BlockCode, finding: str, before: Block | None) -> Block:
    """Return the block; it counts as one that was found before where its code was.

    The words may differ at each look: they name addresses and ports. Of two servers each may find
    another code, in turn: each is news once.
    """
    known = () if before is None else (before.code, *(before.codes_before or ()))
    looks = before.looks + 1 if before is not None and code.value in known else 0
    others = tuple(sorted({*known} - {code.value}))
    return Block(
        code=code.value,
        finding=finding,
        remediation=_REMEDIES[code],
        look_at=draft.now + _BLOCK_LOOKS.wait(looks + 1),
        looks=looks,
        codes_before=others or None,
        code_hash=draft.rules.code_hash or None,
    )
