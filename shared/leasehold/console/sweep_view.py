"""`leasehold sweep`: attend to what is due, once."""

from __future__ import annotations

from leasehold.bootstrap import delivers_tasks
from leasehold.console.answers import answer_facts, answer_json
from leasehold.console.opening import to_change
from leasehold.console.says import say
from leasehold.console.who_runs_it import tell_who_runs_them
from leasehold.services.sweep import sweep as sweep_runs


def sweep(*, as_json: bool) -> None:
    """Answer with the counts; as JSON in the shape of what `sweep_dead_letters` answers."""
    with to_change() as bundle:
        swept = sweep_runs(bundle.engine)
    if as_json:
        answer_json(swept.counts())
        return
    reasons = ", ".join(f"{count} {reason}" for reason, count in swept.by_reason.items())
    given_up = f"{swept.dead_lettered} ({reasons})" if reasons else str(swept.dead_lettered)
    answer_facts(
        [
            ("recovered", str(swept.recovered)),
            ("redispatched", str(swept.redispatched)),
            ("still queued", str(swept.still_queued)),
            ("dead-lettered", given_up),
            ("unattended", str(swept.unattended)),
            ("documents read", str(swept.documents_read)),
        ]
    )
    if swept.more:
        say("more runs are due: sweep again")
    waiting = swept.recovered + swept.redispatched + swept.still_queued
    if waiting and not delivers_tasks(bundle.engine):
        tell_who_runs_them()
