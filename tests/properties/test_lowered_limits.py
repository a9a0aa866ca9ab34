"""A limit that adapts, at any times and refusals; and who takes its slots, in any order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from leasehold.domain.lowered_limit import GROWS_EVERY, MAX_LOWERED_WINDOW, LoweredLimit, lowered
from leasehold.domain.slots import takeable

NOW = datetime(2026, 6, 1, tzinfo=UTC)
steps = st.timedeltas(timedelta(0), timedelta(minutes=20))
refusals = st.tuples(steps, steps, st.timedeltas(timedelta(0), timedelta(hours=3)))


@given(st.integers(1, 1000), st.lists(refusals, max_size=30))
def test_it_halves_once_a_window_and_is_whole_again_after_quiet(
    most: int, story: list[tuple[timedelta, timedelta, timedelta]]
) -> None:
    """Each refusal comes some time after the last one, and began some time before."""
    limit: LoweredLimit | None = None
    now, halved_at = NOW, []
    for passed, ago, retry_after in story:
        before, now = limit, now + passed
        had = most if before is None else before.most_at(now, most)

        after = lowered(before, now, key="gpt", most=most, began=now - ago, retry_after=retry_after)

        limit = after or before
        if limit is None:
            assert most == 1
            continue
        has = limit.most_at(now, most)
        assert has in (had, max(1, had // 2), (had + 1) // 2)
        assert 1 <= has <= had
        if after is not None and (before is None or after.lowered_at != before.lowered_at):
            assert before is None or now - ago >= before.lowered_at
            assert not halved_at or now >= halved_at[-1][1]
            halved_at.append((now, after.grows_from))
        assert limit.grows_from <= now + MAX_LOWERED_WINDOW
    if limit is not None:
        later = [limit.most_at(limit.grows_from + n * GROWS_EVERY, most) for n in range(9)]
        assert later == sorted(later)
        assert later[-1] == most


class Slots:
    """The slots of a key; who takes one may decide on what it read some time ago."""

    def __init__(self, most: int, lowered_to: int, held: set[int]) -> None:
        self.most, self.lowered_to, self.held = most, lowered_to, set(held)
        self.versions = [0] * most
        self.read: list[tuple[int, int]] = []

    def look(self, choose: int) -> None:
        free = [one for one in range(self.most) if one not in self.held]
        found = takeable(free, self.most, self.lowered_to)
        if found:
            number = found[choose % len(found)]
            self.read.append((number, self.versions[number]))

    def write(self, place: int) -> bool:
        """Take a slot that was chosen; False: another was faster."""
        if not self.read:
            return False
        number, version = self.read.pop(place % len(self.read))
        if self.versions[number] != version:
            return False
        self.held.add(number)
        self.versions[number] += 1
        return True

    def free(self, place: int) -> None:
        if self.held:  # the lease is over; the document is as it was
            self.held.remove(sorted(self.held)[place % len(self.held)])


@given(st.data())
def test_no_more_are_at_work_than_are_allowed_in_any_order_of_reads_and_writes(data: Any) -> None:
    most = data.draw(st.integers(2, 12))
    lowered_to = data.draw(st.integers(1, most))
    slots = Slots(most, lowered_to, data.draw(st.sets(st.integers(0, most - 1))))
    calls = st.sampled_from([slots.look, slots.write, slots.free])

    for call, choice in data.draw(st.lists(st.tuples(calls, st.integers(0, 11)), max_size=60)):
        before = len(slots.held)
        call(choice)
        assert len(slots.held) <= max(lowered_to, before)
