"""The rules of a delivery, one by one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from leasehold.domain import delivery_rules as rules_of
from leasehold.domain.delivery import Delivery, DeliveryState, delivery_of, delivery_ref
from leasehold.domain.delivery_rules import DeliveryRules, GiveUpReason, Standing, standing
from leasehold.domain.stored import replace
from leasehold.errors import UnreadableDeliveryError

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
A_DAY = timedelta(days=1)
RULES = DeliveryRules()


def delivery(**fields: Any) -> Delivery:
    """A delivery that is due since a minute ago."""
    at = NOW - timedelta(minutes=1)
    usable: dict[str, Any] = {
        "run_id": "r-1",
        "occurrence": "3",
        "channel": "pager",
        "pipeline": "letters",
        "event": "run_completed",
        "priority": "normal",
        "step": "send",
        "summary": "Run r-1 of pipeline letters is completed.",
        "mark": "0123abcd",
        "state": DeliveryState.DUE,
        "created_at": at,
        "updated_at": at,
        "alarm_at": NOW,
        "give_up_at": at + A_DAY,
    }
    return Delivery(**(usable | fields))


def claimed(now: datetime = NOW, **fields: Any) -> Delivery:
    return rules_of.claim(delivery(**fields), now, claim_id="claim-1", holder="a", rules=RULES)


def over(now: datetime = NOW) -> datetime:
    """Return when a claim of this time is over."""
    return now + RULES.claim_ttl


def test_a_claim_is_a_try_and_longer_than_a_send() -> None:
    one = claimed()

    assert (one.state, one.token, one.tries, one.unknown) == (DeliveryState.CLAIMED, 1, 1, 0)
    assert one.claim is not None
    assert one.claim.expires_at == one.alarm_at == NOW + timedelta(seconds=30)
    assert timedelta(seconds=30) > RULES.timeout


@pytest.mark.parametrize(
    ("one", "now", "expected"),
    [
        (delivery(), NOW, Standing.DUE),
        (delivery(not_before=NOW), NOW, Standing.DUE),
        (delivery(not_before=NOW + timedelta(seconds=1)), NOW, Standing.DUE_LATER),
        (claimed(), over() - timedelta(microseconds=1), Standing.CLAIMED),
        (claimed(), over(), Standing.DUE),
        (delivery(state="claimed"), NOW, Standing.DUE),
        (delivery(state="announced"), NOW, Standing.OVER),
        (delivery(state="given_up"), NOW, Standing.OVER),
    ],
)
def test_where_a_delivery_stands(one: Delivery, now: datetime, expected: Standing) -> None:
    assert standing(one, now) is expected


def test_a_claim_that_ran_out_may_have_sent() -> None:
    again = rules_of.claim(claimed(), over(), claim_id="claim-2", holder="b", rules=RULES)

    assert (again.token, again.tries, again.unknown) == (2, 2, 1)
    assert again.key == delivery().key


def test_whose_claim_was_taken_away_holds_it_no_more() -> None:
    first = claimed()
    again = rules_of.claim(first, over(), claim_id="claim-2", holder="b", rules=RULES)

    assert rules_of.is_held(first, first)
    assert not rules_of.is_held(again, first)
    assert not rules_of.is_recorded(again, first)


def test_what_was_recorded_is_recognised_by_who_did() -> None:
    first = claimed()
    told = rules_of.announced(first, NOW, message_id="m-1")

    assert rules_of.is_recorded(told, first)
    assert not rules_of.is_recorded(told, replace(first, mark="another"))  # type: ignore[call-arg]


def test_an_announced_delivery_has_no_alarm() -> None:
    told = rules_of.announced(claimed(), NOW, message_id="m-1")

    assert (told.state, told.message_id, told.alarm_at, told.claim) == (
        DeliveryState.ANNOUNCED,
        "m-1",
        None,
        None,
    )


@pytest.mark.parametrize(("is_unanswered", "unknown"), [(False, 0), (True, 1)])
def test_a_try_that_failed_is_due_again(is_unanswered: bool, unknown: int) -> None:
    wait = timedelta(seconds=5)
    after = rules_of.tried(claimed(), NOW, error="503", wait=wait, is_unanswered=is_unanswered)

    assert (after.state, after.unknown, after.last_error) == (DeliveryState.DUE, unknown, "503")
    assert after.not_before == after.alarm_at == NOW + wait
    assert after.claim is None


def test_only_a_try_after_its_time_is_the_last_one() -> None:
    """So an outage of the store or the bus, however long, gives nothing up."""
    late = NOW + 3 * A_DAY
    one = claimed(late)

    after = rules_of.tried(one, late, error="503", wait=timedelta(seconds=5))

    assert one.state is DeliveryState.CLAIMED
    assert (after.state, after.given_up_why, after.last_error) == (
        DeliveryState.GIVEN_UP,
        GiveUpReason.OUT_OF_TIME,
        "503",
    )
    assert (after.alarm_at, after.unknown) == (None, 0)


def test_a_try_that_fails_within_its_time_is_not_the_last_one() -> None:
    """However long the wait is that follows it."""
    one = claimed(give_up_at=NOW + timedelta(seconds=1))

    after = rules_of.tried(one, NOW, error="503", wait=timedelta(minutes=10))

    assert (after.state, after.not_before) == (DeliveryState.DUE, NOW + timedelta(minutes=10))


def test_a_delivery_that_ends_every_sender_is_given_up_in_the_end() -> None:
    """A sender of the user's own may end its process."""
    late = NOW + 2 * A_DAY
    assert not rules_of.is_hopeless(claimed(late), over(late), RULES)
    one = claimed(late, tries=2)

    assert rules_of.is_hopeless(one, over(late), RULES)
    assert not rules_of.is_hopeless(claimed(tries=2), over(), RULES)
    assert rules_of.cut_short(one, over(late)).unknown == 1


def test_a_claim_that_sent_nothing_was_no_try() -> None:
    after = rules_of.released(claimed(), NOW)

    assert (after.state, after.tries, after.unknown) == (DeliveryState.DUE, 0, 0)
    assert after.alarm_at == NOW


def test_a_channel_that_is_let_alone_uses_up_nothing() -> None:
    until = NOW + timedelta(minutes=1)

    after = rules_of.postponed(delivery(), NOW, until=until, rules=RULES)

    assert (after.state, after.tries, after.unknown) == (DeliveryState.DUE, 0, 0)
    assert after.not_before == after.alarm_at == until
    assert rules_of.postponed(claimed(), over(), until=until, rules=RULES).unknown == 1


def test_what_waits_long_for_a_channel_that_is_let_alone_comes_by_less_often() -> None:
    hour_later = NOW + timedelta(hours=1)
    until = hour_later + timedelta(minutes=1)

    after = rules_of.postponed(delivery(), hour_later, until=until, rules=RULES)

    assert after.alarm_at == after.not_before == hour_later + RULES.longest_wait


def test_a_channel_that_is_let_alone_gives_up_only_what_was_tried() -> None:
    late = NOW + 2 * A_DAY

    assert rules_of.postponed(delivery(), late, until=late, rules=RULES).state is DeliveryState.DUE
    assert (
        rules_of.postponed(delivery(tries=1), late, until=late, rules=RULES).state
        is DeliveryState.GIVEN_UP
    )


def test_a_channel_that_is_not_known_is_waited_for_a_day() -> None:
    wait = rules_of.without_channel(delivery(), NOW, rules=RULES)
    assert wait.not_before == NOW + timedelta(minutes=1)  # as long as it is due
    later = NOW + timedelta(hours=3)
    wait = rules_of.without_channel(delivery(), later, rules=RULES)
    assert wait.not_before == later + timedelta(minutes=10)

    after = rules_of.without_channel(delivery(), NOW + A_DAY, rules=RULES)

    assert (after.state, after.given_up_why) == (
        DeliveryState.GIVEN_UP,
        GiveUpReason.UNKNOWN_CHANNEL,
    )


@pytest.mark.parametrize(
    ("tries", "jitter", "seconds"),
    [(1, 0, 5), (1, 1, 6.25), (2, 0, 10), (3, 0.5, 22.5), (8, 0, 600), (10_000, 0, 600)],
)
def test_waits_double_up_to_the_longest(tries: int, jitter: float, seconds: float) -> None:
    assert rules_of.wait_after(tries, RULES, jitter=jitter) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("asked_s", "seconds"), [(1, 5), (90, 90), (7_200, 7_200), (10**9, 86_400), (-5, 5)]
)
def test_what_a_provider_asks_for_is_waited(asked_s: float, seconds: float) -> None:
    asked = timedelta(seconds=asked_s)
    assert rules_of.wait_after(1, RULES, jitter=0, retry_after=asked) == timedelta(seconds=seconds)


def test_alarms_of_messages_that_get_lost_move_apart() -> None:
    one, waits = delivery(), []
    for _ in range(6):
        one = rules_of.published_again(
            one, NOW, grace=timedelta(minutes=1), longest=RULES.longest_wait
        )
        assert one.alarm_at is not None
        waits.append((one.alarm_at - NOW).total_seconds())

    assert waits == [60, 120, 240, 480, 600, 600]
    assert one.published == 6


def test_a_request_begins_a_round_with_its_own_key() -> None:
    told = rules_of.announced(claimed(), NOW, message_id="m-1")

    again = rules_of.requested(told, NOW, grace=timedelta(minutes=1), rules=RULES)

    assert (again.state, again.round, again.tries, again.message_id) == (
        DeliveryState.DUE,
        2,
        0,
        None,
    )
    assert again.key == f"{told.key}:2"
    assert again.give_up_at == NOW + A_DAY
    assert again.due_since == NOW
    assert not rules_of.is_recorded(again, claimed())


def test_a_request_for_a_due_delivery_keeps_its_key() -> None:
    """The provider may have it already, and can tell by the key."""
    waiting = delivery(not_before=NOW + timedelta(hours=1), unknown=1, tries=2)

    again = rules_of.requested(waiting, NOW, grace=timedelta(minutes=1), rules=RULES)

    assert (again.key, again.not_before, again.unknown) == (waiting.key, None, 1)
    cut_short = rules_of.requested(claimed(), over(), grace=timedelta(minutes=1), rules=RULES)
    assert cut_short.unknown == 1


def test_who_sends_while_the_clock_is_set_back_has_its_claim_still() -> None:
    mine, back = claimed(), NOW - timedelta(hours=1)

    moved = rules_of.from_now(mine, back)

    assert mine.claim is not None
    assert moved.claim is not None
    assert moved.claim.expires_at - back == mine.claim.expires_at - mine.updated_at
    assert moved.alarm_at == moved.claim.expires_at
    assert rules_of.is_held(moved, mine)
    assert standing(moved, moved.claim.expires_at) is Standing.DUE


def test_a_claim_covers_a_send_however_long_its_timeout() -> None:
    for seconds in (0.1, 10, 600):
        rules = replace(RULES, timeout=timedelta(seconds=seconds))
        assert rules.claim_ttl > rules.timeout + timedelta(seconds=5)


@pytest.mark.parametrize(
    ("field", "edited"),
    [
        ("createdAt", "0001-01-01T00:00:00+23:59"),
        ("createdAt", "9999-12-31T23:59:59-23:59"),
        ("giveUpAt", "9999-12-31T23:59:59Z"),
        ("summary", "\ud800"),
        ("pipeline", "x" * 5000),
        ("tries", -1),
        ("token", 2**63 - 1),
    ],
)
def test_a_delivery_that_could_not_be_published_or_stored_again_is_not_readable(
    field: str, edited: object
) -> None:
    """It is left to a person: its own error would end the sweep of all others."""
    document = delivery().model_dump(mode="json", by_alias=True) | {field: edited}
    with pytest.raises(UnreadableDeliveryError, match=field):
        delivery_of(delivery_ref("r-1", "3", "pager"), document)
