"""The permissions of an installation, by the place where they stand: those missing are added."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any, Final, NamedTuple

from google.api_core.exceptions import (
    Aborted,
    Conflict,
    Forbidden,
    GoogleAPICallError,
    NotFound,
    PreconditionFailed,
)
from google.api_core.iam import Policy as BucketPolicy
from google.iam.v1.policy_pb2 import Binding, Policy
from google.protobuf import json_format

from leasehold.deploy.installation import Installation
from leasehold.deploy.permissions import Kind, Permission, Place, permissions_of, service_of
from leasehold.deploy.resources.bucket import Bucket
from leasehold.deploy.resources.resource import (
    MISSING,
    PRESENT,
    Difference,
    Look,
    NotYetError,
    Resource,
    State,
)
from leasehold.google_clients.clients import EVERYONE, ONE_TRY, GoogleClients
from leasehold.registry.pipelines import Catalog

# Reads and writes the policy of one place: who may do what there.
#
# A policy is read, added to and written with the etag that it was read with, so a change
# at the same time is kept; nothing is ever taken out of one.


#: A lower version would leave conditions out, and what is written back would have lost them.
#: https://cloud.google.com/iam/docs/policies#specifying-version-get
_VERSION: Final = 3
_TITLE: Final = "leasehold-database"


@dataclass
class PolicyAccess:
    """Reads and writes the policy of one place."""

    clients: GoogleClients
    place: Place

    @cached_property
    def seen(self) -> Policy:
        """The policy as it was when it was first looked at."""
        return self.read()

    def read(self) -> Policy:
        """Return the policy.

        Raises:
            GoogleAPICallError: NotFound where there is no such place.
        """
        if self.place.kind is Kind.BUCKET:
            found = self._bucket().get_iam_policy(requested_policy_version=_VERSION, **ONE_TRY)
            as_json = found.to_api_repr()
            return json_format.ParseDict(as_json, Policy(), ignore_unknown_fields=True)
        options = {"requested_policy_version": _VERSION}
        asked = {"resource": self.place.name, "options": options}
        return self._client().get_iam_policy(request=asked, **ONE_TRY)

    def write(self, policy: Policy) -> None:
        """Write a policy that was read.

        Raises:
            Aborted: it was changed meanwhile; it may be read again.
        """
        self.__dict__.pop("seen", None)
        try:
            self._write(policy)
        except (Conflict, PreconditionFailed) as error:  # as REST reports it
            raise Aborted(str(error)) from error  # type: ignore[no-untyped-call]

    def _write(self, policy: Policy) -> None:
        if self.place.kind is Kind.BUCKET:
            as_json = json_format.MessageToDict(policy)
            changed = BucketPolicy.from_api_repr(as_json)  # type: ignore[no-untyped-call]
            self._bucket().set_iam_policy(changed, **ONE_TRY)
        else:
            asked = {"resource": self.place.name, "policy": policy}
            self._client().set_iam_policy(request=asked, **ONE_TRY)

    def _bucket(self) -> Any:
        return self.clients.storage.bucket(self.place.name)

    def _client(self) -> Any:
        clients: dict[Kind, Callable[[GoogleClients], Any]] = {
            Kind.PROJECT: attrgetter("projects"),
            Kind.ACCOUNT: attrgetter("accounts"),
            Kind.QUEUE: attrgetter("tasks"),
            Kind.TOPIC: attrgetter("publisher"),
            Kind.SUBSCRIPTION: attrgetter("subscriber"),
            Kind.SECRET: attrgetter("secrets"),
            Kind.SERVICE: attrgetter("services"),
        }
        return clients[self.place.kind](self.clients)


def missing_from(policy: Policy, wanted: Iterable[Permission]) -> list[Permission]:
    """Return what a policy does not allow; an allowance without the condition does as well."""
    held = {
        (binding.role, member, binding.condition.expression)
        for binding in policy.bindings
        for member in binding.members
    }
    return [
        each
        for each in wanted
        if (each.role, each.member, each.condition) not in held
        and (each.role, each.member, "") not in held
    ]


class PublicGrant(NamedTuple):
    """A member that is everyone, and what it may do."""

    member: str
    role: str


def public_in(policy: Policy) -> list[PublicGrant]:
    """Return what a policy allows to everyone."""
    return [
        PublicGrant(member, binding.role)
        for binding in policy.bindings
        for member in sorted(EVERYONE.keys() & {*binding.members})
    ]


def add_to(policy: Policy, permission: Permission) -> None:
    """Add what a policy does not allow yet."""
    binding = _line_for(policy, permission)
    if permission.condition:
        binding.condition.title = binding.condition.title or _TITLE
        binding.condition.expression = permission.condition
        policy.version = _VERSION
    binding.members.append(permission.member)


def _line_for(policy: Policy, permission: Permission) -> Binding:
    """Return the line of a policy that a permission belongs into, a new one if need be."""
    for binding in policy.bindings:
        if (binding.role, binding.condition.expression) == (permission.role, permission.condition):
            return binding
    return policy.bindings.add(role=permission.role)


#: How a line is taken out of a policy by hand, and what names its place.
_GCLOUD: Final = {
    Kind.PROJECT: "projects",
    Kind.ACCOUNT: "iam service-accounts",
    Kind.QUEUE: "tasks queues",
    Kind.TOPIC: "pubsub topics",
    Kind.SUBSCRIPTION: "pubsub subscriptions",
    Kind.BUCKET: "storage buckets",
    Kind.SECRET: "secrets",
    Kind.SERVICE: "run services",
}


def policies(
    clients: GoogleClients, installation: Installation, catalog: Catalog
) -> Iterator[Permissions]:
    """Yield the permissions at each place; a service without callers is a place too."""
    wanted: dict[Place, list[Permission]] = {
        service_of(function, installation): [] for function in installation.functions
    }
    for permission in permissions_of(installation, catalog):
        wanted.setdefault(permission.place, []).append(permission)
    for place in sorted(wanted, key=_rank):
        access = PolicyAccess(clients, place)
        yield Permissions(place, tuple(wanted[place]), access, installation)


def _rank(place: Place) -> tuple[int, str]:
    return list(Kind).index(place.kind), place.name


@dataclass(frozen=True)
class Permissions:
    """The permissions that one place must have, none of which is public."""

    place: Place
    wanted: Sequence[Permission]
    policy: PolicyAccess
    installation: Installation
    kind = "permissions"

    @property
    def name(self) -> str:
        """Where they stand."""
        name = self.place.name if self._is_foreign else _short(self.place.short_name)
        return f"{self.place.kind} {name}"

    @property
    def needs(self) -> Sequence[Resource]:
        """The bucket, which may belong to another project."""
        is_of_bucket = self.place.kind is Kind.BUCKET
        return (Bucket(self.policy.clients, self.installation),) if is_of_bucket else ()

    def look(self) -> Look:
        """Return whether all are there (else `why` has those that are not), and who else is."""
        try:
            policy = self.policy.seen
        except (Forbidden, NotFound) as error:
            return self._unseen(error)
        public = public_in(policy)
        told = tuple(_warning(each) for each in public)
        repair = "; ".join(self.change("remove", *each) for each in public)
        if missing := missing_from(policy, self.wanted):
            return Look(State.MISSING, told, why=_words(missing), repair=repair)
        return Look(State.DIFFERENT, told, repair=repair) if public else PRESENT

    def create(self) -> None:
        """Add what is missing to the policy as it is now.

        Raises:
            Aborted: it was changed at the same time.
            NotYetError: there is no such place, or it is so new that it is not known everywhere.
        """
        try:
            policy = self.policy.read()
            missing = missing_from(policy, self.wanted)
            for permission in missing:
                add_to(policy, permission)
            if missing:
                self.policy.write(policy)
        except NotFound as error:  # some services tell it of a write alone
            raise NotYetError(f"{self.name}, which is not there") from error
        except Forbidden as error:
            raise (NotYetError(self._others()) if self._is_foreign else error) from error

    @property
    def _is_foreign(self) -> bool:
        """Whether the place is in another project: a topic that a channel publishes to."""
        of_project = f"projects/{self.installation.project}"
        is_ours = f"{self.place.name}/".startswith(f"{of_project}/")
        return self.place.kind is not Kind.BUCKET and not is_ours

    def _unseen(self, error: GoogleAPICallError) -> Look:
        """Return what it means that the policy cannot be read."""
        if self._is_foreign:
            repair = "; ".join(self.change("add", each.member, each.role) for each in self.wanted)
            return Look(State.WAITING, why=self._others(), repair=repair)
        if isinstance(error, Forbidden):
            raise error
        if not self.wanted:
            return PRESENT  # a service that is not there admits no caller
        if self.place.kind is Kind.SERVICE:
            return Look(State.WAITING, why=f"{self.place.short_name} to be deployed")
        return MISSING  # it is created before its permissions are

    def _others(self) -> str:
        project = self.place.name.split("/")[1]
        return f"a person of project {project} to allow {_words(self.wanted)}"

    def change(self, verb: str, member: str, role: str) -> str:
        """Return the command that adds or removes a line of the policy."""
        place = self.place
        name = f"gs://{place.name}" if place.kind is Kind.BUCKET else place.short_name
        options = [f"--member={shlex.quote(member)}", f"--role={shlex.quote(role)}"]
        if place.kind is Kind.QUEUE:
            options.append(f"--location={self.installation.region}")
        if place.kind is Kind.SERVICE:
            options.append(f"--region={self.installation.region}")
        if place.kind not in {Kind.PROJECT, Kind.BUCKET}:
            options.append(f"--project={shlex.quote(place.name.split('/')[1])}")
        words = f"{_GCLOUD[place.kind]} {verb}-iam-policy-binding {shlex.quote(name)}"
        return f"gcloud {words} {' '.join(options)}"


def _warning(public: PublicGrant) -> Difference:
    found = f"{public.role} for {public.member}"
    return Difference("OPEN TO THE WHOLE WORLD", found=found, wanted="no one")


def _words(permissions: Iterable[Permission]) -> str:
    """Return permissions in a line: each role once, with whom it is for."""
    members: dict[str, list[str]] = {}
    for each in permissions:
        members.setdefault(each.role, []).append(_short(each.member))
    return "; ".join(f"{role} for {', '.join(whom)}" for role, whom in members.items())


def _short(name: str) -> str:
    """Return a service account by its id, and anything else as it is."""
    email = name.removeprefix("serviceAccount:")
    is_account = email.endswith(".gserviceaccount.com")
    return email.partition("@")[0] if is_account else name
