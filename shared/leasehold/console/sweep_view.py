"""`leasehold sweep`: attend to what is due, once."""

from __future__ import annotations

from leasehold.console.answers import answer_facts, answer_json
from leasehold.console.opening import to_change
from leasehold.console.program import shown
from leasehold.console.says import say
from leasehold.console.who_runs_it import delivers
from leasehold.services.sweep import sweep as sweep_runs


def sweep(*, as_json: bool) -> None:
    """Answer with the counts; as JSON in the shape of what `sweep_dead_letters` answers."""
    with to_change() as bundle:
        swept = sweep_runs(bundle.engine)
    if as_json:
        answer_json(
            {
                "deadLettered": swept.dead_lettered,
                "byReason": swept.by_reason,
                "recovered": swept.recovered,
                "redispatched": swept.redispatched,
                "reannounced": 0,
                "archived": 0,
                "documentsRead": swept.documents_read,
                "more": swept.more,
            }
        )
        return
    reasons = ", ".join(f"{count} {reason}" for reason, count in swept.by_reason.items())
    given_up = f"{swept.dead_lettered} ({reasons})" if reasons else str(swept.dead_lettered)
    answer_facts(
        [
            ("recovered", str(swept.recovered)),
            ("redispatched", str(swept.redispatched)),
            ("dead-lettered", given_up),
            ("documents read", str(swept.documents_read)),
        ]
    )
    if swept.more:
        say("more runs are due: sweep again")
    if swept.recovered + swept.redispatched and not delivers(bundle.engine):
        said = "They wait for a worker; this runs them, unless a server of this store does:"
        say(said, shown("dev"))
