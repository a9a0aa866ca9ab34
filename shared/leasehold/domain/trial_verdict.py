"""The verdict of a reviewer: what its output says of the trial that it ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pydantic_core

from leasehold.domain.manifest import Manifest
from leasehold.domain.trial_record import TrialVerdict
from leasehold.domain.trials import reviewed_step
from leasehold.errors import InvalidVerdictError

_TYPES: Final[Mapping[type, str]] = {
    type(None): "null",
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "an object",
}


def verdict_in(run: Manifest, output: str) -> TrialVerdict | None:
    """Return the verdict in the output of the current step; None: it is no reviewer.

    Args:
        run: the run; its own trials count, and not those of the catalog.
        output: JSON text.

    Raises:
        InvalidVerdictError: it has none.
    """
    if reviewed_step(run) is None:
        return None
    said = pydantic_core.from_json(output)
    problems = [*_problems(said)]
    if problems:
        raise InvalidVerdictError(step=run.position.step, problem="; ".join(problems))
    return TrialVerdict(settled=said["settled"], score=float(said["score"]))


def findings_in(review: str) -> list[Any]:
    """Return what a reviewer found, from its output as JSON text."""
    said = pydantic_core.from_json(review)
    findings: list[Any] = said.get("findings", []) if isinstance(said, dict) else []
    return findings


def _is_score(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float holds
        return False


#: What is wanted of each field, in words and as a check.
_WANTED: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "settled": ("true or false", lambda value: isinstance(value, bool)),
    "score": ("a finite number", _is_score),
    "findings": ("a list", lambda value: isinstance(value, list)),
}


def _problems(said: Any) -> Iterator[str]:
    if not isinstance(said, dict):
        yield f"it is {_TYPES[type(said)]}, and not an object with {', '.join(_WANTED)}"
        return
    for field, (wanted, fits) in _WANTED.items():
        if field not in said:
            yield f"it lacks {field!r}, which has to be {wanted}"
        elif not fits(said[field]):
            yield f"its {field!r} is {_TYPES[type(said[field])]}, and has to be {wanted}"
