"""`leasehold pause` and so on: one operation on one run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leasehold.cli.actor import actor, actor_header
from leasehold.cli.bundle import to_change
from leasehold.cli.delivery_hint import tell_who_runs_it
from leasehold.cli.exit_codes import DONE
from leasehold.cli.formatting import Styled, state_of
from leasehold.cli.http_client import RunsApi, path_of
from leasehold.cli.invocation import shown
from leasehold.cli.stderr import say
from leasehold.cli.stdout import answer_json, answer_line
from leasehold.domain.lifecycle import Operation
from leasehold.domain.summary import Summary, summary_of
from leasehold.services import operate as service


def operate(
    run_id: str,
    name: str,
    *,
    url: str | None,
    as_json: bool,
    reason: str = "",
    from_step: str | None = None,
    labels: Mapping[str, str] | None = None,
    generation: int | None = None,
    step: str | None = None,
    input: Any = service.AS_BEFORE,  # noqa: A002 - the word of the API
) -> int:
    """Do it; answer with the run afterwards, after a recreate with the new one."""
    asked = service.OperationRequest(
        Operation(name),
        actor(),
        reason,
        from_step=from_step,
        labels=labels,
        input=input,
        generation=generation,
        step=step,
    )
    if url is not None:
        _tell(run_id, _there(RunsApi(url), run_id, asked), as_json=as_json)
        if not as_json:
            say("look at it with:", shown("show", run_id, "--url", url))
        return DONE
    with to_change() as bundle:
        change = service.operate(bundle.engine, run_id, asked)
    moved = change.created or change.manifest
    _tell(run_id, summary_of(moved), as_json=as_json)
    if not as_json:
        tell_who_runs_it(bundle.engine, moved)
    return DONE


def _there(api: RunsApi, run_id: str, asked: service.OperationRequest) -> Summary:
    given = {
        "reason": asked.reason,
        "fromStep": asked.from_step,
        "labels": asked.labels,
        "generation": asked.generation,
        "step": asked.step,
    }
    body = {name: value for name, value in given.items() if value}
    if asked.input is not service.AS_BEFORE:
        body["input"] = asked.input
    path = f"{path_of(run_id)}:{asked.operation}"
    _, run = api.call(path, body, headers=actor_header())
    return api.read(Summary.model_validate, run)


def _tell(run_id: str, run: Summary, *, as_json: bool) -> None:
    if as_json:
        answer_json(run)
        return
    state, style, _ = state_of(run)
    answer_line(Styled(f"run {run.run_id} {state}", style))
    if run.run_id != run_id:
        say(f"It is made of run {run_id}, and begins at step {run.current_step}.")
