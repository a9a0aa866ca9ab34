"""Skips: a step hands its output to a later one than the next, and those between are left out.

Only forwards, so that a pipeline stays a list that ends.
"""

from __future__ import annotations

from collections.abc import Sequence


def skip_problem(
    plan: Sequence[str], looped: Sequence[str], step: str, target: object
) -> str | None:
    """Return why a step cannot skip to a place, or None.

    Args:
        plan: the names of the places, in order.
        looped: those that run in trials: each trial runs all of them.
        step: the place that would skip.
        target: where to; any value, as a handler may return any.
    """
    behind = plan[plan.index(step) + 1 :]
    if target not in behind:
        return f"a later step than {step!r} ({', '.join(behind) or 'there is none'})"
    left_out = set(behind[: behind.index(target)]).intersection(looped)
    if step in looped or 0 < len(left_out) < len(looped):
        return f"all steps of the trials, or none ({', '.join(looped)})"
    return None
