"""The queues of a catalog: which there are, and how many of their tasks run at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from leasehold.errors import SettingError
from leasehold.registry.functions import FunctionEntry
from leasehold.registry.pipelines import Catalog

#: Cloud Tasks delivers no more of a queue at once.
MOST_AT_ONCE: Final = 5000
_NAME: Final = "CONCURRENCY of deployment.py"


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue.

    Args:
        id: as the engine names it in tasks.
        steps: the step types whose tasks are in it.
        concurrency: how many of its tasks run at once, at most.
    """

    id: str
    steps: tuple[str, ...]
    concurrency: int


def queues_of(
    catalog: Catalog,
    concurrency: Mapping[str, int],
    function: FunctionEntry,
) -> tuple[Queue, ...]:
    """Return the queues that a catalog needs, in its order; remote steps have none.

    Args:
        catalog: what is run.
        concurrency: what a queue gets in place of an equal share, by its id.
        function: what the tasks call.

    Raises:
        SettingError: a queue that is not there is named, or a number that Cloud Tasks does not
            take, or tasks would be delivered that no instance of the function is there for.
    """
    known = catalog.queues
    for queue, number in concurrency.items():
        _check(queue, number, tuple(known))
    share = _equal_share(len(known), concurrency, function)
    return tuple(
        Queue(queue, steps, concurrency.get(queue, share)) for queue, steps in known.items()
    )


def _check(queue: str, number: int, known: tuple[str, ...]) -> None:
    """Refuse what no queue can be given."""
    if queue not in known:
        allowed = f"the queues of the catalog: {', '.join(known) or 'none'}"
        raise SettingError(name=f"a queue in {_NAME}", value=queue, allowed=allowed)
    is_number = isinstance(number, int) and not isinstance(number, bool)
    if not is_number or not 1 <= number <= MOST_AT_ONCE:
        allowed = f"a whole number from 1 to {MOST_AT_ONCE}"
        raise SettingError(name=f"{queue!r} in {_NAME}", value=number, allowed=allowed)


def _equal_share(queues: int, concurrency: Mapping[str, int], function: FunctionEntry) -> int:
    """Return what each queue gets that is not named, at least 1."""
    taken, others = sum(concurrency.values()), queues - len(concurrency)
    left = function.requests_at_once - taken
    if left < others:
        allowed = (
            f"{taken + others} or more: CONCURRENCY of deployment.py gives {taken} of them away, "
            f"and each of {others} other queues needs one; change either"
        )
        name = f"what {function.name} answers at once, by deployment.py,"
        raise SettingError(name=name, value=function.requests_at_once, allowed=allowed)
    return min(left // others, MOST_AT_ONCE) if others else 0
