"""The functions that `leasehold dev` serves: those of the table that something here calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from leasehold.devserver.function_processes import Function, free_port
from leasehold.registry.dispatch import REMOTE
from leasehold.registry.functions import FunctionEntry, FunctionTable, Trigger
from leasehold.registry.pipelines import Catalog

#: Requests at once: far more than callers need, so that requests which never arrive completely, and
#: hold a thread each until their time is over, keep nobody out.
API_THREADS: Final = 64

#: Requests at once in each process. One machine has no further instance that would answer, so these
#: are no less than in the table.
_THREADS: Final[Mapping[Trigger, int]] = {
    Trigger.TASKS: 8,
    Trigger.SCHEDULE: 2,
    Trigger.EVENTS: 8,
    Trigger.REQUESTS: API_THREADS,
    Trigger.WORKERS: API_THREADS,
}


def served_functions(
    table: FunctionTable, catalog: Catalog, ports: Mapping[str, int | None], workers: int
) -> tuple[Function, ...]:
    """Return the functions that are served.

    Args:
        table: those there are.
        catalog: what they run.
        ports: by the name of a function, where it listens; the others get free ports.
        workers: server processes of the function that tasks call.
    """
    return tuple(
        Function(
            entry.name,
            ports.get(entry.name) or free_port(),
            workers=workers if entry.trigger is Trigger.TASKS else 1,
            threads=_THREADS[entry.trigger],
        )
        for entry in table
        if _is_called(entry, catalog)
    )


def among(functions: Sequence[Function], entries: Sequence[FunctionEntry]) -> list[Function]:
    """Return those functions that are in these rows of the table."""
    names = {entry.name for entry in entries}
    return [function for function in functions if function.name in names]


def _is_called(entry: FunctionEntry, catalog: Catalog) -> bool:
    """Return whether anything calls the function while this catalog runs."""
    if entry.trigger is Trigger.EVENTS:
        return bool(len(catalog.channels))
    if entry.trigger is Trigger.WORKERS:
        return any(step.handler == REMOTE for step in catalog.steps)
    return True
