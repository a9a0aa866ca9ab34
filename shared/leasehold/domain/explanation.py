"""What a run waits for, until when, and what would happen then: `why`, in one sentence.

What would happen is not described here: the transition of that time is applied to the run, and
nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from leasehold.domain.announcement import Announcement
from leasehold.domain.change import Change
from leasehold.domain.delivery import Delivery, DeliveryState
from leasehold.domain.dispatch import Rules
from leasehold.domain.effect import is_awaited, owed_effects
from leasehold.domain.lifecycle.on_alarm import on_alarm
from leasehold.domain.lifecycle.operate import Operation, decisions
from leasehold.domain.lifecycle.repair import flaws, flaws_at
from leasehold.domain.manifest import Manifest
from leasehold.domain.printable import counted
from leasehold.domain.signal import Wait
from leasehold.domain.status import Outcome, RunStatus
from leasehold.domain.step_pause import Hold, StepPause, resume_command
from leasehold.domain.timestamps import stamp
from leasehold.domain.trials import trial_words
from leasehold.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Explanation:
    """The reason why a run waits.

    Args:
        what: in words that follow "waits for"; None: it waits for nothing any more.
        until: its alarm; None: it is idle, and no time moves it.
        then: what would happen at that time if nothing else does, as an outcome of the sweep.
        words: the whole of it as one sentence.
        operations: what a person can do about it, where it waits for one.
    """

    what: str | None
    until: datetime | None
    then: Outcome | None
    words: str
    operations: tuple[Operation, ...] = ()

    def told_of(self, run_id: str) -> str | None:
        """Return the sentence without the run, for where its id stands; None: it waits for nothing.

        Args:
            run_id: the run.
        """
        if self.what is None:
            return None
        words = self.words.removeprefix(f"Run {run_id} ")
        return words[:1].upper() + words[1:]


def explain(
    manifest: Manifest,
    now: datetime,
    rules: Rules,
    *,
    holder_gone: bool = False,
    is_possible: Callable[[Operation], bool] = lambda _: True,
    no_server: str | None = None,
    asked: str = "",
    steps: Iterable[str] = (),
    children: str = "",
) -> Explanation:
    """Return what the run waits for.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        holder_gone: whether the holder of its lease is known to be gone.
        is_possible: whether an operation that its state allows would be done; no other is offered.
        no_server: in words that no server works on the store; None: one does.
        asked: in words when a remote worker last asked for its step; empty: it is not known.
        steps: those that the catalog knows, which are listed where that of the run is not known.
        children: how far those are that it waits for, in words; empty: it is not known.
    """
    possible = tuple(filter(is_possible, decisions(manifest)))
    if manifest.is_terminal and not any(map(is_awaited, owed_effects(manifest))):
        ending = _ending(manifest, can_recreate=is_possible(Operation.RECREATE))
        words = f"Run {manifest.run_id} {ending}{_archive_words(manifest)}"
        return Explanation(None, None, None, words)
    wrong = (*flaws(manifest, rules.grace), *flaws_at(manifest, now))
    broken = " ".join(breach.finding for breach in wrong).rstrip(".")
    pause = rules.pause_of(manifest.step_type)
    what = (
        f"a repair (leasehold audit --repair): {broken}"
        if broken
        else _what(
            manifest,
            now,
            possible,
            holder_gone=holder_gone,
            asked=asked,
            pause=pause,
            children=children,
        )
    )
    until = manifest.alarm_at if broken or manifest.asks_at is None else None
    if manifest.waits_for is not None and not (broken or manifest.paused):
        ends = None if until is None else _at(manifest, max(now, until), rules).outcome
        words = f"Run {manifest.run_id} waits for {what}."
        return Explanation(what, until, ends, words, possible)
    if until is None or (manifest.held is not None and not broken):  # which its alarm looks for
        words, looks = f"Run {manifest.run_id} waits for {what}.", Outcome.PARKED if until else None
        return Explanation(what, until, looks, words, () if broken or until else possible)
    change = _at(manifest, max(now, until), rules)
    is_known = rules.settings_for(manifest.step_type) is not None
    known = "" if is_known else f" The catalog here knows {', '.join(steps) or 'no step'}."
    is_held = (
        manifest.position.lease is not None
        and now < manifest.position.lease.expires_at
        and not holder_gone
    )
    operations = possible if manifest.look_at is not None and not broken else ()
    if no_server is not None and not is_held:
        words = f"Run {manifest.run_id} waits for {what}, and {no_server}."
        return Explanation(what, until, change.outcome, words, operations)
    if manifest.look_at is not None and not broken:  # its block ends with its own sentences
        at = f"looks again at {stamp(until)}" if now < until else f"was to look at {stamp(until)}"
        words = f"Run {manifest.run_id} waits for {what}. It {at}: {_then(change)}."
        return Explanation(what, until, change.outcome, f"{words}{known}", operations)
    when = f"until {stamp(until)}" if now < until else f"which was due at {stamp(until)}"
    then = f"if nothing happens by then, {_then(change)}" if now < until else _then(change)
    words = f"Run {manifest.run_id} waits for {what}, {when}; {then}.{known}"
    return Explanation(what, until, change.outcome, words, operations)


def _what(
    manifest: Manifest,
    now: datetime,
    possible: tuple[Operation, ...],
    *,
    holder_gone: bool,
    asked: str,
    pause: StepPause | None,
    children: str,
) -> str:
    lease, step = manifest.position.lease, manifest.position.step
    if lease is not None:
        attempt = _attempt(manifest)
        if now < lease.expires_at and holder_gone:
            return (
                f"a worker to take over {attempt}, whose process {lease.holder} is gone (a server "
                "that starts on this machine does so at once, the sweep when the lease ends)"
            )
        if now < lease.expires_at:
            return f"{lease.holder} to finish {attempt}"
        return f"the sweep to end the lease that {lease.holder} did not renew on step {step}"
    if manifest.is_terminal:
        return "what it owes to be published"
    if manifest.paused or manifest.status is RunStatus.BLOCKED:
        return _person(manifest, possible)
    rests = _small_runs(manifest, children) if manifest.is_resting else ""
    return rests or _worker(manifest, now, asked, manifest.held or pause)


def _small_runs(manifest: Manifest, children: str) -> str:
    known = manifest.position.children
    kind = "its children" if known is None else _CHILDREN.get(known.kind, "its children")
    return f"{kind} at {manifest.position.step}" + (f": {children}" if children else "")


#: What a run waits for that has children, by their kind.
_CHILDREN: Final[Mapping[str, str]] = {
    "each": "its lanes",
    "parallel": "the steps that run at once",
    "child": "the run of another pipeline",
}


def _attempt(manifest: Manifest) -> str:
    words = f"attempt {manifest.position.attempt} of step {manifest.position.step}"
    trial = trial_words(manifest)
    return f"{words} in {trial}" if trial else words


def _person(manifest: Manifest, possible: tuple[Operation, ...]) -> str:
    *others, last = (str(operation) for operation in possible or ("cancel",))
    offered = f"{', '.join(others)} or {last}" if others else last
    if manifest.paused:
        return f"a person to resume it ({offered})"
    if wait := manifest.waits_for:
        return _signal(manifest, wait, offered)
    block = manifest.block
    why = "" if block is None else f": {block.words}".rstrip(".")
    if manifest.look_at is not None:
        return f"the code to be put right at step {manifest.position.step} ({offered}){why}"
    return f"a person to decide on step {manifest.position.step} ({offered}){why}"


def _signal(manifest: Manifest, wait: Wait, offered: str) -> str:
    """Say what is waited for, since when, until when and what then, and how to send it."""
    until = f"until {stamp(wait.until)}; then {wait.then}" if wait.until else "for any time"
    if wait.is_over and wait.until:
        until = f"whose time was over at {stamp(wait.until)}: a person decides"
    refused = f"; one was refused: {wait.refused.rstrip('.')}" if wait.refused else ""
    send = f"leasehold signal {manifest.run_id} {wait.name} --json VALUE; or {offered}"
    what = f"the signal {wait.name!r} since {stamp(wait.since)}, {until}"
    kept = manifest.unawaited_signals
    others = f"; it keeps signals that nothing has waited for: {kept}" if kept else ""
    return f"{what} ({send}){refused}{others}"


def _worker(manifest: Manifest, now: datetime, asked: str, pause: StepPause | Hold | None) -> str:
    attempt = _attempt(manifest)
    if pause is not None:
        command = resume_command(pause.step_type)
        return f"a person to `{command}`: {attempt} is held, as {pause.words}"
    dispatch = manifest.position.dispatch
    if now < dispatch.not_before and not manifest.awaits_slot:
        return f"the time of {attempt}, {stamp(dispatch.not_before)}"
    if words := manifest.awaited_limit:
        return f"{words} to begin {attempt}"
    if dispatch.remote:
        told = f" ({asked})" if asked else ""
        return f"a remote worker to claim {attempt}{_claim_by(manifest)}{told}"
    return f"a worker to take {attempt} from queue {dispatch.queue}"


def _claim_by(manifest: Manifest) -> str:
    """Return by when a remote worker must claim, where the next look comes before."""
    claim_by = manifest.position.dispatch.claim_by
    return "" if claim_by in (None, manifest.alarm_at) else f" by {stamp(claim_by)}"


def _ending(manifest: Manifest, *, can_recreate: bool) -> str:
    remedy = _remedy(manifest, can_recreate=can_recreate)
    if manifest.dead_lettered:
        reason, detail = manifest.dead_letter_reason, manifest.dead_letter_detail
        cause = f" {detail.rstrip('.')}." if detail else ""
        return (
            f"waits for nothing: it was given up as {reason} at step {manifest.position.step}."
            f"{cause}{remedy}"
        )
    if manifest.cancelled:
        return f"waits for nothing: it was cancelled.{remedy}"
    return "waits for nothing: it is completed."


def _remedy(manifest: Manifest, *, can_recreate: bool) -> str:
    if manifest.recreated_as:
        *others, last = manifest.recreated_as
        made = f"Runs {', '.join(others)} and {last} were" if others else f"Run {last} was"
        return f" {made} made of it: `leasehold why {last}`."
    return f" `leasehold recreate {manifest.run_id}` makes a new run of it." if can_recreate else ""


def _archive_words(manifest: Manifest) -> str:
    """Return what is still to be done after the end of a run; nothing, once it is archived."""
    if not manifest.owes_archive:
        return ""
    if manifest.alarm_at is None:
        return " It is not archived, and no sweep looks at it: leasehold audit --repair."
    at, archive = stamp(manifest.alarm_at), manifest.archive
    if archive is not None and archive.failed:
        return f" Its archive failed ({', '.join(archive.failed)}), and is tried again at {at}."
    return f" It is not archived yet, and is at {at} at the latest."


def _at(manifest: Manifest, when: datetime, rules: Rules) -> Change:
    """Return what the sweep would do at that time, with a task that is lost by then."""
    generation = manifest.position.dispatch.generation
    return on_alarm(manifest, when, rules=rules, generation=generation, in_queue=False)


_THEN: Final[Mapping[Outcome, str]] = {
    Outcome.EXPIRED: "the step is dispatched again",
    Outcome.REDISPATCHED: "its task is looked for, and if it is lost the step gets a new one",
    Outcome.AWAITS_CLAIM: "the sweep sees that it still waits",
    Outcome.AWAITS_SLOT: "the sweep looks whether its limit has room",
    Outcome.REPAIRED: "the sweep sets it right",
    Outcome.REPUBLISHED: "it is published again",
    Outcome.BLOCKED: "the run is blocked, unless a worker lives that knows the step",
    Outcome.LOOKED_AGAIN: "the step is tried again where it stands",
    Outcome.STEP_UNKNOWN: "a worker that knows the step looks again",
    Outcome.ASKED: "it asks whether they are through",
}


def _then(change: Change) -> str:
    if change.manifest.dead_letter_reason is not None:
        return f"the run is given up as {change.manifest.dead_letter_reason}"
    if change.outcome is Outcome.EXPIRED and change.manifest.paused:
        return "the lease is ended, and the run stays paused"
    if change.outcome is Outcome.EXPIRED and change.manifest.status is RunStatus.ERROR:
        return "the attempt counts as failed, and the step is tried again after its backoff"
    return _THEN.get(change.outcome, "the sweep looks at it again")


# The announcements of a run that are due or were given up: a sentence for each channel in `why`.


def unannounced(last: Announcement | None, deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Return the announcements that are still due, or were given up.

    What was given up of an earlier announcement is past: the run has moved on since.

    Args:
        last: the last announcement of the run.
        deliveries: all of the run.
    """
    occurrence = None if last is None else last.occurrence
    return [
        one
        for one in deliveries
        if one.state in (DeliveryState.DUE, DeliveryState.CLAIMED)
        or (one.state is DeliveryState.GIVEN_UP and one.occurrence == occurrence)
    ]


def explain_delivery(delivery: Delivery, now: datetime, held_until: Mapping[str, datetime]) -> str:
    """Return one sentence on a delivery that is not announced.

    Args:
        delivery: the delivery.
        now: the store's time.
        held_until: channels whose breaker is open, and until when nothing is sent to them.
    """
    return " ".join(_parts(delivery, now, held_until.get(delivery.channel)))


def _parts(delivery: Delivery, now: datetime, held_until: datetime | None) -> Iterator[str]:
    channel, event = delivery.channel, delivery.event
    if delivery.state is DeliveryState.GIVEN_UP:
        known = filter(None, (delivery.given_up_why, delivery.last_error))
        why = ": ".join(known) or "the reason was not recorded"
        yield f"Channel {channel} did not receive {event}: {why.rstrip('.')}."
        yield ":deliver sends it once more."
        return
    claim = delivery.claim
    if delivery.state is DeliveryState.CLAIMED and claim is not None and now < claim.expires_at:
        yield f"{claim.holder} is sending {event} to channel {channel}."
    else:
        yield f"Channel {channel} has not received {event} yet: {_next(delivery, now)}."
        if held_until is not None and now < held_until:
            yield f"Nothing is sent to it until {stamp(held_until)}: its breaker is open."
    if delivery.unknown:
        yield f"{counted(delivery.unknown, 'send')} may have got through: the result is unknown."
    if delivery.last_error:
        yield f"Its last error: {delivery.last_error.rstrip('.')}."


def _next(delivery: Delivery, now: datetime) -> str:
    """Return when it is sent, after how many tries."""
    after = f" after {counted(delivery.tries, 'try', 'tries')}" if delivery.tries else ""
    at = delivery.not_before
    if delivery.state is DeliveryState.CLAIMED:
        return f"its sender did not record the result{after}, and the sweep takes it up"
    if at is not None and now < at:
        return f"it is sent again at {stamp(at)}{after}"
    if delivery.alarm_at is not None and now < delivery.alarm_at:
        again = f"the sweep publishes it again at {stamp(delivery.alarm_at)}"
        return f"its message is on its way{after}; {again}"
    return f"the next sweep publishes its message again{after}"
