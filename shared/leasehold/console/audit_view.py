"""`leasehold audit`: runs that rest without owner or alarm, and their repair."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from leasehold.console.answers import Row, answer_json, answer_table
from leasehold.console.exits import DONE, FOUND
from leasehold.console.opening import to_change
from leasehold.console.says import say
from leasehold.console.words import Styled
from leasehold.services.audit import AuditResult
from leasehold.services.audit import audit as audit_runs

_COLUMNS: Final = ("RUN", "BREACH", "REPAIR")


def audit(*, repair: bool, as_json: bool) -> int:
    """Answer with what was found; return the exit code, which says whether something is left."""
    with to_change() as bundle:
        found = list(audit_runs(bundle.engine, repair=repair))
    left = [one for one in found if one.outcome is None]
    if as_json:
        answer_json({"found": [_as_json(one) for one in found], "left": len(left)})
    elif found:
        answer_table(_COLUMNS, [row for one in found for row in _rows(one, repair=repair)])
        repaired = f"{len(found) - len(left)} repaired, " if repair else ""
        hint = "" if repair else "; --repair repairs them"
        say(f"{len(found)} runs are not in order: {repaired}{len(left)} left{hint}")
    else:
        say("every run is in order")
    return FOUND if left else DONE


def _as_json(one: AuditResult) -> dict[str, Any]:
    breaches: Sequence[dict[str, str]] = [
        {"code": breach.code, "finding": breach.finding, "repair": breach.repair}
        for breach in one.breaches
    ]
    outcome = None if one.outcome is None else one.outcome.word
    return {"runId": one.run_id, "breaches": breaches, "outcome": outcome}


def _rows(one: AuditResult, *, repair: bool) -> Iterator[Row]:
    """Tell a line a breach: what its repair came to, or would do."""
    for breach in one.breaches:
        told = Styled(breach.repair)
        if repair and one.outcome is None:
            told = Styled("not repaired", "red")
        elif repair and one.outcome is not None:
            told = Styled(f"{one.outcome.word}: {breach.repair}", "green")
        yield one.run_id, Styled(f"{breach.code}: {breach.finding}", "yellow"), told
