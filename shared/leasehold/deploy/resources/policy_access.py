"""Reads and writes the policy of one place: who may do what there.

A policy is read, added to and written with the etag that it was read with, so what someone else
changes at the same time is kept; nothing is ever taken out of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any, Final

from google.api_core.exceptions import Aborted, Conflict, PreconditionFailed
from google.api_core.iam import Policy as BucketPolicy
from google.iam.v1.policy_pb2 import Binding, Policy
from google.protobuf import json_format

from leasehold.deploy.permissions import Kind, Permission, Place
from leasehold.live.clients import ONE_TRY, GoogleClients

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
            Aborted: someone has changed it meanwhile; it may be read again.
        """
        self.__dict__.pop("seen", None)
        try:
            self._write(policy)
        except (Conflict, PreconditionFailed) as error:  # as it is told over REST
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
