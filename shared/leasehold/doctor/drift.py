"""Harmful drift: the differences that `leasehold deploy drift` finds, and their effects.

The comparison is that of `deploy/resources/`. What only differs from what it would be created as is
drift; here is what does harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from leasehold.deploy.resources.resource import (
    Difference,
    Look,
    Repairable,
    Resource,
    State,
)
from leasehold.doctor.deployment import Deployment, secrets_of, variables_of
from leasehold.doctor.finding import Finding, Kind
from leasehold.doctor.probes import not_looked_at
from leasehold.domain.printable import one_line
from leasehold.domain.timestamps import stamp
from leasehold.google_clients.clients import ONE_TRY
from leasehold.registry.functions import FunctionEntry, Secret

if TYPE_CHECKING:
    from leasehold.deploy.resources.scheduler_job import SchedulerJob

_MAX_NAMES_SHOWN: Final = 3
_MAX_WORDS_CHARS: Final = 120
#: What Cloud Tasks waits by default. A task that waits longer is out of sight that long.
_MAX_QUEUE_WAIT_S: Final = 600.0


class By(Enum):
    """What repairs a harm."""

    COMMAND = auto()  # that of the resource, or where it has none `apply`
    REMOVAL = auto()  # that of the resource, and then `apply`, which creates it anew
    APPLY = auto()
    DEPLOY = auto()


class Harm(NamedTuple):
    """A kind of drift that does harm.

    Args:
        code: of the finding.
        leads_to: what comes of it.
        kind: how much it counts.
        is_one: whether a difference does harm; by default each does.
        by: what repairs it.
    """

    code: str
    leads_to: str
    kind: Kind = Kind.FINDING
    is_one: Callable[[Difference], bool] = lambda _: True
    by: By = By.COMMAND


def _s(text: str) -> float:
    return float(text.removesuffix("s") or 0)


def _is_none(it: Difference) -> bool:
    return it.found in {"none", "0s"}


_BROKEN: Final = "Firestore could not do it: what needs it fails"
#: By the kind of a resource, and its state or the field that differs; `*`: any field.
HARMS: Final[Mapping[tuple[str, str], Harm]] = {
    ("database", State.MISSING): Harm("database_missing", "no run can be kept"),
    ("database", "point-in-time recovery"): Harm(
        "no_earlier_versions",
        "after an hour there is no way back but a backup, which is up to a day old",
        Kind.WARNING,
    ),
    ("backups", State.MISSING): Harm(
        "no_backups", "what is deleted by mistake is gone", Kind.WARNING
    ),
    ("index", State.MISSING): Harm("index_missing", "queries that need it fail"),
    ("index", State.WAITING): Harm("index_building", "queries that need it fail until then"),
    ("index", "state"): Harm("index_broken", _BROKEN, by=By.REMOVAL),
    ("field indexes", State.MISSING): Harm(
        "exemption_missing", "each write costs more, and a time that grows caps the writes"
    ),
    ("field indexes", "*"): Harm(
        "index_broken", _BROKEN, is_one=lambda it: "NEEDS_REPAIR" in it.found, by=By.REMOVAL
    ),
    ("expiry", "state"): Harm("expiry_broken", "entries of the ledger stay", by=By.REMOVAL),
    ("queue", State.MISSING): Harm("queue_missing", "none of its tasks can be created"),
    ("queue", "state"): Harm("queue_paused", "its tasks wait, and their runs with them"),
    ("queue", "max-attempts"): Harm(
        "queue_attempts", "in an outage runs lose their tasks, and count as never started"
    ),
    ("queue", "max-backoff"): Harm(
        "queue_backoff",
        "after an outage runs go on that much later than they could",
        is_one=lambda it: _s(it.found) > _MAX_QUEUE_WAIT_S,
    ),
    ("scheduler job", State.MISSING): Harm("job_missing", "the function never runs"),
    ("scheduler job", "state"): Harm("job_paused", "the function is not called"),
    ("scheduler job", "schedule"): Harm("job_schedule", "the function is called at other times"),
    ("scheduler job", "attempt-deadline"): Harm(
        "job_deadline",
        "a long call counts as failed",
        is_one=lambda it: _s(it.found) < _s(it.wanted),
    ),
    ("scheduler job", "oidc-service-account-email"): Harm("job_account", "it is refused"),
    ("scheduler job", "uri"): Harm(
        "job_missing", "the function never runs", is_one=lambda it: not _is_same_service(it)
    ),
    ("topic", State.MISSING): Harm("topic_missing", "no announcement is published"),
    ("event subscription", State.WAITING): Harm(
        "subscription_missing",
        "announcements wait for the sweep, which publishes them in vain",
        by=By.DEPLOY,
    ),
    ("event subscription", "min-retry-delay"): Harm(
        "subscription_retry", "what failed comes again at once", is_one=_is_none, by=By.APPLY
    ),
    ("event subscription", "dead-letter-topic"): Harm(
        "subscription_dead_letters", "what is given up is gone", is_one=_is_none, by=By.APPLY
    ),
    ("event subscription", "ack-deadline"): Harm(
        "subscription_deadline", "it sends again what is being sent"
    ),
    ("event subscription", "push-auth-service-account"): Harm(
        "subscription_account", "each message is refused"
    ),
    ("event subscription", "message-retention-duration"): Harm(
        "subscription_retention", "messages of an outage over night are gone in the morning"
    ),
    ("event subscription", "expiration-period"): Harm(
        "subscription_expires",
        "without a delivery for this time it is deleted, and all announcements after that are gone",
    ),
    ("secret", State.MISSING): Harm("secret_missing", "no function can be deployed with it"),
    ("secret", State.WAITING): Harm("secret_missing", "no function can be deployed with it"),
}


def _is_same_service(uri: Difference) -> bool:
    """Return whether both are addresses of one service: it has one by its number, and another."""
    found, wanted = (urlsplit(it).hostname or "" for it in (uri.found, uri.wanted))
    return found.startswith(wanted.partition("-0.")[0] + "-")


def database(deployment: Deployment) -> Iterator[Finding]:
    """Yield where the database, its indexes and its backups differ from the tables."""
    from leasehold.deploy.resources.database import Database, backups  # noqa: PLC0415 - lazy
    from leasehold.deploy.resources.indexes import Expiry, indexes  # noqa: PLC0415 - as above

    address = deployment.setting("LEASEHOLD_STORE")
    if not address.startswith("firestore://"):
        return
    project, name = address.removeprefix("firestore://").split("/")
    place = replace(deployment.installation, project=project, database=name)
    clients = deployment.clients
    of_all = Database(clients, place)
    if (look := of_all.look()).state is State.MISSING:
        yield from _findings(deployment, [(of_all, look)])
        return
    found: list[tuple[Resource, Look]] = [(of_all, look)]
    expiry = Expiry(clients, place, timedelta())  # how long is not known here
    resources = [*indexes(clients, place), expiry, *backups(clients, place)]
    found += [(one, one.look()) for one in resources]
    yield from _findings(deployment, found)


def queues(deployment: Deployment) -> Iterator[Finding]:
    """Yield where the queues of the catalog's steps differ, or deliver too much at once."""
    from leasehold.deploy.resources.queue import queues as of_catalog  # noqa: PLC0415 - as above

    wanted = of_catalog(deployment.clients, deployment.installation, deployment.setup.catalog)
    found = [(one, one.look()) for one in wanted]
    yield from _findings(deployment, found)
    yield from _concurrency(
        deployment,
        {one.name: one.at_once(look) for one, look in found if look.state is not State.MISSING},
    )


def _concurrency(deployment: Deployment, given: Mapping[str, int]) -> Iterator[Finding]:
    """Yield a finding where queues deliver more at once than there are instances for."""
    entry = deployment.setup.functions.of_tasks
    service = deployment.services_if_known.get(entry.service)
    instances, at_once = entry.max_instances, entry.concurrency
    if service is not None:
        template = service.template
        instances = template.scaling.max_instance_count or instances
        at_once = template.max_instance_request_concurrency or at_once
    if sum(given.values()) > instances * at_once:
        share = max(1, instances * at_once // len(given))
        flag = f"--max-concurrent-dispatches={share}"
        too_many = (queue_id for queue_id, number in given.items() if number > share)
        commands = [deployment.at(f"tasks queues update {one}", flag) for one in too_many]
        message = (
            f"The queues deliver {sum(given.values())} tasks at once, and {entry.service} takes "
            f"{instances * at_once}: the others are answered 429, which slows each queue down."
        )
        yield Finding("queue_concurrency", message, " && ".join(commands))


def jobs(deployment: Deployment) -> Iterator[Finding]:
    """Yield where the jobs of scheduled functions differ, or their last call failed."""
    from leasehold.deploy.resources.scheduler_job import scheduler_jobs  # noqa: PLC0415 - as above

    found = [
        (one, one.look()) for one in scheduler_jobs(deployment.clients, deployment.installation)
    ]
    yield from _findings(deployment, found)
    for one, look in found:
        if look.state is not State.MISSING:
            yield from _last_call(deployment, one)


def _last_call(deployment: Deployment, one: SchedulerJob) -> Iterator[Finding]:
    job = deployment.clients.scheduler.get_job({"name": one.full_name}, **ONE_TRY)
    if job.status.code:
        why = one_line(job.status.message, _MAX_WORDS_CHARS) or f"status {job.status.code}"
        at = f" at {job.last_attempt_time:%Y-%m-%dT%H:%M:%SZ}" if job.last_attempt_time else ""
        message = f"The last call of job {one.name}{at} failed ({why})."
        of_job = f"'resource.labels.job_id=\"{one.name}\"'"
        repair = f"gcloud logging read {of_job} --project={deployment.project} --limit=5"
        yield Finding("job_failed", message, repair)


def announcements(deployment: Deployment) -> Iterator[Finding]:
    """Yield where the topic, or its subscription of deliver_notification, differs."""
    from leasehold.deploy.resources.topic import (  # noqa: PLC0415 - as above
        EventSubscription,
        Topic,
    )

    address = deployment.setting("LEASEHOLD_EVENTS")
    if not address.startswith("pubsub://"):
        return
    project, topic = address.removeprefix("pubsub://").split("/")
    clients = deployment.clients
    place = replace(deployment.installation, project=project, topic=topic)
    wanted = Topic(clients, place, place.topic_name)
    if (look := wanted.look()).state is State.MISSING:
        yield from _findings(deployment, [(wanted, look)])
        return
    pushing = EventSubscription(clients, place)
    look = pushing.look()
    yield from _findings(deployment, [(pushing, look)])
    given = {it.field: it.found for it in look.differences}.get("dead-letter-topic")
    if look.state is not State.WAITING and given != "none":
        yield from _dead_letters(deployment, given or place.dead_topic_name)


def _dead_letters(deployment: Deployment, topic: str) -> Iterator[Finding]:
    """Yield a finding for a dead-letter topic without a subscription."""
    from google.api_core.exceptions import NotFound  # noqa: PLC0415 - as above

    what = "has no subscription"
    try:
        if [*deployment.clients.publisher.list_topic_subscriptions({"topic": topic}, **ONE_TRY)]:
            return
    except NotFound:
        what = "does not exist"
    message = f"The dead-letter topic {topic.rpartition('/')[2]} {what}: what goes there is gone."
    yield Finding("subscription_dead_letters", message, deployment.apply)


def secrets(deployment: Deployment) -> Iterator[Finding]:
    """Yield which secrets are missing, or have no version that can be read."""
    from leasehold.deploy.resources.secrets import secrets as of_catalog  # noqa: PLC0415 - as above

    wanted = of_catalog(deployment.clients, deployment.installation, deployment.setup.catalog)
    yield from _findings(deployment, [(one, one.look()) for one in wanted])


def _findings(deployment: Deployment, found: Iterable[tuple[Resource, Look]]) -> Iterator[Finding]:
    """Yield a finding for each harm; several resources of one kind that suffer it are one."""
    harmed: dict[tuple[str, Harm, str], list[tuple[str, str]]] = {}
    for resource, look in found:
        if look.state is State.UNKNOWN:
            yield not_looked_at(f"{resource.kind} {resource.name}", look.why, look.repair)
        for harm, what, repair in _harms(resource, look):
            harmed.setdefault((resource.kind, harm, what), []).append((resource.name, repair))
    for (kind, harm, what), having in harmed.items():
        names = [name for name, _ in having]
        which = f"{kind[:1].upper()}{kind[1:]} {_some(names)}"
        repair = _repair(deployment, harm, [each for _, each in having])
        yield Finding(harm.code, f"{which}: {what}; {harm.leads_to}.", repair, kind=harm.kind)


def _harms(resource: Resource, look: Look) -> Iterator[tuple[Harm, str, str]]:
    """Yield what does harm, what is so, in words, and the command that repairs it."""
    if harm := HARMS.get((resource.kind, look.state)):
        since = f", since {stamp(look.since)}" if look.since else ""
        is_missing = look.state is State.MISSING
        what = "missing" if is_missing else f"waits for {look.why}{since}"
        yield harm, what, look.repair
    for it in look.differences:
        harm = HARMS.get((resource.kind, it.field)) or HARMS.get((resource.kind, "*"))
        if harm and harm.is_one(it):
            found, wanted = (
                one_line(it.found, _MAX_WORDS_CHARS),
                one_line(it.wanted, _MAX_WORDS_CHARS),
            )
            repair = look.repair
            if isinstance(resource, Repairable):
                repair = resource.repair_of([it])
            yield harm, f"{it.field} is {found}, not {wanted}", repair


def _repair(deployment: Deployment, harm: Harm, repairs: Sequence[str]) -> str:
    """Return what repairs all of them."""
    if harm.by is By.DEPLOY:
        return f"gcloud builds submit --config=cloudbuild.yaml --project={deployment.project}"
    commands = [] if harm.by is By.APPLY else [*filter(None, repairs)]
    if harm.by is By.REMOVAL or not commands:
        commands.append(deployment.apply)
    return " && ".join(dict.fromkeys(commands))


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMES_SHOWN
    return ", ".join(names[:_MAX_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


# The secrets of functions, as each function has them.


def given_secrets(deployment: Deployment) -> Iterator[Finding]:
    """Yield which functions have a secret as a plain variable, or not at all."""
    for entry, service in deployment.deployed():
        plain, given = variables_of(service), secrets_of(service)
        for secret in entry.secrets_with(deployment.setup.catalog):
            name = secret.variable
            if plain.get(name):
                message = (
                    f"{name} is a plain variable of function {entry.service}: everyone who may "
                    "look at the function reads it."
                )
                flags = (f"--remove-env-vars={name}", f"--update-secrets={secret.reference}")
                repair = deployment.of_run("update", entry.service, *flags)
                yield Finding("secret_in_environment", message, repair)
            elif given.get(name) != f"{name}:{secret.version}":
                yield _not_given(deployment, entry, secret, given.get(name, ""))


def _not_given(deployment: Deployment, entry: FunctionEntry, secret: Secret, given: str) -> Finding:
    has = f"has {one_line(given, _MAX_WORDS_CHARS)}" if given else "has nothing"
    message = (
        f"Function {entry.service} {has} as {secret.variable}, and the table has version "
        f"{secret.version} of the secret of that name."
    )
    flag = f"--update-secrets={secret.reference}"
    return Finding("secret_not_given", message, deployment.of_run("update", entry.service, flag))
