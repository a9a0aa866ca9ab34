"""`leasehold why`: what a run waits for, in one sentence, and what a person can do about it."""

from __future__ import annotations

import click

from leasehold.bootstrap import Purpose
from leasehold.cli.bundle import bundle_to_explain, purpose_on_store
from leasehold.cli.delivery_hint import command_to_run
from leasehold.cli.invocation import command_line, url_words
from leasehold.cli.options import json_option, run_argument, url_option
from leasehold.cli.stderr import note
from leasehold.cli.stdout import print_json, print_line
from leasehold.client.server_source import ServerSource
from leasehold.client.store_source import StoreSource
from leasehold.domain.dispatch import as_dispatched
from leasehold.domain.explanation import explain
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest
from leasehold.presentation.formatting import one_line
from leasehold.registry.pipelines import NO_CATALOG
from leasehold.worker.holder import host_name, is_gone


@click.command()
@run_argument
@url_option
@json_option
def why(*, run_id: str, url: str | None, as_json: bool) -> None:
    """Say in one sentence what a run waits for, until when, and what happens then.

    \b
    Example:
      leasehold why r-0123456789abcdef
    """  # noqa: D301
    purpose = Purpose.PREVIEW if url is not None else purpose_on_store(Purpose.RUN)
    # the rules are those of the environment, also with a URL
    with bundle_to_explain(purpose) as bundle:
        source = StoreSource(bundle.engine) if url is None else ServerSource(url)
        run, now = source.get(run_id), source.now()
        holder_gone = run.lease is not None and is_gone(run.lease.holder, host=host_name())
        rules = bundle.engine.rules
        if bundle.engine.catalog is NO_CATALOG:
            rules = as_dispatched(rules, run.dispatch)
        explanation = explain(run, now, rules, holder_gone=holder_gone)
    if as_json:
        print_json(
            {
                "runId": run_id,
                "waitsFor": explanation.what,
                "until": explanation.until,
                "then": None if explanation.then is None else explanation.then.word,
                "words": explanation.words,
                "generation": run.dispatch.generation,
                "operations": explanation.operations,
            }
        )
        return
    print_line(one_line(explanation.words))
    if holder_gone and url is None:
        note("this takes it up at once:", command_to_run(run))
    for operation in explanation.operations:
        note(f"{operation} it with:", _decision(run, operation, url))


def _decision(run: Manifest, operation: Operation, url: str | None) -> str:
    """Return the command of a decision, which is bound to the run as it is now."""
    words = [operation.value, run.run_id]
    # a run that a person holds keeps its generation when it is let go, and may be held again
    if operation is not Operation.RESUME:
        words += ["--generation", str(run.dispatch.generation)]
    return command_line(*words, *url_words(url))
