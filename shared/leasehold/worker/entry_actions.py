"""Entry actions: what is called before the handler of a step, in each attempt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from leasehold.domain.result import Result
from leasehold.errors import EntryActionNotFoundError
from leasehold.ports.handler_runner import EnteredStep, StepHandler
from leasehold.worker.context import StepContext
from leasehold.worker.handlers import StepFunction, UnresolvedError, action_at


@dataclass(frozen=True, slots=True)
class EntryAction(StepFunction):
    """A function `(ctx, given)`, and the path that its step names it by; its result is ignored."""

    path: str


def entry_actions_of(step: EnteredStep) -> Sequence[EntryAction]:
    """Import the entry actions of a step.

    Raises:
        EntryActionNotFoundError: a path does not lead to a function that takes (ctx, given).
    """
    return [entry_action_at(step, path) for path in step.entry_actions]


def entry_action_at(step: StepHandler, path: str) -> EntryAction:
    """Import one entry action of a step, or raise EntryActionNotFoundError."""
    try:
        found = action_at(path)
    except UnresolvedError as error:
        raise EntryActionNotFoundError(
            action=path, step=step.step_type, problem=str(error)
        ) from error.__cause__
    return EntryAction(found.function, found.is_async, path)


def enter(
    actions: Sequence[EntryAction],
    context: StepContext,
    given: Any,
    *,
    end_by: Callable[[BaseException, str], Result],
) -> Result | None:
    """Call the entry actions, in their order; no checkpoint can be kept meanwhile.

    Args:
        actions: see `entry_actions_of`.
        context: that of the attempt.
        given: what its handler is given; they are given the same.
        end_by: returns how the attempt ends when what is at a path has raised.

    Returns:
        How the attempt ends; None: its handler may begin.
    """
    context._is_entering = True  # noqa: SLF001 - a step has one checkpoint: that of its handler
    for action in actions:
        try:
            action(context, given)
        except BaseException as error:  # noqa: BLE001 - as with the handler's own errors
            return end_by(error, action.path)
    context._is_entering = False  # noqa: SLF001 - as above
    return None
