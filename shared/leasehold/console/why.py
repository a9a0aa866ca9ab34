"""`leasehold why`: what a run waits for, in one sentence."""

from __future__ import annotations

from leasehold.bootstrap import store_exists
from leasehold.console.answers import answer_json, answer_line
from leasehold.console.opening import opened
from leasehold.console.sources import ServerSource, StoreSource
from leasehold.console.words import one_line
from leasehold.domain.waiting import waiting


def why(run_id: str, *, url: str | None, as_json: bool) -> None:
    """Answer with what it waits for; the rules are those of the environment, also with a URL."""
    with opened(absent=url is not None or not store_exists()) as bundle:
        source = StoreSource(bundle.engine) if url is None else ServerSource(url)
        found = waiting(source.get(run_id), source.now(), bundle.engine.rules)
    if as_json:
        answer_json(
            {
                "runId": run_id,
                "waitsFor": found.what,
                "until": found.until,
                "then": found.then,
                "words": found.words,
            }
        )
    else:
        answer_line(one_line(found.words))
