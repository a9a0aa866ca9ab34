"""A budget: what was learnt about the limits of a step, as a store keeps it (`budgets/{step}`).

The budget engine fills it (`budgets/derive.py`), and each dispatch reads what is applied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import AwareDatetime, Field, ValidationError

from leasehold.domain.stored import Document, Ref, Stored

#: The source of a limit that a budget gives.
DERIVED: Final = "derived"
#: The same of an attempt that runs under the longest limit, so that the longest ones are seen.
TAIL_PROBE: Final = "tail_probe"

#: The strategy of a budget that is applied: a value of `Strategy` in `budgets/proposal.py`.
APPLIED: Final = "phase_decoupled"

#: How many budgets are read: those with the first ids.
MAX_BUDGETS_READ: Final = 1000


class BudgetLimit(Stored):
    """The limits of an attempt, in seconds.

    Args:
        total_s: of the whole attempt: its dispatch deadline.
        execution_s: of its execution alone.
        timeout_s: of its handler, whose bootstrap counts as well: its agent timeout.
    """

    total_s: float = Field(ge=1, le=7 * 86_400)
    execution_s: float = Field(ge=0, le=7 * 86_400)
    timeout_s: float = Field(ge=0.001, le=7 * 86_400)


class Budget(Stored):
    """The findings of the last derivation about a step. How it is made: docs/timeouts.md."""

    step_type: str
    strategy: str
    derived_at: AwareDatetime
    changed_at: AwareDatetime | None = None
    declared: BudgetLimit
    proposed: BudgetLimit
    applied: BudgetLimit
    only_proposed: bool = False
    window_days: float = Field(ge=0, le=3660)
    has_drifted: bool = False
    clips_in_a_row: bool = False
    counts: Mapping[str, int] = {}
    bootstrap: Mapping[str, Any] | None = None
    execution: Mapping[str, Any] | None = None
    reasons: tuple[str, ...] = ()


def budget_ref(step_type: str) -> Ref:
    """Return where the budget of a step type is stored."""
    return Ref("budgets", step_type)


def budget_of(document: Document) -> Budget | None:
    """Return a stored budget; None: it cannot be used, as after an edit by hand."""
    try:
        return Budget.model_validate(document)
    except ValidationError:
        return None


def is_to_be_applied(document: Document) -> bool:
    """Return whether a stored budget is that of a step that went by it when it was derived.

    Until it is derived again, one that was only proposed has the entry's limit of that time.
    """
    return bool(document.get("strategy", APPLIED) == APPLIED)


def applied_limit(document: Document) -> BudgetLimit | None:
    """Return the limit that a stored budget applies; None: it cannot be used."""
    try:
        return BudgetLimit.model_validate(document.get("applied"))
    except ValidationError:
        return None
