"""The lifecycle of a run: every transition, as a pure function over one table (`status.NEXT`).

Each takes the manifest as stored, the store's time and the rules, and answers one `Change`, which
it makes with a `Draft`: set fields, trace events, commit.
`start` begins a run; `arrive` and `claim` are an attempt's ways in, `renew`, `checkpoint` and
`record_call` keep it going; `complete`, `fail`, `exceed_limit`, `block`, `block_attempt`,
`release`, `continue_later`, `exceed_budget`, `defer` and `expire` are its ways out; `look_again`
and the rest move a run that no attempt has. `wait_for` and `signal` are the two sides of a wait.
`purge` lets an ended run be deleted.
"""

from leasehold.domain.lifecycle.attempt import arrive, claim, then_arrive
from leasehold.domain.lifecycle.block import block_attempt, look_again
from leasehold.domain.lifecycle.children import (
    ask_again,
    begin_children,
    block_at_children,
    block_gathering,
    gather,
    give_budget,
    hear,
    note_told,
    take_items,
    wants_budget,
)
from leasehold.domain.lifecycle.hold import release_hold
from leasehold.domain.lifecycle.kept_steps import begins_at, goes_on, has_own_work, with_skips
from leasehold.domain.lifecycle.on_alarm import not_created, on_alarm, on_audit, redispatch
from leasehold.domain.lifecycle.operate import (
    ALLOWED,
    Operation,
    approve,
    cancel,
    check_allowed,
    decisions,
    has_items,
    is_allowed,
    pause,
    recreate,
    request_stack,
    resume,
    retry,
)
from leasehold.domain.lifecycle.purge import is_purgeable, note_archive, purge
from leasehold.domain.lifecycle.renewal import checkpoint, record_call, reject_checkpoint, renew
from leasehold.domain.lifecycle.repair import Breach, breaches, follow_clock, time_in_future
from leasehold.domain.lifecycle.request import BoundOperation, first_time, on_request, repeat_of
from leasehold.domain.lifecycle.settle import (
    block,
    complete,
    continue_later,
    defer,
    exceed_budget,
    exceed_limit,
    expire,
    extend_wait,
    fail,
    release,
)
from leasehold.domain.lifecycle.signal import signal, wait_for
from leasehold.domain.lifecycle.slots import await_slot, call_run
from leasehold.domain.lifecycle.start import NewRun, check_again, start
from leasehold.domain.lifecycle.termination import dead_letter

__all__ = [
    "ALLOWED",
    "BoundOperation",
    "Breach",
    "NewRun",
    "Operation",
    "approve",
    "arrive",
    "ask_again",
    "await_slot",
    "begin_children",
    "begins_at",
    "block",
    "block_at_children",
    "block_attempt",
    "block_gathering",
    "breaches",
    "call_run",
    "cancel",
    "check_again",
    "check_allowed",
    "checkpoint",
    "claim",
    "complete",
    "continue_later",
    "dead_letter",
    "decisions",
    "defer",
    "exceed_budget",
    "exceed_limit",
    "expire",
    "extend_wait",
    "fail",
    "first_time",
    "follow_clock",
    "gather",
    "give_budget",
    "goes_on",
    "has_items",
    "has_own_work",
    "hear",
    "is_allowed",
    "is_purgeable",
    "look_again",
    "not_created",
    "note_archive",
    "note_told",
    "on_alarm",
    "on_audit",
    "on_request",
    "pause",
    "purge",
    "record_call",
    "recreate",
    "redispatch",
    "reject_checkpoint",
    "release",
    "release_hold",
    "renew",
    "repeat_of",
    "request_stack",
    "resume",
    "retry",
    "signal",
    "start",
    "take_items",
    "then_arrive",
    "time_in_future",
    "wait_for",
    "wants_budget",
    "with_skips",
]
