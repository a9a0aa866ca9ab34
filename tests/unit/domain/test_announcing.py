"""The announcements of a run, and the deliveries in the commit of its end or block."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest
from pydantic import ValidationError

from leasehold.domain import lifecycle
from leasehold.domain.announcement import AnnouncedEvent, Announcement
from leasehold.domain.change import Change, as_write
from leasehold.domain.checkpoint import CallCount, KeptValue
from leasehold.domain.delivery import (
    MAX_DELIVERY_DETAIL_CHARS,
    MAX_DELIVERY_REASON_CHARS,
    MAX_SUMMARY_CHARS,
    is_occurrence,
)
from leasehold.domain.dispatch import Rules
from leasehold.domain.effect import owed_messages
from leasehold.domain.event_message import EventMessage
from leasehold.domain.manifest import Manifest, to_document
from leasehold.domain.manifest_parts import Block
from leasehold.domain.notes import Notes
from leasehold.domain.result import SignalRequest
from leasehold.domain.spend import Spend, SpendLimit
from leasehold.domain.status import DeadLetterReason, Outcome
from leasehold.domain.stored import replace
from leasehold.domain.summary import summary_of
from tests.unit.domain.runs import At, Runs
from tests.worlds.builders import at_position

HOSTILE = "no\nway\r\n\x1b[31mred\x1b[0m \u202eevil\u202c\u2066 \ud800 " + "x" * 2000


@pytest.fixture
def rules(rules: Rules) -> Rules:
    """The same rules; two channels get everything."""
    return replace(rules, channels_for=lambda _pipeline, _event: ("log", "mail"))


def told(change: Change) -> list[tuple[str, str, str]]:
    return [(one.event, one.occurrence, one.channel) for one in change.deliveries]


def summary(change: Change) -> str:
    (line,) = {one.summary for one in change.deliveries}
    return line


def arrived(runs: Runs, run: Manifest, at: At, second: float, rules: Rules) -> Change:
    return lifecycle.arrive(
        run,
        at(second),
        rules=rules,
        generation=run.position.dispatch.generation,
        lease_id="lease-9",
        holder="host-b",
    )


def completed(runs: Runs, at: At, rules: Rules) -> Change:
    run = runs.leased(runs.handed_off(), at=6, lease_id="lease-2")
    return lifecycle.complete(
        run, at(9), rules=rules, fence=runs.fence(run), output=KeptValue(text='"sent"')
    )


def completed_at_a_price(runs: Runs, at: At, rules: Rules) -> Change:
    run = runs.leased(runs.handed_off(), at=6, lease_id="lease-2")
    return lifecycle.complete(
        run,
        at(9),
        rules=rules,
        fence=runs.fence(run),
        output=KeptValue(text='"sent"'),
        notes=Notes(spent=Spend(tokens=310_000, usd=1.24), spared=Spend(usd=0.8)),
    )


def completed_with_calls_that_cost_nothing_known(runs: Runs, at: At, rules: Rules) -> Change:
    run = runs.leased(runs.handed_off(), at=6, lease_id="lease-2")
    return lifecycle.complete(
        run,
        at(9),
        rules=rules,
        fence=runs.fence(run),
        output=KeptValue(text='"sent"'),
        notes=Notes(calls=CallCount(made=4, spared=3)),
    )


def over_its_budget(runs: Runs, at: At, rules: Rules) -> Change:
    run = replace(runs.leased(), budget=SpendLimit(usd=1.0))
    return lifecycle.exceed_budget(
        run,
        at(5),
        rules=rules,
        fence=runs.fence(run),
        detail="",
        notes=Notes(spent=Spend(usd=1.24)),
    )


def refused(runs: Runs, at: At, rules: Rules, found: Block | None = None) -> Change:
    run = runs.leased()
    return lifecycle.block(
        run,
        at(5),
        rules=rules,
        fence=runs.fence(run),
        output=KeptValue(text='"Hi"'),
        output_status="PARTIAL",
        found=found or runs.found(),
    )


def unknown(runs: Runs, at: At, rules: Rules) -> Change:
    rules = replace(rules, settings_for=lambda _: None)
    return lifecycle.on_alarm(runs.pending(), at(61), rules=rules, generation=1, in_queue=False)


def unable(runs: Runs, at: At, rules: Rules) -> Change:
    return replace(runs, rules=rules).unable()


def failed_for_good(runs: Runs, at: At, rules: Rules) -> Change:
    run, error = runs.leased(), runs.error()
    return lifecycle.fail(
        run, at(5), rules=rules, fence=runs.fence(run), error=error, permanent=True
    )


def given_up_by_the_sweep(runs: Runs, at: At, rules: Rules) -> Change:
    rules = replace(rules, max_interruptions=0)
    return lifecycle.on_alarm(runs.leased(), at(31), rules=rules, generation=1, in_queue=None)


def never_started(runs: Runs, at: At, rules: Rules) -> Change:
    run = at_position(
        runs.pending(), dispatch=replace(runs.pending().position.dispatch, redispatched=99)
    )
    return lifecycle.on_alarm(run, at(61), rules=rules, generation=1, in_queue=False)


def given_up_by_a_repair(runs: Runs, at: At, rules: Rules) -> Change:
    """It was edited by hand: the repair sets its alarm, which is over."""
    run = replace(runs.leased(), alarm_at=None)
    rules = replace(rules, max_interruptions=0)
    return lifecycle.on_audit(run, at(31), rules=rules, generation=1, in_queue=None)


def given_up_by_a_claim(runs: Runs, at: At, rules: Rules) -> Change:
    runs = runs.elsewhere()
    rules = replace(rules, settings_for=runs.rules.settings_for, max_interruptions=0)
    return lifecycle.claim(runs.claimed(), at(31), rules=rules, lease_id="lease-2", holder="b")


def cancelled(runs: Runs, at: At, rules: Rules) -> Change:
    return lifecycle.cancel(runs.leased(), at(7), rules=rules, actor="ada", reason="a wrong input")


def approved(runs: Runs, at: At, rules: Rules) -> Change:
    run = runs.blocked(runs.leased(runs.handed_off(), at=4, lease_id="lease-2"))
    return lifecycle.approve(run, at(8), rules=rules, actor="ada", reason="")


def approved_before_an_unknown_step(runs: Runs, at: At, rules: Rules) -> Change:
    rules = replace(rules, settings_for=lambda _: None)
    run = lifecycle.approve(runs.blocked(), at(8), rules=rules, actor="ada", reason="").manifest
    generation = run.position.dispatch.generation
    return lifecycle.on_alarm(run, at(68), rules=rules, generation=generation, in_queue=False)


def eagerly_completed(runs: Runs, at: At, rules: Rules) -> Change:
    run = runs.leased(runs.handed_off(), at=6, lease_id="lease-2")
    fence, output = runs.fence(run), KeptValue(text='"sent"')
    ending = partial(lifecycle.complete, rules=rules, fence=fence, output=output)
    return lifecycle.then_arrive(ending, rules=rules, lease_id="lease-3", holder="a")(run, at(9))


COMPLETED, BLOCKED, DEAD_LETTERED, CANCELLED = (
    AnnouncedEvent.RUN_COMPLETED,
    AnnouncedEvent.RUN_BLOCKED,
    AnnouncedEvent.RUN_DEAD_LETTERED,
    AnnouncedEvent.RUN_CANCELLED,
)
WHO = "Run r-1 of pipeline letters"
UNKNOWN = "until that is put right: step_unknown: No catalog that is deployed has the step"
UNABLE = (
    "until that is put right: handler_unavailable: Handler steps:draft: importing 'steps' raised"
)

OVER = (
    f"{WHO} is blocked at step draft and waits for a person: budget_exceeded: "
    "The run has spent 1.24 USD of its budget of 1.00 USD."
)

SPARED = "0.80 USD was not paid again after kills"

#: Every way in which a run ends or blocks: what people are told, under which occurrence, in words.
WAYS: list[tuple[Callable[[Runs, At, Rules], Change], AnnouncedEvent, str, str]] = [
    (completed, COMPLETED, "2", f"{WHO} is completed."),
    (eagerly_completed, COMPLETED, "2", f"{WHO} is completed."),
    (
        completed_at_a_price,
        COMPLETED,
        "2",
        f"{WHO} is completed (cost 1.24 USD, 310k tokens; {SPARED}).",
    ),
    (
        completed_with_calls_that_cost_nothing_known,
        COMPLETED,
        "2",
        f"{WHO} is completed (3 calls were not paid for again after kills).",
    ),
    (
        over_its_budget,
        BLOCKED,
        "1",
        OVER,
    ),
    (approved, COMPLETED, "2.2", f"{WHO} is completed."),
    (
        refused,
        BLOCKED,
        "1",
        f"{WHO} is blocked at step draft and waits for a person: TOO_SHORT: 2 letters",
    ),
    (
        unknown,
        BLOCKED,
        "0",
        f"{WHO} is blocked at step draft {UNKNOWN} 'draft'.",
    ),
    (
        approved_before_an_unknown_step,
        BLOCKED,
        "1.2",
        f"{WHO} is blocked at step send {UNKNOWN} 'send'.",
    ),
    (
        unable,
        BLOCKED,
        "1",
        f"{WHO} is blocked at step draft {UNABLE} ModuleNotFoundError: No module",
    ),
    (
        failed_for_good,
        DEAD_LETTERED,
        "1",
        f"{WHO} was given up at step draft: PERMANENT_FAILURE: AgentClientError: Try later.",
    ),
    (given_up_by_the_sweep, DEAD_LETTERED, "1", ""),
    (given_up_by_a_repair, DEAD_LETTERED, "1", ""),
    (given_up_by_a_claim, DEAD_LETTERED, "1", ""),
    (never_started, DEAD_LETTERED, "0", ""),
    (cancelled, CANCELLED, "1", f"{WHO} was cancelled at step draft by ada: a wrong input"),
]


@pytest.mark.parametrize(
    ("way", "event", "occurrence", "words"), WAYS, ids=[way.__name__ for way, *_ in WAYS]
)
def test_whatever_ends_or_blocks_a_run_owes_each_channel_one_delivery(
    runs: Runs,
    at: At,
    rules: Rules,
    way: Callable[[Runs, At, Rules], Change],
    event: AnnouncedEvent,
    occurrence: str,
    words: str,
) -> None:
    change = way(runs, at, rules)

    run = change.manifest
    assert told(change) == [(event, occurrence, "log"), (event, occurrence, "mail")]
    assert run.announcement is not None
    assert (run.announcement.event, run.announcement.at) == (event, run.updated_at)
    assert (run.announcement.occurrence, run.announcement.channels) == (occurrence, ("log", "mail"))
    assert [one.summary for one in change.deliveries] == [words or summary(change)] * 2
    assert summary(change).startswith(WHO)
    urgent = event in (BLOCKED, DEAD_LETTERED)
    for one in change.deliveries:
        assert (one.state, one.priority) == ("due", "high" if urgent else "normal")
        assert one.alarm_at == run.updated_at + rules.grace
        assert one.give_up_at == run.updated_at + timedelta(hours=24)
    assert change.owed[:2] == tuple(map(EventMessage, change.deliveries))
    puts = as_write(change).puts or {}
    owed = {str(ref): to["channel"] for ref, to in puts.items() if ref.collection == "deliveries"}
    assert owed == {f"deliveries/r-1:{occurrence}:{name}": name for name in ("log", "mail")}


@pytest.mark.parametrize("way", [way for way, *_ in WAYS], ids=lambda way: str(way.__name__))
def test_an_announcement_adds_nothing_else_to_a_change(
    runs: Runs, at: At, rules: Rules, way: Callable[[Runs, At, Rules], Change]
) -> None:
    """The run waits for no message: its alarm, for one, is what it would be."""
    nobody = replace(rules, channels_for=lambda _pipeline, _event: ())

    change, silent = way(runs, at, rules), way(runs, at, nobody)

    assert replace(silent.manifest, announcement=None) == replace(
        change.manifest, announcement=None
    )
    assert (silent.deliveries, silent.events) == ((), change.events)


def test_a_step_that_is_handed_off_or_retried_owes_no_announcement(
    runs: Runs, at: At, rules: Rules
) -> None:
    run = runs.leased()
    fence = runs.fence(run)
    output, error = KeptValue(text='"Dear Ada"'), runs.error()
    for change in (
        lifecycle.complete(run, at(5), rules=rules, fence=fence, output=output),
        lifecycle.fail(run, at(5), rules=rules, fence=fence, error=error),
        lifecycle.renew(run, at(5), rules=rules, fence=fence),
        lifecycle.pause(run, at(5), rules=rules, actor="ada", reason=""),
    ):
        assert change.changed
        assert (change.deliveries, change.manifest.announcement) == ((), None)


def test_a_run_that_is_blocked_for_the_same_reason_again_is_told_once_and_its_end_too(
    runs: Runs, at: At, rules: Rules
) -> None:
    """No worker had it in between; its own record for each, so that none is overwritten."""
    knowing_nothing = replace(rules, settings_for=lambda _: None)
    by = {"actor": "ada", "reason": ""}

    first = unknown(runs, at, rules)
    retried = lifecycle.retry(first.manifest, at(62), rules=knowing_nothing, **by)
    generation = retried.manifest.position.dispatch.generation
    same = lifecycle.on_alarm(
        retried.manifest, at(122), rules=knowing_nothing, generation=generation, in_queue=None
    )
    paused = lifecycle.pause(same.manifest, at(123), rules=rules, **by)
    resumed = lifecycle.resume(paused.manifest, at(124), rules=rules, **by)
    ended = lifecycle.cancel(resumed.manifest, at(125), rules=rules, **by)
    recreated = lifecycle.recreate(
        ended.manifest, at(126), rules=rules, from_step="draft", new=runs.new("r-2"), **by
    )

    assert told(first)[0] == (BLOCKED, "0", "log")
    assert (same.manifest.status, same.manifest.block.looks) == ("BLOCKED", 1)
    assert (told(retried), told(same)) == ([], []), "they were told of it"
    assert (told(paused), told(resumed), told(recreated)) == ([], [], [])
    assert told(ended)[0] == (CANCELLED, "0.2", "log")
    assert recreated.created is not None
    assert recreated.created.announcement is None
    occurrences = [change.deliveries[0].occurrence for change in (first, ended)]
    assert all(map(is_occurrence, occurrences))


def test_a_blocked_run_that_is_paused_announces_its_block_no_more(
    runs: Runs, at: At, rules: Rules
) -> None:
    """It was announced under this generation; each further write would announce it again."""
    run = refused(runs, at, rules).manifest

    change = lifecycle.pause(run, at(9), rules=rules, actor="ada", reason="wait")

    assert run.announcement is not None
    assert (change.changed, change.deliveries) == (True, ())
    assert change.manifest.announcement == run.announcement


def test_a_wait_whose_time_is_over_is_told_once_more(runs: Runs, at: At, rules: Rules) -> None:
    """People were told that a signal may come; now one of them has to decide."""
    run = runs.leased()
    wanted = SignalRequest("approval", timeout_s=60)
    waiting = lifecycle.wait_for(run, at(5), rules=rules, fence=runs.fence(run), wanted=wanted)
    generation = waiting.manifest.position.dispatch.generation

    change = lifecycle.on_alarm(
        waiting.manifest, at(66), rules=rules, generation=generation, in_queue=None
    )

    assert told(waiting)[0] == (BLOCKED, "1", "log")
    assert told(change)[0] == (BLOCKED, "1.2", "log")


def test_a_run_that_blocks_again_under_a_new_lease_is_told_under_its_token(
    runs: Runs, at: At, rules: Rules
) -> None:
    first = refused(runs, at, rules).manifest
    again = lifecycle.retry(first, at(6), rules=rules, actor="ada", reason="").manifest
    run = runs.leased(again, at=7, lease_id="lease-2")

    change = lifecycle.block(
        run,
        at(9),
        rules=rules,
        fence=runs.fence(run),
        output=KeptValue(text='"Hi"'),
        output_status="SUCCESS",
        found=runs.found(),
    )

    assert told(change)[0] == (BLOCKED, "2", "log")


def test_an_announcement_without_channels_has_an_occurrence_too_where_there_was_one_before(
    runs: Runs, at: At, rules: Rules
) -> None:
    """Else the next one would be stored in place of the first, and a provider knows its key."""
    nobody = replace(
        rules, channels_for=lambda _pipeline, _event: (), settings_for=lambda _step: None
    )
    by = {"actor": "ada", "reason": ""}
    first = refused(runs, at, rules)

    retried = lifecycle.retry(first.manifest, at(6), rules=rules, **by).manifest
    silent = lifecycle.on_alarm(
        retried,
        at(66),
        rules=nobody,
        generation=retried.position.dispatch.generation,
        in_queue=None,
    )
    third = lifecycle.cancel(silent.manifest, at(67), rules=rules, **by)

    assert silent.manifest.announcement is not None
    assert (silent.manifest.announcement.occurrence, silent.deliveries) == ("1.2", ())
    assert owed_messages(silent.manifest) == ()
    assert told(third)[0] == (CANCELLED, "1.3", "log")


def test_the_next_run_of_an_id_has_keys_of_its_own(runs: Runs, at: At, rules: Rules) -> None:
    """A provider that takes keys would drop the second one as a repetition."""
    first = cancelled(runs, at, rules).deliveries[0]
    begun = lifecycle.start(None, at(0), rules=rules, new=runs.new(nonce="another")).manifest
    another = runs.leased(begun)
    second = lifecycle.cancel(another, at(7), rules=rules, actor="ada", reason="").deliveries[0]

    assert first.delivery_id == second.delivery_id
    assert first.key != second.key


# -- where there is no catalog ---------------------------------------------------------------------


def test_who_cancels_without_a_catalog_leaves_it_to_the_sweep_to_say_who_is_told(
    runs: Runs, at: At, rules: Rules
) -> None:
    """The person on call has the store, and not always the code."""
    knowing_nothing = replace(rules, channels_for=lambda _pipeline, _event: None)
    by_alarm = partial(lifecycle.on_alarm, generation=1, in_queue=None)

    ended = cancelled(runs, at, knowing_nothing).manifest
    still = by_alarm(ended, at(67), rules=knowing_nothing)
    swept = by_alarm(still.manifest, at(127), rules=rules)
    after = by_alarm(swept.manifest, at(187), rules=rules)

    assert (ended.alarm_at, owed_messages(ended)) == (at(67), ())
    assert (told(still), still.manifest.alarm_at) == ([], at(127))
    assert told(swept) == [(CANCELLED, "1", "log"), (CANCELLED, "1", "mail")]
    assert summary(swept) == f"{WHO} was cancelled at step draft by ada: a wrong input"
    assert {one.give_up_at for one in swept.deliveries} == {at(127) + timedelta(hours=24)}
    assert (told(after), after.changed) == ([], False)


def test_what_waits_for_a_catalog_is_dropped_where_the_catalog_has_no_channel_for_it(
    runs: Runs, at: At, rules: Rules
) -> None:
    knowing_nothing = replace(rules, channels_for=lambda _pipeline, _event: None)
    nobody = replace(rules, channels_for=lambda _pipeline, _event: ())
    ended = cancelled(runs, at, knowing_nothing).manifest

    swept = lifecycle.on_alarm(ended, at(67), rules=nobody, generation=1, in_queue=None)

    assert swept.manifest.announcement is not None
    assert (swept.deliveries, swept.manifest.announcement.pending) == ((), False)


def test_a_block_is_told_where_its_repair_and_the_look_that_is_due_are_one_commit(
    runs: Runs, at: At, rules: Rules
) -> None:
    """The run goes on from there, and no later change knows who was to be told."""
    knowing_nothing = replace(rules, channels_for=lambda _pipeline, _event: None)
    broken = replace(unable(runs, at, knowing_nothing).manifest, shard=99)

    change = lifecycle.on_audit(broken, at(15), rules=rules, generation=1, in_queue=None)

    assert (change.outcome, change.before) == (Outcome.LOOKED_AGAIN, broken)
    assert told(change) == [(BLOCKED, "1", "log"), (BLOCKED, "1", "mail")]


def test_a_paused_wait_that_was_begun_without_a_catalog_is_announced_and_its_time_ends_no_pause(
    runs: Runs, at: At, rules: Rules
) -> None:
    knowing_nothing = replace(rules, channels_for=lambda _pipeline, _event: None)
    run = runs.leased()
    wanted = SignalRequest("approval", timeout_s=10, otherwise="continue")
    waiting = lifecycle.wait_for(
        run, at(5), rules=knowing_nothing, fence=runs.fence(run), wanted=wanted
    )
    paused = lifecycle.pause(
        waiting.manifest, at(6), rules=knowing_nothing, actor="ada", reason=""
    ).manifest
    generation = paused.position.dispatch.generation

    swept = lifecycle.on_alarm(paused, at(66), rules=rules, generation=generation, in_queue=None)

    assert told(swept)[0] == (BLOCKED, "1", "log")
    assert swept.manifest.state == "paused and BLOCKED"
    assert swept.manifest.waits_for is not None


# -- texts of strangers ----------------------------------------------------------------------------


def hostile_ways(runs: Runs, at: At, rules: Rules) -> list[Change]:
    found = Block(code=HOSTILE, finding=HOSTILE, remediation=HOSTILE)
    run = runs.leased()
    error = replace(runs.error(), message=HOSTILE, code=HOSTILE)
    return [
        refused(runs, at, rules, found),
        lifecycle.fail(run, at(5), rules=rules, fence=runs.fence(run), error=error, permanent=True),
        lifecycle.cancel(run, at(5), rules=rules, actor=HOSTILE, reason=HOSTILE),
    ]


def test_texts_of_strangers_are_one_line_that_is_safe_to_show(
    runs: Runs, at: At, rules: Rules
) -> None:
    for change in hostile_ways(runs, at, rules):
        one = change.deliveries[0]
        texts = (one.summary, one.detail or "", one.reason or "")
        assert all(text.isprintable() for text in texts)
        assert [len(text) <= most for text, most in zip(texts, LIMITS, strict=True)] == [True] * 3
        assert one.summary.startswith(WHO)
        assert one.summary.endswith("…")
        assert "\\x1b[31mred" in one.summary
        to_document(one)
        one.model_dump_json().encode()


LIMITS = (MAX_SUMMARY_CHARS, MAX_DELIVERY_DETAIL_CHARS, MAX_DELIVERY_REASON_CHARS)


# -- whoever comes by later ------------------------------------------------------------------------


def test_the_next_task_of_a_blocked_run_publishes_its_messages_again(
    runs: Runs, at: At, rules: Rules
) -> None:
    blocked = refused(runs, at, rules)

    late = arrived(runs, blocked.manifest, at, 6, rules)
    (first, _), (again, _) = blocked.owed, late.owed

    assert (late.outcome, late.changed) == (Outcome.BLOCKED, False)
    assert isinstance(first, EventMessage)
    assert isinstance(again, EventMessage)
    assert (again.delivery.key, again.content("")) == (first.delivery.key, first.content(""))


def test_a_run_that_goes_on_owes_no_message_of_the_block_before(
    runs: Runs, at: At, rules: Rules
) -> None:
    blocked = refused(runs, at, rules).manifest

    retried = lifecycle.retry(blocked, at(6), rules=rules, actor="ada", reason="")

    assert retried.manifest.announcement == blocked.announcement
    assert owed_messages(retried.manifest) == ()


def test_a_run_that_an_older_version_took_further_says_nothing_old(
    runs: Runs, at: At, rules: Rules
) -> None:
    """It kept what it does not know: the announcement of a block that is over."""
    blocked = refused(runs, at, rules).manifest
    ended = replace(runs.cancelled(blocked), announcement=blocked.announcement)

    assert owed_messages(ended) == ()
    assert summary_of(ended).cancelled
    assert DeadLetterReason(ended.dead_letter_reason or "NEVER_STARTED")


@pytest.mark.parametrize(
    ("field", "edited"), [("at", "9999-12-31T23:59:59Z"), ("occurrence", f"1.{'9' * 5000}")]
)
def test_an_edited_announcement_that_nothing_can_be_owed_of_is_not_readable(
    field: str, edited: str
) -> None:
    told = {"occurrence": "1", "event": "run_completed", "at": "2026-01-01T00:00:00Z"}
    with pytest.raises(ValidationError, match=field):
        Announcement.model_validate({**told, "channels": ["pager"], field: edited})
