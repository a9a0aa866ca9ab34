"""What is known of each function of a bundle; its table is `deployment.py`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from enum import StrEnum
from types import UnionType
from typing import TYPE_CHECKING, Final, NoReturn

from leasehold.errors import InvalidEntryError
from leasehold.frozen import dataclass
from leasehold.registry.registry import Registry

if TYPE_CHECKING:
    from leasehold.registry.pipelines import Catalog

#: A service account's id has 6 to 30 characters, and ours begin with this.
ACCOUNT_PREFIX: Final = "leasehold-"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,18}[a-z0-9]")
_VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9_]{0,99}")
_VERSION: Final = re.compile(r"latest|[1-9][0-9]{0,8}")
#: Basic roles, with which one may do nearly everything, have no dot; who may read which secret is
#: said by its name.
_ROLE: Final = re.compile(
    r"roles/(?!secretmanager\.)[a-z][a-z0-9]*(\.[a-zA-Z0-9]+)+"
    r"|(projects|organizations)/[a-z0-9:.-]+/roles/[\w.]+",
    re.ASCII,
)
_ROLE_WORDS: Final = (
    "a tuple of roles, each once, as 'roles/aiplatform.user': no basic role, and none of Secret "
    "Manager, which `secrets` gives for each secret alone"
)
#: The setting that signs links for people: the function that announces signs, and the API checks.
LINK_SECRET: Final = "LEASEHOLD_LINK_SECRET"  # noqa: S105 - its name
_CRON: Final = re.compile(r"[\w*/,-]+( [\w*/,-]+){4}", re.ASCII)

#: The most MiB of memory of an instance with at least this share of a CPU.
#: https://cloud.google.com/run/docs/configuring/services/cpu
_MEMORY_OF_PART: Final[Mapping[float, int]] = {0.5: 1024, 0.08: 512}
#: The least and the most MiB of memory for each number of CPUs.
_MEMORY: Final[Mapping[float, tuple[int, int]]] = {
    1: (128, 4096),
    2: (128, 8192),
    4: (2048, 16_384),
    6: (4096, 24_576),
    8: (4096, 32_768),
}
_MIN_MEMORY_MIB: Final = 128
#: https://cloud.google.com/run/docs/configuring/services/memory-limits
_MIN_MEMORY_MIB_OF_SECOND: Final = 512
_MAX_REQUESTS_AT_ONCE: Final = 1000


class Trigger(StrEnum):
    """What calls a function."""

    TASKS = "tasks"  # Cloud Tasks: one queue for each step type
    SCHEDULE = "schedule"  # Cloud Scheduler
    EVENTS = "events"  # Pub/Sub: the topic of LEASEHOLD_EVENTS
    REQUESTS = "requests"  # people and programs, whom IAM lets in
    WORKERS = "workers"  # workers that run elsewhere, whom IAM lets in

    @property
    def is_by_users(self) -> bool:
        """Whether accounts of the users' own call it, and no service of Google."""
        return self in {Trigger.REQUESTS, Trigger.WORKERS}

    @property
    def account(self) -> str:
        """The id of the service account that calls it; empty: the users have their own."""
        return "" if self.is_by_users else f"{ACCOUNT_PREFIX}{self.value}"


#: How long a request may take at most: Cloud Run's own limit, what Cloud Scheduler waits for, and
#: what a trigger of events allows. https://cloud.google.com/functions/docs/configuring/timeout
_MAX_TIMEOUTS: Final[Mapping[Trigger, timedelta]] = {
    Trigger.TASKS: timedelta(minutes=60),
    Trigger.SCHEDULE: timedelta(minutes=30),
    Trigger.EVENTS: timedelta(minutes=9),
    Trigger.REQUESTS: timedelta(minutes=60),
    Trigger.WORKERS: timedelta(minutes=60),
}


class Use(StrEnum):
    """What a function works with; its account may do that, and nothing else."""

    DOCUMENTS = "documents"  # Firestore: read and write
    TASKS = "tasks"  # Cloud Tasks: create and look up, as the account that tasks sign in as
    EVENTS = "events"  # Pub/Sub: publish that an announcement is due
    ARTIFACTS = "artifacts"  # Cloud Storage: read, write and delete objects of the bucket
    CHANNELS = "channels"  # the secrets of channels, and the topics of those that publish


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret of Secret Manager that a function has as a variable.

    Args:
        variable: its name; the secret has the same one.
        version: a number, or `latest`: what is the newest when an instance starts.

    Raises:
        InvalidEntryError: it cannot be one; the name is not repeated, it may be the secret itself.
    """

    variable: str
    version: str = "latest"

    def __post_init__(self) -> None:
        is_name = isinstance(self.variable, str) and _VARIABLE.fullmatch(self.variable)
        if not is_name:
            allowed = "the name of the variable that it is read from, in capitals"
            self._refuse("variable", "[not shown]", allowed)
        if not (isinstance(self.version, str) and _VERSION.fullmatch(self.version)):
            self._refuse("version", self.version, "'latest', or the number of a version in quotes")

    @property
    def reference(self) -> str:
        """The variable and what it is read from, as gcloud has them."""
        return f"{self.variable}={self.variable}:{self.version}"

    def _refuse(self, field: str, value: object, allowed: str) -> None:
        key = "a secret" if field == "variable" else self.variable
        raise InvalidEntryError(
            registry="functions", key=key, field=field, value=value, allowed=allowed
        )


#: What a field must be before it can be looked at any closer.
_CLASSES: Final[Mapping[str, tuple[type | UnionType, str]]] = {
    "name": (str, "a name"),
    "summary": (str, "a few words"),
    "trigger": (Trigger, "a Trigger"),
    "uses": (tuple, "a tuple of Use"),
    "timeout": (timedelta, "a timedelta"),
    "memory_mib": (int, "a whole number of MiB"),
    "concurrency": (int, "a whole number"),
    "max_instances": (int, "a whole number"),
    "cpu": (int | float, "a number"),
    "min_instances": (int, "a whole number"),
    "schedule": (str, "a schedule, or ''"),
    "secrets": (tuple, "a tuple of Secret"),
    "roles": (tuple, _ROLE_WORDS),
}


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
        concurrency: requests at once in one instance.
        max_instances: the limit of Cloud Run's scaling.
        cpu: of an instance: a part of one from 0.08 up, or 1, 2, 4, 6 or 8.
        min_instances: so many are kept warm.
        schedule: in cron's five fields, in UTC, for `Trigger.SCHEDULE` alone.
        secrets: what its handlers read from their environment, as the key of a model; those of
            channels come from the catalog.
        roles: what its handlers may do in the project besides, as `roles/aiplatform.user`.

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
    cpu: float = 1
    min_instances: int = 0
    schedule: str = ""
    secrets: tuple[Secret, ...] = ()
    roles: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field, (usable, allowed) in _CLASSES.items():
            value = getattr(self, field)
            if not isinstance(value, usable) or isinstance(value, bool):
                self.refuse(field, allowed)
        for field, is_right, allowed in self._rules():
            if not is_right:
                self.refuse(field, allowed)

    def _rules(self) -> Iterator[tuple[str, bool, str]]:
        """Yield the field, whether it can be used, and what is allowed."""
        is_name = _NAME.fullmatch(self.name) is not None
        yield "name", is_name, "2 to 20 of a-z 0-9 _, with a letter first and no _ last"
        is_callers = self.name in tuple(Trigger)  # whose account it would be
        yield "name", not is_callers, f"another name than {', '.join(Trigger)}"
        are_uses = all(isinstance(use, Use) and self.uses.count(use) == 1 for use in self.uses)
        yield "uses", are_uses, "a tuple of Use, each once"
        longest = _MAX_TIMEOUTS[self.trigger]
        lasts = timedelta(seconds=1) <= self.timeout <= longest and not self.timeout.microseconds
        yield (
            "timeout",
            lasts,
            f"whole seconds, from 1 s to {longest} for Trigger.{self.trigger.name}",
        )
        least, most = _memory_of(self.cpu)
        yield "cpu", most > 0, "a part of one from 0.08 up, or 1, 2, 4, 6 or 8"
        if self.runs_handlers:
            least = max(least, _MIN_MEMORY_MIB_OF_SECOND)
        has_memory = least <= self.memory_mib <= most
        yield "memory_mib", has_memory, f"from {least} to {most}, for a cpu of {self.cpu:g}"
        yield (
            "concurrency",
            1 <= self.concurrency <= _MAX_REQUESTS_AT_ONCE,
            f"from 1 to {_MAX_REQUESTS_AT_ONCE}",
        )
        one_at_a_time = self.concurrency == 1 or self.cpu >= 1
        yield "concurrency", one_at_a_time, "1, where an instance has less than one CPU"
        yield "max_instances", self.max_instances >= 1, "1 or more"
        yield "min_instances", 0 <= self.min_instances <= self.max_instances, "0 to max_instances"
        if self.trigger is Trigger.SCHEDULE:
            is_cron = _CRON.fullmatch(self.schedule) is not None
            yield "schedule", is_cron, "cron's five fields, as '*/5 * * * *'"
        else:
            yield "schedule", not self.schedule, "'': only Trigger.SCHEDULE has one"
        are_secrets = all(isinstance(secret, Secret) for secret in self.secrets)
        yield "secrets", are_secrets, "a tuple of Secret"
        variables = [secret.variable for secret in self.secrets]
        yield "secrets", len(variables) == len(set(variables)), "each variable once"
        are_roles = all(isinstance(role, str) and _ROLE.fullmatch(role) for role in self.roles)
        yield "roles", are_roles and len(self.roles) == len(set(self.roles)), _ROLE_WORDS

    def refuse(self, field: str, allowed: str) -> NoReturn:
        """Raise that the value of a field is none of those that are allowed."""
        value = getattr(self, field)
        if field == "secrets":
            value = "[not shown]"  # it may be the secret itself
        raise InvalidEntryError(
            registry="functions",
            key=str(self.name),
            field=field,
            value=str(value) if isinstance(value, timedelta) else value,
            allowed=allowed,
        )

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
    def runs_handlers(self) -> bool:
        """Whether handlers run in it, in their own processes."""
        return self.trigger is Trigger.TASKS

    @property
    def environment(self) -> str:
        """The execution environment of Cloud Run that it needs; empty: Cloud Run's own choice.

        The second generation is Linux; the first one, gVisor, starts sooner, and tells less of
        processes. https://cloud.google.com/run/docs/about-execution-environments
        """
        return "gen2" if self.runs_handlers else ""

    def secrets_with(self, catalog: Catalog) -> tuple[Secret, ...]:
        """Return all secrets that it has: its own, and those of the channels that it calls."""
        own = {secret.variable: secret for secret in self.secrets}
        if Use.CHANNELS in self.uses:
            own = {name: Secret(name) for name in catalog.channel_variables} | own
        return tuple(own.values())

    @property
    def requests_at_once(self) -> int:
        """How many requests all of its instances answer at once."""
        return self.max_instances * self.concurrency


class FunctionTable(Registry[FunctionEntry]):
    """The functions of a bundle.

    Args:
        entries: the rows.

    Raises:
        DuplicateKeyError: two rows have the same name.
        InvalidEntryError: it is not exactly one that tasks call: all of them go to one address;
            or links are signed by one function, and not checked by another with the same secret.
    """

    def __init__(self, entries: Iterable[FunctionEntry]) -> None:
        super().__init__("functions", entries)
        by_tasks = [function.name for function in self.called_by(Trigger.TASKS)]
        if len(by_tasks) != 1:
            raise InvalidEntryError(
                registry=self.name,
                key=", ".join(by_tasks) or "no row",
                field="trigger",
                value=str(Trigger.TASKS),
                allowed="exactly one row with Trigger.TASKS",
            )
        self._check_link_secret()

    def _check_link_secret(self) -> None:
        """Refuse a secret of links that is not that of all who sign and check them."""
        having = {
            one.name: tuple(it for it in one.secrets if it.variable == LINK_SECRET) for one in self
        }
        needing = [it.name for it in self if Use.CHANNELS in it.uses or it.name == "serve_api"]
        found = {having[name] for name in needing}
        if any(having.values()) and (() in found or len(found) > 1):
            raise InvalidEntryError(
                registry=self.name,
                key=next((name for name in needing if not having[name]), needing[0]),
                field="secrets",
                value="[not shown]",
                allowed=f"the same version of {LINK_SECRET} as in the rows of "
                f"{' and '.join(needing)}: one signs links, and another checks them",
            )

    def called_by(self, trigger: Trigger) -> tuple[FunctionEntry, ...]:
        """Return the functions that are called so."""
        return tuple(function for function in self if function.trigger is trigger)

    def called_by_users(self) -> tuple[FunctionEntry, ...]:
        """Return the functions that people, programs and workers call themselves."""
        return tuple(function for function in self if function.trigger.is_by_users)

    def secrets_with(self, catalog: Catalog) -> dict[Secret, tuple[FunctionEntry, ...]]:
        """Return the secrets of all functions, and which functions have each."""
        having: dict[Secret, tuple[FunctionEntry, ...]] = {}
        for function in self:
            for secret in function.secrets_with(catalog):
                having[secret] = (*having.get(secret, ()), function)
        return having

    @property
    def of_tasks(self) -> FunctionEntry:
        """The function that tasks call."""
        (function,) = self.called_by(Trigger.TASKS)
        return function


def _memory_of(cpu: float) -> tuple[int, int]:
    """Return the least and the most memory, in MiB, beside so many CPUs; (0, 0): none has them."""
    if cpu < 1:
        most = next((mib for part, mib in _MEMORY_OF_PART.items() if cpu >= part), 0)
        return (_MIN_MEMORY_MIB, most) if most else (0, 0)
    return _MEMORY.get(cpu, (0, 0))
