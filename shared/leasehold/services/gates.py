"""Gates: an output is handed off only if every gate of its step lets it pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from leasehold.domain.manifest import Manifest
from leasehold.domain.result import Failed, Finished, Result
from leasehold.services.engine import Engine


def _once(call: Callable[[], Result]) -> Result:
    return call()


def through_gates(
    engine: Engine,
    run: Manifest,
    result: Result,
    *,
    insist: Callable[[Callable[[], Any]], Any] = _once,
) -> Result:
    """Return the result of the current step as it is, or what the first gate makes of it.

    An output that says of itself that it is an ERROR fails the attempt before any gate.

    Args:
        engine: the parts.
        run: the run.
        result: what the step came to; only an output has to pass gates.
        insist: makes a call, and again where it meets an outage; once, unless given.

    Raises:
        StoreUnavailableError: a gate met an outage.
    """
    if not isinstance(result, Finished):
        return result
    if result.status == "ERROR":
        return Failed(engine.checks.error_of_output(run.current_step, result.output))
    for gate in engine.catalog.gates_of(run.current_step):
        judged: Result = insist(partial(engine.gates.run, gate, run, result))
        if judged is not result:
            return judged
    return result
