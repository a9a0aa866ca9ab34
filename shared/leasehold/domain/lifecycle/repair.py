"""Whether a run is in order, as `leasehold audit` asks; and its repair, where it is not."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from leasehold.domain.change import Change, unchanged
from leasehold.domain.dispatch import Rules
from leasehold.domain.lifecycle.mend import Breach, flaws, flaws_at, mend, wanted_alarm
from leasehold.domain.lifecycle.on_alarm import on_alarm, then_on_alarm
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome

__all__ = ["LONG_PAST", "Breach", "breaches", "repair"]

#: An alarm this long past says that no sweep runs, or that none can help.
LONG_PAST: Final = timedelta(minutes=5)


def breaches(manifest: Manifest, now: datetime, rules: Rules) -> Iterator[Breach]:
    """Tell what is wrong with a run; nothing, for one that the engine wrote and swept."""
    yield from (*flaws(manifest, rules.grace), *flaws_at(manifest, now))
    alarm, wanted = manifest.alarm_at, wanted_alarm(manifest, rules.grace)
    if wanted is not None and alarm is not None and alarm + LONG_PAST < now:
        passed = round((now - alarm).total_seconds())
        said = f"Its alarm was due {passed} s ago, and no sweep has attended to it."
        yield Breach("overdue", said, "What the sweep would do is done.")


def repair(
    manifest: Manifest, now: datetime, *, rules: Rules, generation: int, in_queue: bool | None
) -> Change:
    """Mend the run, and do what is overdue; one that is in order stays as it is.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        generation: the dispatch whose task was looked for.
        in_queue: whether it was found.
    """
    facts: dict[str, Any] = {"rules": rules, "generation": generation, "in_queue": in_queue}
    if found := (*flaws(manifest, rules.grace), *flaws_at(manifest, now)):
        return then_on_alarm(mend(manifest, now, rules, found), now, **facts)
    if any(breaches(manifest, now, rules)):
        return on_alarm(manifest, now, **facts)
    return unchanged(manifest, Outcome.IN_ORDER)
