"""`leasehold why`: what a run waits for, in one sentence, and what a person can do about it."""

from __future__ import annotations

from leasehold.bootstrap import store_exists
from leasehold.console.answers import answer_json, answer_line
from leasehold.console.opening import opened
from leasehold.console.program import at, shown
from leasehold.console.says import say
from leasehold.console.sources import ServerSource, StoreSource
from leasehold.console.who_runs_it import command_for
from leasehold.console.words import one_line
from leasehold.domain.explanation import explain
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest
from leasehold.worker.holder import host_name, is_gone


def why(run_id: str, *, url: str | None, as_json: bool) -> None:
    """Answer with what it waits for; the rules are those of the environment, also with a URL.

    What a person can do is said as commands; a decision is bound to the run as it is now.
    """
    with opened(absent=url is not None or not store_exists()) as bundle:
        source = StoreSource(bundle.engine) if url is None else ServerSource(url)
        run, now = source.get(run_id), source.now()
        holder_gone = _is_holder_gone(run)
        found = explain(run, now, bundle.engine.rules, holder_gone=holder_gone)
    generation = run.dispatch.generation
    if as_json:
        answer_json(
            {
                "runId": run_id,
                "waitsFor": found.what,
                "until": found.until,
                "then": None if found.then is None else found.then.word,
                "words": found.words,
                "generation": generation,
                "operations": found.operations,
            }
        )
        return
    answer_line(one_line(found.words))
    if holder_gone and url is None:
        say("this takes it up at once:", command_for(run))
    for operation in found.operations:
        # a run that a person holds keeps its generation when it is let go, and may be held again
        is_bound = operation is not Operation.RESUME
        bound = ("--generation", str(generation)) if is_bound else ()
        say(f"{operation} it with:", shown(operation.value, run_id, *bound, *at(url)))


def _is_holder_gone(run: Manifest) -> bool:
    return run.lease is not None and is_gone(run.lease.holder, host=host_name())
