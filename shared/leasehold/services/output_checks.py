"""An output that came from outside this bundle: does it fit its step, and what comes after it?"""

from __future__ import annotations

from leasehold.domain.manifest import Manifest
from leasehold.domain.trials import verdict_in
from leasehold.errors import InvalidOutputError, InvalidVerdictError
from leasehold.registry.dispatch import REMOTE
from leasehold.services.engine import Engine


def check_output(engine: Engine, run: Manifest, output: str) -> None:
    """Refuse an output that a handler could not have returned, or the next could not take."""
    steps = engine.catalog.steps
    step = steps.get(run.step_type)
    following = steps.get(run.step_type_of(run.next_step)) if run.next_step else None
    if step is None:
        return
    if following is not None and following.handler == REMOTE:
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
