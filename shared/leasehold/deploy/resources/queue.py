"""The queues of the step types. One that exists is never changed, whatever the settings say.

Who operates an installation changes a queue by hand, in an incident or for good: its pace, how
many at once, paused. A deploy that set it back would undo that at the worst time (decision 0030).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from google.api_core.exceptions import NotFound

from leasehold.deploy.installation import Installation
from leasehold.deploy.resources.resource import (
    MISSING,
    PRESENT,
    Difference,
    Look,
    State,
    differences,
    seconds,
)
from leasehold.domain.retry import Backoff
from leasehold.errors import SettingError
from leasehold.frozen import dataclass
from leasehold.google_clients.clients import ONE_TRY, GoogleClients
from leasehold.registry.functions import FunctionEntry
from leasehold.registry.pipelines import Catalog
from leasehold.registry.settings import arguments_of, read_settings

# The queues of a catalog: which there are, and how many of their tasks run at once.


#: Cloud Tasks delivers no more of a queue at once.
MAX_TASKS_AT_ONCE: Final = 5000
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
    if not is_number or not 1 <= number <= MAX_TASKS_AT_ONCE:
        allowed = f"a whole number from 1 to {MAX_TASKS_AT_ONCE}"
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
    return min(left // others, MAX_TASKS_AT_ONCE) if others else 0


#: How many of its tasks a queue delivers at once, as gcloud calls it.
AT_ONCE: Final = "max-concurrent-dispatches"
_UNLIMITED: Final = "unlimited"
_RUNNING: Final = "RUNNING"


def backoff_of(environ: Mapping[str, str]) -> Backoff:
    """Return the waits that the environment gives a queue which is created: those of the engine.

    Raises:
        SettingError: a variable has a value that is not allowed.
    """
    return Backoff(**arguments_of(Backoff, read_settings(environ)))


@dataclass(frozen=True)
class QueueResource:
    """One queue of Cloud Tasks."""

    clients: GoogleClients
    installation: Installation
    queue: Queue
    backoff: Backoff
    kind = "queue"

    @property
    def name(self) -> str:
        """Its id."""
        return self.queue.id

    @property
    def _full_name(self) -> str:
        return f"{self.installation.location}/queues/{self.queue.id}"

    def look(self) -> Look:
        """Return how the queue is; a person may have paused it."""
        try:
            found = self.clients.tasks.get_queue({"name": self._full_name}, **ONE_TRY)
        except NotFound:
            return MISSING
        found_words = _words_of(found)
        differing = tuple(differences(found_words, self._wanted()))
        if not differing:
            return PRESENT
        return Look(State.DIFFERENT, differing, repair=self.repair_of(differing))

    def create(self) -> None:
        """Create the queue, and look whether it is there: a create may only appear to succeed."""
        request = {"parent": self.installation.location, "queue": self._message()}
        self.clients.tasks.create_queue(request, **ONE_TRY)
        try:
            self.clients.tasks.get_queue({"name": self._full_name}, **ONE_TRY)
        except NotFound as error:
            raise TimeoutError(
                "it was created, and Cloud Tasks does not know it yet; apply again in a minute"
            ) from error

    def _message(self) -> dict[str, Any]:
        return {
            "name": self._full_name,
            "rate_limits": {"max_concurrent_dispatches": self.queue.concurrency},
            "retry_config": {
                "max_attempts": -1,
                "max_retry_duration": timedelta(),
                "min_backoff": self.backoff.minimum,
                "max_backoff": self.backoff.maximum,
                "max_doublings": self.backoff.doublings,
            },
        }

    def _wanted(self) -> dict[str, str]:
        return {
            "state": _RUNNING,
            AT_ONCE: str(self.queue.concurrency),
            "max-attempts": _UNLIMITED,
            "max-retry-duration": _UNLIMITED,
            "min-backoff": seconds(self.backoff.minimum),
            "max-backoff": seconds(self.backoff.maximum),
            "max-doublings": str(self.backoff.doublings),
        }

    def at_once(self, look: Look) -> int:
        """Return how many tasks it delivers at once, or would as soon as it is created."""
        for difference in look.differences:
            if difference.field == AT_ONCE:
                return int(difference.found)
        return self.queue.concurrency

    def deliver_at_once(self, number: int) -> None:
        """Change how many of its tasks it delivers at once, and nothing else."""
        queue = {
            "name": self._full_name,
            "rate_limits": {"max_concurrent_dispatches": number},
        }
        mask = {"paths": ["rate_limits.max_concurrent_dispatches"]}
        self.clients.tasks.update_queue({"queue": queue, "update_mask": mask}, **ONE_TRY)

    def command_with(self, flags: str) -> str:
        """Return the command that changes numbers of the queue by hand."""
        return f"gcloud tasks queues update {self._place} {flags}"

    @property
    def _place(self) -> str:
        """The queue, as gcloud takes it."""
        where = f"--location={self.installation.region}"
        return f"{self.name} {where} --project={shlex.quote(self.installation.project)}"

    def repair_of(self, differing: Sequence[Difference]) -> str:
        """Return the commands that make it what it would be created as."""
        numbers = [it for it in differing if it.field != "state"]
        is_paused = len(numbers) < len(differing)
        commands = [f"gcloud tasks queues resume {self._place}"] if is_paused else []
        if numbers:
            commands.append(
                self.command_with(" ".join(f"--{it.field}={_flag(it)}" for it in numbers))
            )
        return " && ".join(commands)


def queues(
    clients: GoogleClients, installation: Installation, catalog: Catalog
) -> Iterator[QueueResource]:
    """Yield the queue of each step type; steps of remote workers have none.

    Raises:
        SettingError: a number that no queue can have, or more at once than are answered.
    """
    backoff = backoff_of(clients.environ)
    for queue in queues_of(
        catalog, installation.tables.concurrency, installation.functions.of_tasks
    ):
        yield QueueResource(clients, installation, queue, backoff)


def _words_of(found: Any) -> dict[str, str]:
    """Return what a queue has, by the flags of gcloud."""
    retry = found.retry_config
    limit = retry.max_retry_duration
    return {
        "state": found.state.name,
        AT_ONCE: str(found.rate_limits.max_concurrent_dispatches),
        "max-attempts": _UNLIMITED if retry.max_attempts == -1 else str(retry.max_attempts),
        "max-retry-duration": seconds(limit) if limit else _UNLIMITED,
        "min-backoff": seconds(retry.min_backoff),
        "max-backoff": seconds(retry.max_backoff),
        "max-doublings": str(retry.max_doublings),
    }


def _flag(difference: Difference) -> str:
    is_limit = difference.field == "max-retry-duration"
    return "0s" if is_limit and difference.wanted == _UNLIMITED else difference.wanted
