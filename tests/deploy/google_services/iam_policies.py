"""Who may do what: policies, changed by their last reader."""

from __future__ import annotations

import hashlib
from typing import Any

from google.iam.v1 import iam_policy_pb2, policy_pb2
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from tests.deploy.google_services.refusals import aborted
from tests.deploy.google_services.service import Service


class PolicyMethods(Service):
    """The three methods about policies that many services have as their own."""

    def get_iam_policy(self, request: iam_policy_pb2.GetIamPolicyRequest) -> policy_pb2.Policy:
        self.check_resource(request.resource)
        policy = policy_pb2.Policy()
        policy.CopyFrom(self.world.policies.get(request.resource, _EMPTY))
        policy.etag = etag_of(policy)
        return policy

    def set_iam_policy(self, request: iam_policy_pb2.SetIamPolicyRequest) -> policy_pb2.Policy:
        self.check_resource(request.resource)
        stored = self.world.policies.get(request.resource, _EMPTY)
        if request.policy.etag and request.policy.etag != etag_of(stored):
            raise aborted("There were concurrent policy changes. Please retry the whole read-...")
        policy = policy_pb2.Policy()
        policy.CopyFrom(request.policy)
        policy.etag = b""
        self.world.policies[request.resource] = policy
        return self.get_iam_policy(iam_policy_pb2.GetIamPolicyRequest(resource=request.resource))

    def test_iam_permissions(self, request: Any) -> iam_policy_pb2.TestIamPermissionsResponse:
        return iam_policy_pb2.TestIamPermissionsResponse(permissions=request.permissions)

    def check_resource(self, resource: str) -> None:
        """Refuse a resource that there is not, where the service knows."""


class IamPolicies(PolicyMethods):
    """The policies of topics and subscriptions, which the emulator of Pub/Sub lacks."""

    name = "google.iam.v1.IAMPolicy"
    transports = (PublisherGrpcTransport, SubscriberGrpcTransport)


_EMPTY = policy_pb2.Policy()


def etag_of(policy: policy_pb2.Policy) -> bytes:
    """Return what changes with each change of a policy."""
    content = policy_pb2.Policy()
    content.CopyFrom(policy)
    content.etag = b""
    text = content.SerializeToString(deterministic=True)
    return hashlib.sha256(text).digest()[:8]
