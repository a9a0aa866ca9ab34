"""An output that came from outside this bundle: does it fit its step, and what comes after it?"""

from __future__ import annotations

from leasehold.domain.manifest import Manifest
from leasehold.domain.trials import verdict_in
from leasehold.errors import InvalidOutputError, InvalidRequestError, InvalidVerdictError
from leasehold.registry.dispatch import REMOTE
from leasehold.services.engine import Engine


def skip_problem(engine: Engine, run: Manifest, target: str) -> str | None:
    """Return where the output of the current step may go, if not to this place, or None.

    The catalog in force says so, not the run: a place that was not declared is with a deploy.
    """
    if not run.is_listed:
        return "no skip, as its place gives the next step all outputs together"
    if problem := run.skip_problem(target):
        return problem
    pipeline = engine.catalog.pipelines.get(run.pipeline)
    declared = () if pipeline is None else pipeline.skips_of(run.position.step)
    if target in declared:
        return None
    return f"what the pipeline declares ({', '.join(declared) or 'no skip'})"


def check_output(engine: Engine, run: Manifest, output: str, skip_to: str | None = None) -> None:
    """Refuse an output that a handler could not have returned, or the next could not take."""
    if skip_to is not None and (allowed := skip_problem(engine, run, skip_to)):
        raise InvalidRequestError(field="skipTo", value=skip_to, allowed=allowed)
    steps = engine.catalog.steps
    step, next_step = steps.get(run.step_type), skip_to or run.next_step
    following = steps.get(run.step_type_of(next_step)) if next_step else None
    if step is None:
        return
    waits = next_step is not None and run.wait_rule_at(next_step) is not None
    if following is not None and (following.handler == REMOTE or waits):
        following = None
    if misfit := engine.handlers.checks.problem_with_output(step, output, following):
        raise InvalidOutputError(
            problem=f"{misfit.message}.",
            step=step.step_type,
            issues=misfit.validation_issues,
            issue_count=misfit.validation_issue_count,
        )


def check_verdict(run: Manifest, output: str) -> None:
    """Refuse the output of a reviewer that has no verdict."""
    try:
        verdict_in(run, output)
    except InvalidVerdictError as error:
        raise InvalidOutputError(
            problem=error.message, step=run.position.step, issues=(), issue_count=0
        ) from None
