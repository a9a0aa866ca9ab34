"""Who may do what in an installation: derived from the table of functions and the catalog.

A permission stands at the narrowest place that has its own policy: a queue, a topic, a bucket,
a secret, one account, one service. Firestore has none, so its role stands in the project, bound to
the one database by a condition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import chain
from typing import Final

from leasehold.deploy.installation import Installation
from leasehold.frozen import dataclass
from leasehold.google_clients.clients import CALL
from leasehold.registry.functions import ACCOUNT_PREFIX, FunctionEntry, Trigger, Use
from leasehold.registry.pipelines import Catalog

READ_AND_WRITE: Final = "roles/datastore.user"
PUBLISH: Final = "roles/pubsub.publisher"
#: Reads, writes, lists and deletes objects; no access to the bucket's own settings.
USE_OBJECTS: Final = "roles/storage.objectUser"
READ_SECRET: Final = "roles/secretmanager.secretAccessor"  # noqa: S105 - the name of a role
#: An enqueuer may create a task and not look it up again: that is what a viewer may.
#: https://cloud.google.com/tasks/docs/reference-access-control
PUT_TASKS: Final = ("roles/cloudtasks.enqueuer", "roles/cloudtasks.viewer")
#: The creator of a task that signs in as an account must be allowed to act as it.
#: https://cloud.google.com/tasks/docs/creating-http-target-tasks
SIGN_IN_AS: Final = "roles/iam.serviceAccountUser"


class Kind(StrEnum):
    """A kind of resource with its own policy."""

    PROJECT = "project"
    ACCOUNT = "service account"
    QUEUE = "queue"
    TOPIC = "topic"
    SUBSCRIPTION = "subscription"
    BUCKET = "bucket"
    SECRET = "secret"  # noqa: S105 - the word
    SERVICE = "service"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a permission stands.

    Args:
        kind: what it is.
        name: its full name, as its API has it; of a bucket the plain one.
    """

    kind: Kind
    name: str

    @property
    def short_name(self) -> str:
        """The name as people know it."""
        return self.name.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Permission:
    """One line of a policy.

    Args:
        place: where it stands.
        role: what it allows there.
        member: whom: `serviceAccount:EMAIL`, `user:EMAIL` and so on.
        condition: a condition in CEL; empty: none.
    """

    place: Place
    role: str
    member: str
    condition: str = ""


def permissions_of(installation: Installation, catalog: Catalog) -> Sequence[Permission]:
    """Return all that is allowed, each thing once, in the order of the table."""
    known = installation.functions
    used = (_used_by(function, installation, catalog) for function in known)
    called = (_call_of(function, installation) for function in known)
    return tuple(dict.fromkeys(chain(*used, *called)))


def callers_of(function: FunctionEntry, installation: Installation) -> Sequence[str]:
    """Return the members that may call a function.

    Pub/Sub calls as the account of Eventarc's trigger, which needs nothing else: the role of an
    event receiver is for events that do not come from Pub/Sub, and the tokens are made by Pub/Sub's
    own account (`resources/service_agents.py`).
    https://cloud.google.com/eventarc/docs/roles-permissions
    """
    match function.trigger:
        case Trigger.REQUESTS:
            return tuple(installation.callers)
        case Trigger.WORKERS:
            return tuple(installation.workers)
        case by_google:
            return (_account(installation, by_google.account),)


def service_of(function: FunctionEntry, installation: Installation) -> Place:
    """Return the service that a function is deployed as."""
    return Place(Kind.SERVICE, f"{installation.location}/services/{function.service}")


def _used_by(
    function: FunctionEntry, installation: Installation, catalog: Catalog
) -> Iterator[Permission]:
    """Yield what the account of a function may do, by what the function and its handlers use."""
    member = _account(installation, function.account)
    for use in function.uses:
        for place, role in _needed_for(use, installation, catalog):
            condition = ""
            if place.kind is Kind.PROJECT:
                # https://cloud.google.com/iam/docs/conditions-attribute-reference#resource-name
                condition = f'resource.name == "{installation.database_name}"'
            yield Permission(place, role, member, condition)
    project = f"projects/{installation.project}"
    for secret in function.secrets_with(catalog):
        place = Place(Kind.SECRET, f"{project}/secrets/{secret.variable}")
        yield Permission(place, READ_SECRET, member)
    for role in function.roles:
        yield Permission(Place(Kind.PROJECT, project), role, member)


def _needed_for(
    use: Use, installation: Installation, catalog: Catalog
) -> Iterator[tuple[Place, str]]:
    """Yield each role that a use takes, and where."""
    project = f"projects/{installation.project}"
    match use:
        case Use.DOCUMENTS:
            yield Place(Kind.PROJECT, project), READ_AND_WRITE
        case Use.TASKS:
            email = installation.email_of(installation.task_account)
            yield Place(Kind.ACCOUNT, f"{project}/serviceAccounts/{email}"), SIGN_IN_AS
            for queue_id in catalog.queues:
                queue = Place(Kind.QUEUE, f"{installation.location}/queues/{queue_id}")
                yield from ((queue, role) for role in PUT_TASKS)
        case Use.EVENTS:
            yield Place(Kind.TOPIC, installation.topic_name), PUBLISH
        case Use.ARTIFACTS:
            yield Place(Kind.BUCKET, installation.bucket_name), USE_OBJECTS
        case Use.CHANNELS:
            for topic in catalog.channel_topics:
                yield Place(Kind.TOPIC, topic), PUBLISH


def _call_of(function: FunctionEntry, installation: Installation) -> Iterator[Permission]:
    for member in callers_of(function, installation):
        yield Permission(service_of(function, installation), CALL, member)


def _account(installation: Installation, account: str) -> str:
    return f"serviceAccount:{installation.email_of(account)}"


# The accounts of a deploy: what a build runs as, what the gate does, and what makes images.
#
# `docs/deploy.md` gives their roles (tables in `docs/deployed.py`). What a build may not do is left
# out of them: it makes no account, and gives no role in the whole project.


#: The account that `cloudbuild.yaml` runs as.
DEPLOYER: Final = f"{ACCOUNT_PREFIX}deployer"
#: The account that the images of functions are built as; packages of others run their code then.
BUILDER: Final = f"{ACCOUNT_PREFIX}builder"
#: The account that the gate runs as, `cloudbuild.gate.yaml`: all tests, and the tools of others.
GATE: Final = f"{ACCOUNT_PREFIX}gate"
