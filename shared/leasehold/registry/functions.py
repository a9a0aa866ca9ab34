"""What is known of each function of a bundle; its table is `infra/functions.py`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from leasehold.errors import InvalidEntryError

#: A service account's id has 6 to 30 characters, and ours begin with this.
ACCOUNT_PREFIX: Final = "leasehold-"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{1,19}")
_NAME_WORDS: Final = "a letter, then 1 to 19 of a-z 0-9 _"

#: Cloud Run ends no request later than this.
LONGEST_TIMEOUT: Final = timedelta(minutes=60)
#: A container with less than one CPU answers one request at a time.
_WHOLE_CPU: Final = 1.0


class Trigger(StrEnum):
    """What calls a function."""

    TASKS = "tasks"  # Cloud Tasks: one queue for each step type
    SCHEDULE = "schedule"  # Cloud Scheduler
    EVENTS = "events"  # Pub/Sub: the topic of LEASEHOLD_EVENTS
    REQUESTS = "requests"  # people and programs, whom IAM lets in


class Use(StrEnum):
    """What a function works with; its account may do that, and nothing else."""

    DOCUMENTS = "documents"  # Firestore: read and write
    TASKS = "tasks"  # Cloud Tasks: create and look up, as the account that tasks sign in as
    EVENTS = "events"  # Pub/Sub: publish that an announcement is due
    ARTIFACTS = "artifacts"  # Cloud Storage: read, write and delete objects of the bucket
    CHANNELS = "channels"  # the secrets of channels, and the topics of those that publish


@dataclass(frozen=True, slots=True)
class FunctionEntry:
    """A function: its entry file is `functions/{name}.py`, which has a function of that name.

    Args:
        name: of the entry file.
        summary: what it does, in a few words, for the docs.
        trigger: what calls it.
        uses: what it works with.
        timeout: how long one request may take.
        memory_mib: of an instance.
        cpu: of an instance.
        concurrency: requests at once in one instance.
        max_instances: at most so many.
        min_instances: so many are kept warm.
        schedule: in cron's words, for `Trigger.SCHEDULE` alone.

    Raises:
        InvalidEntryError: a value that the platform, or another one, does not allow.
    """

    name: str
    summary: str
    trigger: Trigger
    uses: tuple[Use, ...]
    timeout: timedelta
    memory_mib: int
    concurrency: int
    max_instances: int
    cpu: float = 1.0
    min_instances: int = 0
    schedule: str = ""

    def __post_init__(self) -> None:
        for field, is_right, allowed in self._rules():
            if not is_right:
                raise InvalidEntryError(
                    registry="functions",
                    key=str(self.name),
                    field=field,
                    value=getattr(self, field),
                    allowed=allowed,
                )

    def _rules(self) -> Iterator[tuple[str, bool, str]]:
        yield "name", _NAME.fullmatch(self.name) is not None, _NAME_WORDS
        timeout = timedelta(0) < self.timeout <= LONGEST_TIMEOUT
        yield "timeout", timeout, "above 0, at most 60 minutes"
        yield "memory_mib", 128 <= self.memory_mib <= 32_768, "from 128 to 32768"  # noqa: PLR2004
        one_at_a_time = self.concurrency == 1 or self.cpu >= _WHOLE_CPU
        yield "concurrency", 1 <= self.concurrency <= 1000, "from 1 to 1000"  # noqa: PLR2004
        yield "concurrency", one_at_a_time, "1, where an instance has less than one CPU"
        yield "max_instances", self.max_instances >= 1, "1 or more"
        yield "min_instances", 0 <= self.min_instances <= self.max_instances, "0 to max_instances"
        scheduled = bool(self.schedule) == (self.trigger is Trigger.SCHEDULE)
        yield "schedule", scheduled, "a schedule for Trigger.SCHEDULE, and for no other"

    @property
    def key(self) -> str:
        """The name the row is found by."""
        return self.name

    @property
    def service(self) -> str:
        """The name that it is deployed under: a service has no `_`."""
        return self.name.replace("_", "-")

    @property
    def account(self) -> str:
        """The id of the service account that it runs as, before the @."""
        return f"{ACCOUNT_PREFIX}{self.service}"

    @property
    def requests_at_once(self) -> int:
        """How many requests all of its instances answer at once."""
        return self.max_instances * self.concurrency
