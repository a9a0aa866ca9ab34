"""The policies of an installation's resources: permissions that are missing are added.

A policy is read, added to and written with the etag that it was read with, so what somebody else
changes at the same time is kept; nothing is ever taken out of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from google.api_core.exceptions import Aborted, Conflict, InvalidArgument, NotFound
from google.api_core.exceptions import BadRequest as WrongRequest
from google.api_core.exceptions import PreconditionFailed as Changed
from google.api_core.iam import Policy as BucketPolicy
from google.api_core.retry import Retry
from google.iam.v1.policy_pb2 import Binding, Policy
from google.protobuf import json_format

from infra.installation import Installation
from infra.permissions import EVERYBODY, Kind, Permission, Place, permissions_of
from infra.resources.resource import MISSING, PRESENT, Difference, Look, Resource, State
from leasehold.live.clients import GoogleClients
from leasehold.registry.pipelines import Catalog

#: A lower version would leave conditions out, and what is written back would have lost them.
#: https://cloud.google.com/iam/docs/policies#specifying-version-get
_VERSION: Final = 3
_TITLE: Final = "leasehold-database"

#: How a line is taken out of a policy by hand, and what names its place.
_GCLOUD: Final = {
    Kind.PROJECT: "projects",
    Kind.ACCOUNT: "iam service-accounts",
    Kind.QUEUE: "tasks queues",
    Kind.TOPIC: "pubsub topics",
    Kind.BUCKET: "storage buckets",
    Kind.SECRET: "secrets",
    Kind.SERVICE: "run services",
}


def policies(
    clients: GoogleClients, installation: Installation, catalog: Catalog
) -> Iterator[Resource]:
    """Yield the permissions at each place, and whether everybody may do something there."""
    wanted = sorted(permissions_of(installation, catalog), key=lambda each: _rank(each.place))
    for place, permissions in groupby(wanted, key=attrgetter("place")):
        access = PolicyAccess(clients, place)
        yield Permissions(place, tuple(permissions), access, installation)
        yield PublicAccess(place, access, installation)


def _rank(place: Place) -> tuple[int, str]:
    return list(Kind).index(place.kind), place.name


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
            found = self._bucket().get_iam_policy(requested_policy_version=_VERSION)
            as_json = found.to_api_repr()
            return json_format.ParseDict(as_json, Policy(), ignore_unknown_fields=True)
        options = {"requested_policy_version": _VERSION}
        asked = {"resource": self.place.name, "options": options}
        return self._client().get_iam_policy(request=asked)

    def write(self, policy: Policy) -> None:
        """Write a policy that was read.

        Raises:
            GoogleAPICallError: Aborted or the like where somebody has changed it meanwhile.
        """
        self.__dict__.pop("seen", None)
        if self.place.kind is Kind.BUCKET:
            as_json = json_format.MessageToDict(policy)
            changed = BucketPolicy.from_api_repr(as_json)  # type: ignore[no-untyped-call]
            self._bucket().set_iam_policy(changed)
        else:
            asked = {"resource": self.place.name, "policy": policy}
            self._client().set_iam_policy(request=asked)

    def _bucket(self) -> Any:
        return self.clients.storage.bucket(self.place.name)

    def _client(self) -> Any:
        clients: dict[Kind, Callable[[GoogleClients], Any]] = {
            Kind.PROJECT: attrgetter("projects"),
            Kind.ACCOUNT: attrgetter("accounts"),
            Kind.QUEUE: attrgetter("tasks"),
            Kind.TOPIC: attrgetter("publisher"),
            Kind.SECRET: attrgetter("secrets"),
            Kind.SERVICE: attrgetter("services"),
        }
        return clients[self.place.kind](self.clients)


def _may_pass(error: Exception) -> bool:
    """Return whether a policy that was refused is worth another try.

    Somebody else was faster; or an account of it is so new that not all of Google knows it.
    https://cloud.google.com/iam/docs/service-accounts-create#creating
    """
    if isinstance(error, InvalidArgument | WrongRequest):
        return "does not exist" in str(error)
    return isinstance(error, Aborted | Conflict | Changed)


@dataclass(frozen=True)
class Permissions:
    """What must be allowed at one place."""

    place: Place
    wanted: Sequence[Permission]
    policy: PolicyAccess
    installation: Installation
    kind: str = "permissions"
    patience_s: float = 90.0

    @property
    def name(self) -> str:
        """Where they stand."""
        return f"{self.place.kind} {self.place.short_name}"

    def look(self) -> Look:
        """Return whether all of them are there; those that are not, in `why`."""
        try:
            missing = _missing(self.policy.seen, self.wanted)
        except NotFound:
            if self.place.kind is Kind.SERVICE:
                why = f"{self.place.short_name} is not deployed yet"
                return Look(State.WAITING, why=why)
            return MISSING  # it is created before its permissions are
        if missing:
            return Look(State.MISSING, why=", ".join(map(_words, missing)))
        return PRESENT

    def create(self) -> None:
        """Add what is missing, again where somebody changes the policy at the same time."""
        again = Retry(predicate=_may_pass, initial=0.2, maximum=10.0, timeout=self.patience_s)
        again(self._add)()

    def _add(self) -> None:
        policy = self.policy.read()
        missing = _missing(policy, self.wanted)
        for permission in missing:
            _add(policy, permission)
        if missing:
            self.policy.write(policy)


@dataclass(frozen=True)
class PublicAccess:
    """That nobody may do anything at a place who is not named: it is only ever told."""

    place: Place
    policy: PolicyAccess
    installation: Installation
    kind: str = "public access"

    @property
    def name(self) -> str:
        """Where it would be."""
        return f"{self.place.kind} {self.place.short_name}"

    def look(self) -> Look:
        """Return who is let in without a name."""
        try:
            found = list(_public(self.policy.seen))
        except NotFound:
            return PRESENT  # what is not there lets nobody in
        if not found:
            return PRESENT
        who = ", ".join(f"{member} ({role})" for member, role in found)
        difference = Difference("THE WHOLE WORLD MAY USE IT", found=who, wanted="nobody")
        repair = "; ".join(self._removal(member, role) for member, role in found)
        return Look(State.DIFFERENT, (difference,), repair=repair)

    def create(self) -> None:
        """Do nothing: there is nothing that would have to be created."""

    def _removal(self, member: str, role: str) -> str:
        place = self.place
        name = f"gs://{place.name}" if place.kind is Kind.BUCKET else place.short_name
        options = [f"--member={member}", f"--role={role}"]
        if place.kind is Kind.QUEUE:
            options.append(f"--location={self.installation.region}")
        if place.kind is Kind.SERVICE:
            options.append(f"--region={self.installation.region}")
        if place.kind is not Kind.PROJECT:
            options.append(f"--project={self.installation.project}")
        return f"gcloud {_GCLOUD[place.kind]} remove-iam-policy-binding {name} {' '.join(options)}"


def _missing(policy: Policy, wanted: Iterable[Permission]) -> list[Permission]:
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


def _add(policy: Policy, permission: Permission) -> None:
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


def _public(policy: Policy) -> Iterator[tuple[str, str]]:
    for binding in policy.bindings:
        for member in binding.members:
            if member in EVERYBODY:
                yield member, binding.role


def _words(permission: Permission) -> str:
    return f"{permission.role} for {permission.member}"
