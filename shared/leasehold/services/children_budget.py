"""The budget of a run that waits for children.

Each child has an equal share of what the run has left, so that together they spend no more, and
none reads or writes anything for it. What some leave over is shared out among those that want more,
once no child is at work: then all is known that was spent.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from leasehold.domain import lifecycle
from leasehold.domain.manifest import Manifest
from leasehold.domain.spend import Spend, SpendLimit, total_of
from leasehold.domain.status import Outcome, RunStatus
from leasehold.services.engine import Engine, change_run


def share_of(run: Manifest, children: Iterable[Manifest], parts: int) -> SpendLimit | None:
    """Return what each of so many new children may spend; None: any amount.

    Args:
        run: the run; None of them is read where it has no budget.
        children: those that its place has had.
        parts: how many begin.
    """
    if run.budget is None or not parts:
        return None
    return run.budget.shared(_spent(run, children), parts)


def over_budget(run: Manifest, children: Iterable[Manifest]) -> str:
    """Return a sentence where a run and its children have spent its budget; else nothing."""
    if run.budget is None or not run.budget.is_used_up_by(spent := _spent(run, children)):
        return ""
    return _words(run.budget, spent)


def share_again(engine: Engine, run: Manifest, children: Iterable[Manifest]) -> str | None:
    """Have children that wait for more go on with what the run has left of its budget.

    The rest of a child that waits for something else stays reserved for it.

    Args:
        engine: the parts.
        run: the run.
        children: those of its place; none is at work.

    Returns:
        None: none waits for that. Empty: some go on. Else why none does, in a sentence.
    """
    known = list(children)
    wanting = list(filter(lifecycle.wants_budget, known))
    if run.budget is None:
        return None
    blocked = RunStatus.BLOCKED
    if any(not (one.is_terminal or one.paused or one.status is blocked) for one in known):
        return ""  # another question has shared it meanwhile
    if not wanting:
        return None
    spent = _spent(run, known)
    reserved = total_of(
        child.budget.reserved(child.spend).beyond(child.spend)
        for child in known
        if child.budget and not (child.is_terminal or lifecycle.wants_budget(child))
    )
    if run.budget.is_used_up_by(taken := spent.plus(reserved)):
        return _words(run.budget, spent)
    share = run.budget.shared(taken, len(wanting))
    give = partial(lifecycle.give_budget, rules=engine.dispatch_rules(), share=share)
    changes = [
        change_run(
            engine, child.run_id, partial(give, generation=child.position.dispatch.generation)
        )
        for child in wanting
    ]
    return "" if any(change.outcome is not Outcome.BLOCKED for change in changes) else None


def _spent(run: Manifest, children: Iterable[Manifest]) -> Spend:
    """Return what a run and its children have spent; it counts theirs once it gathers."""
    return run.spend.plus(total_of(child.spend for child in children))


def _words(budget: SpendLimit, spent: Spend) -> str:
    return f"The run and its children have spent {spent.words} of its budget of {budget.words}."
